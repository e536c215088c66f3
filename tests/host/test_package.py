"""The package as a whole: names, errors, stubs and the wheel. No device is needed."""

import getpass
import importlib.util
import inspect
import json
import os
import pathlib
import pickle
import re
import socket
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from helpers import SOURCE

import funlib


def test_public_names():
    """Everything in __all__ is there and documented, and what is public is in __all__."""
    assert sorted(funlib.__all__) == sorted(set(funlib.__all__))
    for name in funlib.__all__:
        assert inspect.getdoc(getattr(funlib, name)), f"funlib.{name} has no docstring"
    public = {
        name
        for name, value in vars(funlib).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public <= set(funlib.__all__), public - set(funlib.__all__)
    for kernel in funlib.kernels():
        assert kernel.name in funlib.__all__


def test_meson_builds_what_the_tests_import():
    """`meson test` in a fresh build folder builds the whole package first: it builds only what its
    tests depend on."""
    information = pathlib.Path(funlib.__file__).parents[1] / "meson-info"
    if not information.is_dir():
        pytest.skip("funlib is not used from a build folder")
    tests = json.loads((information / "intro-tests.json").read_text())
    targets = json.loads((information / "intro-targets.json").read_text())
    (pytest_run,) = [test for test in tests if test["name"] == "pytest"]
    needed = {
        target["id"]
        for target in targets
        if any(pathlib.Path(name).parent.name == "funlib" for name in target["filename"])
        or target["name"] in ("funlib", "funlib-compiler")
    }
    assert needed
    assert needed <= set(pytest_run["depends"]), needed - set(pytest_run["depends"])


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", funlib.__version__)
    assert f'version = "{funlib.__version__}"' in (SOURCE / "pyproject.toml").read_text()


def test_exceptions():
    for name in ("CompileError", "DeviceError", "DeviceNotFoundError", "ForkError"):
        error = getattr(funlib, name)
        assert issubclass(error, funlib.FunlibError)
        assert str(pickle.loads(pickle.dumps(error("the text")))) == "the text"
    assert issubclass(funlib.UnsupportedError, funlib.FunlibError)
    assert issubclass(funlib.FunlibError, RuntimeError)


def test_classes_are_made_by_their_functions():
    for cls in (funlib.Queue, funlib.Event, funlib.HostView, funlib.Device):
        with pytest.raises(TypeError):
            cls()


def test_kernel_sources_exist():
    for kernel in funlib.kernels():
        assert (SOURCE / "lib" / "kernels" / pathlib.Path(kernel.source).name).is_file()


def test_stubs_match_the_run_time(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed (pip install .[test])")
    allow = ("--allowlist", pathlib.Path(__file__).with_name("stubtest_allowlist.txt"))
    result = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "funlib", "--concise", *allow],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_missing_runtime_is_named(run_python):
    """Where the SYCL wheels are not installed, the error gives the command that installs them."""
    result = run_python(
        """
import importlib.metadata, pathlib, sys
folder = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(folder.parent))
import funlib._runtime as runtime
runtime.find = lambda name: None
try:
    runtime.preload()
except ImportError as error:
    print(error)
""",
        pathlib.Path(funlib.__file__).parent,
    )
    assert result.returncode == 0, result.stderr
    assert "libsycl" in result.stdout
    assert "pip install" in result.stdout
    assert "intel-sycl-rt" in result.stdout


# ---- the wheel -----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """Path of a wheel built from the sources, without an environment of its own."""
    for requirement in ("mesonpy", "Cython", "pip"):
        if importlib.util.find_spec(requirement) is None:
            pytest.skip(f"{requirement} is not installed, which building a wheel takes")
    folder = tmp_path_factory.mktemp("wheel")
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", SOURCE, "--wheel-dir", folder),
            *("--no-deps", "--no-build-isolation", "--disable-pip-version-check"),
            # pip asks for the metadata first: so the second step does not compile again.
            f"--config-settings=build-dir={folder}/build",
            # What the compiler makes faster is tested elsewhere.
            "--config-settings=setup-args=-Doptimization=0",
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_wheel_contents(wheel):
    assert wheel.name.startswith(f"funlib-{funlib.__version__}-")
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("__init__.py", "__main__.py", "errors.py", "py.typed", "__init__.pyi"):
        assert f"funlib/{name}" in names
    for name in ("libfunlib.so", "funlib-compiler", "cuda_adapter/libur_adapter_cuda.so.0"):
        assert f"funlib/{name}" in names, names
    for name in names:
        assert name.startswith(("funlib/", f"funlib-{funlib.__version__}.dist-info/")), name
        assert not name.endswith((".pyx", ".pxd", ".cpp", ".c", ".pyc")), name
    assert any(name.endswith("LICENSE") for name in names)


def test_wheel_names_no_machine(wheel):
    """Nothing of the machine that built the wheel is in it."""
    home = os.path.expanduser("~")
    traces = {str(SOURCE), sys.prefix, sys.base_prefix, home, f"/home/{getpass.getuser()}"}
    traces |= {socket.gethostname(), sysconfig.get_config_var("LIBDIR")}
    # "/usr", "/root", "localhost" and the like are no trace of one machine.
    common = re.compile(r"/?\w{0,8}|/usr(/local)?(/lib)?|localhost")
    traces = {trace for trace in traces if not common.fullmatch(trace)}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            for trace in traces:
                assert trace.encode() not in content, f"{name} names {trace}"


def test_wheel_in_a_folder(wheel, run_python, tmp_path):
    """pip install --target: the installed package finds the runtime and computes, with its own
    library even where LD_LIBRARY_PATH names another, as `meson test` does."""
    target = tmp_path / "target"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target, wheel],
        check=True,
        timeout=300,
        capture_output=True,
    )
    result = run_python(
        """
import pathlib, sys
import numpy as np
import funlib
assert pathlib.Path(funlib.__file__).is_relative_to(sys.argv[1]), funlib.__file__
assert pathlib.Path(funlib.runtime_info().library).is_relative_to(sys.argv[1])
assert pathlib.Path(funlib.runtime_info().compiler).is_relative_to(sys.argv[1])
a = funlib.DeviceTensor.from_numpy(np.ones((5, 5), np.float32))
print((a @ a).to_host().sum())
""",
        target,
        PYTHONPATH=target,
        LD_LIBRARY_PATH=pathlib.Path(funlib.runtime_info().library).parent,
        FUNLIB_CACHE="off",
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "125.0"
