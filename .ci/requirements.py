"""Prints requirements of pyproject.toml: of "build", of "run", or of an extra by its name."""

import pathlib
import sys
import tomllib

root = pathlib.Path(__file__).resolve().parents[1]
content = tomllib.loads((root / "pyproject.toml").read_text())
groups = content["project"]["optional-dependencies"] | {
    "build": content["build-system"]["requires"],
    "run": content["project"]["dependencies"],
}
for group in sys.argv[1:]:
    print(*groups[group], sep="\n")
