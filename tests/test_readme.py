"""The examples in the README run as they stand there."""

import pathlib
import re
import shutil
import subprocess

import pytest
from helpers import SOURCE

import funlib


def blocks(language):
    """The README's blocks of code in a language."""
    return re.findall(rf"```{language}\n(.*?)```", (SOURCE / "README.md").read_text(), re.DOTALL)


def test_python_examples(run_python):
    """The first stands alone; the others go on from it."""
    first, *others = blocks("python")
    assert len(first.splitlines()) <= 12
    result = run_python("".join([first, *others]))
    assert result.returncode == 0, result.stderr
    assert "DeviceTensor(shape=(300, 100)" in result.stdout
    assert "GemmChoice(kernel=" in result.stdout


def test_cpp_example(tmp_path):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    library = pathlib.Path(funlib.runtime_info().library)
    (tmp_path / "main.cpp").write_text(blocks("cpp")[0])
    command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "main.cpp", library]
    command += [f"-I{SOURCE}/lib/include", f"-Wl,-rpath,{library.parent}", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    result = subprocess.run(
        [tmp_path / "main"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (result.returncode, result.stdout) == (0, "100\n"), result.stderr
