"""Kernel times from events beside those of NVIDIA's profiler, Nsight Compute.

    python perf/profiler.py --queue gpu --json perf/results/profiler-h200.json

The same launches are made twice, here and in a process that `ncu` (in PATH, or --ncu) watches. They
follow each other without waiting, so that an event starts when the kernel before it has ended. The
profiler leaves clocks and caches as they are.
"""

import argparse
import contextlib
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import common
import numpy as np
import tables

# M = N = K: long beside the launch, which an event holds and the profiler does not.
SIDE = 2048
WARMUPS = 11
LAUNCHES = WARMUPS + 20
METRIC = "gpu__time_duration.sum"
PROFILER_SECONDS = 300


def operand(funlib, queue, dtype):
    """A square matrix of random numbers."""
    values = np.random.default_rng(0).uniform(-9, 9, (SIDE, SIDE))
    a = funlib.DeviceTensor((SIDE, SIDE), dtype, queue=queue)
    a.copy_from(values.astype(a.dtype)).wait()
    return a


def cases(funlib, queue):
    """{kernel: (data type, operand)}: the registry's kernels that do the product in one launch,
    each in the first data type that it takes."""
    operands, found = {}, {}
    for kernel in funlib.kernels():
        for dtype in kernel.dtypes:
            if dtype not in operands:
                operands[dtype] = operand(funlib, queue, dtype)
            a = operands[dtype]
            with contextlib.suppress(funlib.UnsupportedError):
                if funlib.explain(a, a, kernel=kernel.name, queue=queue).slices == 1:
                    found.setdefault(kernel.name, (dtype, a))
    return found


def event_times(funlib, queue, products):
    """{kernel: [nanoseconds]} of the launches of each of the `cases` after the warm-ups."""
    times = {}
    for kernel, (_, a) in products.items():
        out, events = None, []
        for _ in range(LAUNCHES):
            out = funlib.gemm(a, a, kernel=kernel, out=out, queue=queue)
            events.append(out.event)
        times[kernel] = [event.times.kernel_ns for event in events[WARMUPS:]]
    return times


def profiler_times(text, kernels):
    """{kernel: [nanoseconds]} from the CSV of ncu, after the warm-ups. Raises ValueError where
    launches are missing."""
    start = text.find('"ID"')
    times = {}
    for row in csv.DictReader(text[start:].splitlines() if start >= 0 else ()):
        if row["Metric Name"] == METRIC and row["Metric Unit"] == "ns":
            kernel = row["Kernel Name"].removeprefix("__sycl_kernel_")
            times.setdefault(kernel, []).append(float(row["Metric Value"].replace(",", "")))
    for kernel in kernels:
        if len(times.get(kernel, ())) != LAUNCHES:
            found = len(times.get(kernel, ()))
            raise ValueError(f"the profiler saw {found} launches of {kernel}, not {LAUNCHES}")
    return {kernel: times[kernel][WARMUPS:] for kernel in kernels}


def run_profiler(ncu, selector, kernels):
    """profiler_times of this script's launches. Raises RuntimeError if the profiler fails."""
    with tempfile.TemporaryDirectory(prefix="funlib-profiler-") as folder:
        log = Path(folder) / "log.csv"
        command = [ncu, "--clock-control", "none", "--cache-control", "none", "--metrics", METRIC]
        command += ["--csv", "--log-file", str(log), sys.executable, __file__, "--launch"]
        done = subprocess.run(
            [*command, "--queue", selector],
            capture_output=True,
            text=True,
            timeout=PROFILER_SECONDS,
            check=False,
        )
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        if done.returncode != 0:
            raise RuntimeError(f"{ncu} failed:\n{done.stdout}{done.stderr}{text}")
        return profiler_times(text, kernels)


def rows_of(products, events, profiled):
    """A row a kernel, in microseconds."""
    rows = []
    for kernel, (dtype, _) in products.items():
        event, profiler = (common.median(times[kernel]) for times in (events, profiled))
        rows.append(
            {
                "implementation": kernel,
                "dtype": dtype,
                "shape": f"{SIDE}x{SIDE}x{SIDE}",
                "event_us": event / 1e3,
                "profiler_us": profiler / 1e3,
                "difference": event / profiler - 1,
                "event_ns": events[kernel],
                "profiler_ns": profiled[kernel],
            }
        )
    return rows


def main(argv=None):
    """Runs the comparison; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queue", default="gpu", metavar="SELECTOR", help="see bench_gemm.py")
    parser.add_argument("--ncu", default="ncu", help="the profiler (default: ncu)")
    parser.add_argument("--launch", action="store_true", help="only launch, for the profiler")
    parser.add_argument(
        "--json", metavar="PATH", help='write the results as JSON ("-": to the screen)'
    )
    arguments = parser.parse_args(argv)
    import funlib

    queue = common.select_queue(funlib, arguments.queue)
    products = cases(funlib, queue)
    events = event_times(funlib, queue, products)
    if arguments.launch:
        return 0
    block = common.environment(funlib, queue)
    try:
        profiled = run_profiler(arguments.ncu, arguments.queue, products)
        rows = rows_of(products, events, profiled)
    except (OSError, RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"profiler: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        common.write_results(arguments.json, "profiler", block, rows)
    if arguments.json != "-":
        print(tables.environment_table(block), "\n")
        print(tables.table(tables.PROFILER, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
