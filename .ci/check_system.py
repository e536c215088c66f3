"""Says what the system lacks for building funlib, and what to type; then exits with status 1."""

import importlib.util
import os
import shutil
import sys
import sysconfig

if sys.version_info < (3, 11):  # noqa: UP036 (this is where an older one is told)
    sys.exit(f"Python 3.11 or newer is needed; {sys.executable} is {sys.version.split()[0]}")

missing = []
if importlib.util.find_spec("ensurepip") is None:
    missing.append(("python3-venv", "Python's ensurepip, which makes virtual environments"))
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    missing.append(("python3-dev", "Python.h, the headers of Python"))
if shutil.which("g++") is None:
    missing.append(("g++", "g++, a C++17 compiler"))
if missing:
    for _, what in missing:
        print(f"missing: {what}", file=sys.stderr)
    packages = " ".join(package for package, _ in missing)
    sudo = "" if os.geteuid() == 0 else "sudo "
    sys.exit(f"On Debian and Ubuntu, type\n    {sudo}apt-get install {packages}")
