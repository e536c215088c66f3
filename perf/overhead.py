"""Call overhead: an 8x8x8 GEMM from Python against the same submission from the C interface.

    python perf/overhead.py
    python perf/overhead.py --json perf/results/overhead-cpu.json

The C side is perf/overhead.c, compiled here by the system's C compiler (CC, else cc or gcc) against
funlib.h and the libfunlib.so that Python has loaded. Both sides take turns, on the default device.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import common
import tables

SIDE = 8
ROUNDS = 5
CALLS = 400  # a round and way of calling
WARMUPS = 50
MODES = {"new": "gemm(a, b)", "out": "gemm(a, b, out=c)"}
PROGRAM_SECONDS = 120


def build(folder, library):
    """Compiles overhead.c against `library` (path of libfunlib.so); returns the program's path.

    Raises RuntimeError if there is no compiler or it fails.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise RuntimeError("no C compiler found: install gcc, or name one in the variable CC")
    program = Path(folder) / "overhead"
    source = Path(__file__).with_suffix(".c")
    command = [compiler, "-std=c11", "-O2", f"-I{common.ROOT / 'lib' / 'include'}", str(source)]
    # What the library itself needs is found at run time (run_c).
    command += ["-Wl,--allow-shlib-undefined", str(library), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return program


def run_c(program, info, mode):
    """Samples of one round from C. info: funlib.runtime_info()."""
    folders = {str(Path(path).parent) for path in (info.library, info.sycl_library) if path}
    inherited = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    done = subprocess.run(
        [str(program), str(CALLS), str(WARMUPS), mode],
        env=os.environ | {"LD_LIBRARY_PATH": ":".join([*sorted(folders), *inherited])},
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{program.name} failed:\n{done.stderr}")
    samples = common.Samples()
    for line in done.stdout.splitlines():
        samples.add(*map(int, line.split()))
    return samples


def run_python(funlib, mode):
    """Samples of one round from Python."""
    shape = (SIDE, SIDE)
    a = funlib.DeviceTensor.full(shape, 1)
    b = funlib.DeviceTensor.full(shape, 2)
    given = funlib.DeviceTensor.full(shape, 0)
    given.wait()
    gemm, now = funlib.gemm, common.now_ns

    def new():
        start = now()
        c = gemm(a, b)
        c.wait()
        event = c.event
        del c
        return now() - start, event.times.kernel_ns

    def out():
        start = now()
        gemm(a, b, out=given).wait()
        return now() - start, given.event.times.kernel_ns

    call = {"new": new, "out": out}[mode]
    samples = common.Samples()
    for number in range(-WARMUPS, CALLS):
        total, kernel = call()
        if number >= 0:
            samples.add(total, kernel)
    return samples


def measure(funlib, progress):
    """{(mode, "C" or "Python"): Samples of all rounds}."""
    info = funlib.runtime_info()
    pooled = {(mode, caller): common.Samples() for mode in MODES for caller in ("C", "Python")}
    with tempfile.TemporaryDirectory(prefix="funlib-overhead-") as folder:
        program = build(folder, info.library)
        for number in range(ROUNDS):
            for mode in MODES:
                progress.step(f"round {number + 1}, {MODES[mode]}")
                for caller, samples in (
                    ("C", run_c(program, info, mode)),
                    ("Python", run_python(funlib, mode)),
                ):
                    pooled[mode, caller].total_ns += samples.total_ns
                    pooled[mode, caller].kernel_ns += samples.kernel_ns
    return pooled


def rows_of(pooled):
    """One row a way of calling, in microseconds."""
    rows = []
    for (mode, caller), samples in pooled.items():
        total = common.median(samples.total_ns)
        in_c = common.median(pooled[mode, "C"].total_ns)
        rows.append(
            {
                "call": MODES[mode],
                "caller": caller,
                "total_us": total / 1e3,
                "spread": common.spread(samples.total_ns),
                "kernel_us": common.median(samples.kernel_ns) / 1e3,
                "added_us": None if caller == "C" else (total - in_c) / 1e3,
                "calls": len(samples.total_ns),
                "total_ns": samples.total_ns,
                "kernel_ns": samples.kernel_ns,
            }
        )
    return rows


def main(argv=None):
    """Runs the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--json", metavar="PATH", help='write the results as JSON ("-": to the screen)'
    )
    arguments = parser.parse_args(argv)
    import funlib

    block = common.environment(funlib, funlib.get_queue())
    progress = common.Progress(ROUNDS * len(MODES))
    try:
        rows = rows_of(measure(funlib, progress))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"overhead: {error}", file=sys.stderr)
        return 1
    finally:
        progress.close()
    if arguments.json:
        common.write_results(arguments.json, "overhead", block, rows)
    if arguments.json != "-":
        print(tables.environment_table(block), "\n")
        print(tables.table(tables.OVERHEAD, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
