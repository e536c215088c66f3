"""The examples in the README run as they stand there."""

import pathlib
import re
import shutil
import subprocess

import pytest
from helpers import SOURCE

import funlib


def block(language):
    """The README's first block of code in a language."""
    return re.search(rf"```{language}\n(.*?)```", (SOURCE / "README.md").read_text(), re.DOTALL)[1]


def test_python_example(run_python):
    code = block("python")
    assert len(code.splitlines()) <= 12
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    assert "DeviceTensor(shape=(300, 100)" in result.stdout


def test_cpp_example(tmp_path):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    library = pathlib.Path(funlib.runtime_info().library)
    (tmp_path / "main.cpp").write_text(block("cpp"))
    command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "main.cpp", library]
    command += [f"-I{SOURCE}/lib/include", f"-Wl,-rpath,{library.parent}", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    result = subprocess.run(
        [tmp_path / "main"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (result.returncode, result.stdout) == (0, "100\n"), result.stderr
