"""Finds the SYCL runtime that the wheels bring, and loads it before the extension modules need it.

The wheels put their shared objects into `lib` of the environment, which no search path of the
dynamic linker names in general. Run as a program, this file prints that folder and the folder with
the headers: the build asks it.
"""

import ctypes
import importlib.metadata
import os
import sys
from pathlib import Path

SYCL_LIBRARY = "libsycl.so.9"
REQUIREMENTS = ("intel-sycl-rt==2026.2.*", "intel-opencl-rt==2026.2.*")
INSTALL_COMMAND = f"{sys.executable} -m pip install " + " ".join(
    f"'{requirement}'" for requirement in REQUIREMENTS
)


def find(name: str) -> Path | None:
    """Path of a shared object of the wheels, None if it is in no place that they use."""
    package = Path(__file__).resolve().parent
    for folder in (
        package.parents[2],  # <prefix>/lib/pythonX.Y/site-packages/funlib
        package.parent / "lib",  # pip install --target
        Path(sys.prefix, "lib"),
    ):
        if (folder / name).exists():
            return folder / name
    for distribution in ("intel-sycl-rt", "intel-opencl-rt"):
        try:
            files = importlib.metadata.files(distribution) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == name and os.path.exists(file.locate()):
                return Path(os.path.realpath(file.locate()))
    return None


def missing_message() -> str:
    """What to tell a user whose environment lacks the SYCL runtime."""
    return (
        f"funlib needs the SYCL runtime: {SYCL_LIBRARY} was not found in the environment "
        f"{sys.prefix}. Install it with\n    {INSTALL_COMMAND}"
    )


def check_built() -> None:
    """Raises ImportError in a folder of sources without extension modules: a checkout that hides
    the installed package, since Python searches the working directory first."""
    folder = Path(__file__).parent
    if not any(folder.glob("_native.*so")):
        raise ImportError(
            f"{folder} holds funlib's sources, not a built package. Run Python from another "
            "folder, or type\n"
            f"    {sys.executable} -m pip install {folder.parent}"
        )


def preload() -> None:
    """Loads the SYCL library by its absolute path; the extension modules then find it loaded.
    Raises ImportError, with the command that installs it, if it is missing."""
    path = find(SYCL_LIBRARY)
    if path is None:
        raise ImportError(missing_message())
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(
            f"funlib could not load the SYCL runtime: {error}. Install it again with\n"
            f"    {INSTALL_COMMAND}"
        ) from error


def print_places() -> None:
    library = find(SYCL_LIBRARY)
    if library is None:
        sys.exit(missing_message())
    print(library.parent)
    print(library.parents[1] / "include")


if __name__ == "__main__":
    print_places()
