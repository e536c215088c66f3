"""Shared by the tests: where the sources are, and the environment of processes that they start."""

import os
import pathlib
import subprocess
import sys

# Code of a process whose messages of the library are of interest: `records`, (level, text) each.
COLLECT_LOG = """
import logging

records = []
class Handler(logging.Handler):
    def emit(self, record):
        records.append((record.levelname, record.getMessage()))
logger = logging.getLogger("funlib")
logger.setLevel(logging.DEBUG)
logger.addHandler(Handler())
"""

SOURCE = pathlib.Path(__file__).resolve().parents[1]


def merged_environment(changes):
    """os.environ with the changes; None takes a variable out."""
    environment = dict(os.environ)
    for name, value in changes.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = str(value)
    return environment


def module(*arguments, **environment):
    """`python -m funlib` with the arguments and changes of the environment: a CompletedProcess."""
    return subprocess.run(
        [sys.executable, "-m", "funlib", *arguments],
        env=merged_environment(environment),
        cwd="/",  # the sources' folder has a funlib that is not built
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
