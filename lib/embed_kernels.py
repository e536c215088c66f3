"""Writes a C++ file that holds the given kernel sources as string literals.

Usage: embed_kernels.py OUTPUT SOURCE...
"""

import pathlib
import sys


def main():
    output, *sources = map(pathlib.Path, sys.argv[1:])
    rows = [
        f'    {{"{source.name}", R"__funlib__({source.read_text(encoding="utf-8")})__funlib__"}},\n'
        for source in sources
    ]
    output.write_text(
        '#include "program/sources.hpp"\n\n'
        "namespace funlib {\n\n"
        "const EmbeddedSource embedded_sources[] = {\n" + "".join(rows) + "};\n"
        f"const int embedded_source_count = {len(sources)};\n\n"
        "}  // namespace funlib\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
