"""Shared by the tests: where the sources are, and the environment of processes that they start."""

import os
import pathlib

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
