"""Finds the SYCL runtime that the wheels bring, and loads it before the extension modules need it.

The wheels put their shared objects into `lib` of the environment, which no search path of the
dynamic linker names in general. Run as a program, this file prints that folder and the folder with
the headers: the build asks it.
"""

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

SYCL_LIBRARY = "libsycl.so.9"
OPENCL_LIBRARY = "libintelocl.so"
# The wheels that funlib asks for, each with a library that tells whether it is there.
WHEELS = {"intel-sycl-rt": SYCL_LIBRARY, "intel-opencl-rt": OPENCL_LIBRARY}
VERSION = "2026.2.*"


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
    # Imported where it is needed: it takes 50 ms.
    import importlib.metadata

    for distribution in WHEELS:
        try:
            files = importlib.metadata.files(distribution) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == name and os.path.exists(file.locate()):
                return Path(os.path.realpath(file.locate()))
    return None


def install_command() -> str:
    """What to type to get the parts of the SYCL runtime that are missing where funlib finds them;
    if none is, to get them anew."""
    import importlib.metadata

    missing = {name for name, library in WHEELS.items() if find(library) is None}
    options = "" if missing else "--force-reinstall "
    for name in missing:
        try:
            folder = Path(str(importlib.metadata.distribution(name).locate_file("")))
        except importlib.metadata.PackageNotFoundError:
            continue
        # The wheel is there, but not its libraries.
        if folder.name in ("site-packages", "dist-packages"):
            options = "--force-reinstall "
        else:
            # pip install --target leaves `lib` out; with --prefix it comes where it should be.
            options = f"--ignore-installed --prefix {folder} "
    wheels = " ".join(f"'{name}=={VERSION}'" for name in sorted(missing or WHEELS))
    return f"{sys.executable} -m pip install {options}{wheels}"


def missing_message() -> str:
    """What to tell a user whose environment lacks the SYCL runtime."""
    return (
        f"funlib needs the SYCL runtime: {SYCL_LIBRARY} was found neither beside funlib "
        f"({Path(__file__).parent}) nor in the environment {sys.prefix}. Type\n"
        f"    {install_command()}"
    )


def check_built() -> None:
    """Raises ImportError in a folder of sources without extension modules: a checkout that hides
    the installed package, since Python searches the working directory first."""
    if importlib.util.find_spec("funlib._native") is None:
        folder = Path(__file__).parent
        raise ImportError(
            f"{folder} holds funlib's sources, not a built package. Run Python from another "
            "folder, or type\n"
            f"    {sys.executable} -m pip install {folder.parent}"
        )


def preload() -> None:
    """Loads the SYCL library by its absolute path, and libfunlib.so where it lies in the package:
    one in LD_LIBRARY_PATH would come first. The extension modules then find them loaded. Raises
    ImportError, with the command that installs it, if the SYCL library is missing."""
    path = find(SYCL_LIBRARY)
    if path is None:
        raise ImportError(missing_message())
    own = Path(__file__).resolve().parent / "libfunlib.so"
    try:
        ctypes.CDLL(str(path))
        if own.exists():
            ctypes.CDLL(str(own))
    except OSError as error:
        raise ImportError(
            f"funlib could not load the SYCL runtime: {error}. Type\n    {install_command()}"
        ) from error


def print_places() -> None:
    library = find(SYCL_LIBRARY)
    if library is None:
        sys.exit(missing_message())
    print(library.parent)
    print(library.parents[1] / "include")


if __name__ == "__main__":
    print_places()
