"""Fixtures of the tests. The queue under test is chosen by --device, --vendor and --backend."""

import os
import shutil
import subprocess
import sys
import tempfile

import pytest
from helpers import merged_environment

# The suite compiles into a cache of its own, so that what an earlier run left can't hide a failure.
_own_cache = None
if "FUNLIB_CACHE_DIR" not in os.environ:
    _own_cache = tempfile.mkdtemp(prefix="funlib-test-cache-")
    os.environ["FUNLIB_CACHE_DIR"] = _own_cache

# Tuned choices would make the tests depend on the machine; test_tuning.py has them on.
os.environ["FUNLIB_TUNING"] = "off"

summary = pytest.StashKey[list]()


def pytest_addoption(parser):
    group = parser.getgroup("funlib")
    group.addoption("--device", default="any", help="device type of the queue under test")
    group.addoption("--vendor", default=None, help="vendor of the queue under test")
    group.addoption("--backend", default=None, help="backend of the queue under test")


def pytest_configure(config):
    config.stash[summary] = []


def pytest_unconfigure(config):
    if _own_cache:
        shutil.rmtree(_own_cache, ignore_errors=True)


def pytest_terminal_summary(terminalreporter, config):
    for title, lines in config.stash[summary]:
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def summary_section(pytestconfig):
    """summary_section(title) -> a list; its lines are printed below the results."""

    def section(title):
        lines = []
        pytestconfig.stash[summary].append((title, lines))
        return lines

    return section


@pytest.fixture(scope="session")
def queue(pytestconfig):
    """The queue under test, registered under the name "tests"."""
    import funlib

    option = pytestconfig.getoption
    return funlib.register_queue(
        "tests", device=option("device"), vendor=option("vendor"), backend=option("backend")
    )


@pytest.fixture
def run_python(tmp_path):
    """run_python(code, *arguments, timeout=120, stdin=None, **environment): a fresh interpreter.

    The code is written to a file, so that multiprocessing's spawn can import it. A value of None
    takes a variable out of the environment. Returns a CompletedProcess with text.
    """

    def run(code, *arguments, timeout=120, **environment):
        script = tmp_path / f"script_{len(list(tmp_path.glob('script_*')))}.py"
        script.write_text(code)
        return subprocess.run(
            [sys.executable, str(script), *arguments],
            env=merged_environment(environment),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def c_library():
    """The C interface, for the few things that Python does not offer."""
    import c_interface

    return c_interface.Library()
