"""Fixtures of the tests. The queue under test is chosen by --device, --vendor and --backend."""

import os
import shutil
import subprocess
import sys
import tempfile

import pytest
from helpers import merged_environment

# The suite compiles into a cache of its own, so that what an earlier run left can't hide a failure.
# Workers of pytest-xdist inherit the environment and so share that of the process that starts them.
_own_cache = None
if "FUNLIB_CACHE_DIR" not in os.environ:
    _own_cache = tempfile.mkdtemp(prefix="funlib-test-cache-")
    os.environ["FUNLIB_CACHE_DIR"] = _own_cache

# The reference's products are small: on a busy machine, OpenBLAS's threads take ten times longer to
# meet than to multiply.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tuned choices would make the tests depend on the machine; test_tuning.py has them on.
os.environ["FUNLIB_TUNING"] = "off"

# {title: {line: None}}: what is printed below the results, each line once.
summary = pytest.StashKey[dict[str, dict[str, None]]]()


def pytest_addoption(parser):
    group = parser.getgroup("funlib")
    group.addoption("--device", default="any", help="device type of the queue under test")
    group.addoption("--vendor", default=None, help="vendor of the queue under test")
    group.addoption("--backend", default=None, help="backend of the queue under test")


def pytest_configure(config):
    config.stash[summary] = {}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One worker where tests fill a GPU's memory, which workers would share; else as many as
    pytest-xdist finds right."""
    if config.getoption("device") == "cpu":
        return None
    # Not in this process: workers would inherit the variables that the library sets when it starts.
    code = "import funlib; print(*(device.type for device in funlib.devices()))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=False
    )
    return None if set(result.stdout.split()) <= {"cpu"} else 1


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # a worker of pytest-xdist
        sections = session.config.stash[summary].items()
        session.config.workeroutput["summary"] = {title: list(lines) for title, lines in sections}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """What a worker has for the summary; one that crashed has nothing."""
    for title, lines in getattr(node, "workeroutput", {}).get("summary", {}).items():
        node.config.stash[summary].setdefault(title, {}).update(dict.fromkeys(lines))


def pytest_unconfigure(config):
    if _own_cache:
        shutil.rmtree(_own_cache, ignore_errors=True)


def pytest_terminal_summary(terminalreporter, config):
    for title, (heading, *lines) in config.stash[summary].items():
        terminalreporter.section(title)
        for line in (heading, *sorted(lines)):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def summary_section(pytestconfig):
    """summary_section(title, heading) -> add(line); lines are printed below the results, sorted."""

    def section(title, heading):
        lines = pytestconfig.stash[summary].setdefault(title, {heading: None})
        return lambda line: lines.update({line: None})

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
