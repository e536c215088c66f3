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
from typing import NamedTuple

import common
import numpy as np
import tables

# M = N = K of the products that compare the times: long beside the launch, which an event holds and
# the profiler does not. And M of short ones, which show that.
SIDE = 4096
FEW_ROWS = (1, 8)
WARMUPS = 11
LAUNCHES = WARMUPS + 20
METRIC = "gpu__time_duration.sum"
PROFILER_SECONDS = 300


class Product(NamedTuple):
    """One product, by the kernel named, or by dispatch."""

    kernel: str
    named: bool
    dtype: str
    a: object
    b: object

    def run(self, funlib, queue, out=None):
        """The product on the device, into `out`."""
        kernel = self.kernel if self.named else None
        return funlib.gemm(self.a, self.b, kernel=kernel, out=out, queue=queue)


def operand(funlib, queue, rows, dtype):
    """rows x SIDE random numbers."""
    values = np.random.default_rng(0).uniform(-9, 9, (rows, SIDE))
    a = funlib.DeviceTensor((rows, SIDE), dtype, queue=queue)
    a.copy_from(values.astype(a.dtype)).wait()
    return a


def cases(funlib, queue):
    """The products: of the registry's kernels that do a square one in one launch, each in the first
    data type that it takes, and those of few rows that dispatch does so."""
    squares, found = {}, {}
    for kernel in funlib.kernels():
        for dtype in kernel.dtypes:
            if dtype not in squares:
                squares[dtype] = operand(funlib, queue, SIDE, dtype)
            a = squares[dtype]
            with contextlib.suppress(funlib.UnsupportedError):
                if funlib.explain(a, a, kernel=kernel.name, queue=queue).slices == 1:
                    found.setdefault(kernel.name, Product(kernel.name, True, dtype, a, a))
    products = list(found.values())
    for rows in FEW_ROWS:
        a, b = operand(funlib, queue, rows, "float32"), squares["float32"]
        choice = funlib.explain(a, b, queue=queue)
        if choice.slices == 1:
            products.append(Product(choice.kernel, False, "float32", a, b))
    return products


def event_times(funlib, queue, products):
    """[[nanoseconds]] of the launches of each product after the warm-ups."""
    times = []
    for product in products:
        out, events = None, []
        for _ in range(LAUNCHES):
            out = product.run(funlib, queue, out)
            events.append(out.event)
        times.append([event.times.kernel_ns for event in events[WARMUPS:]])
    return times


def profiler_times(text, products):
    """[[nanoseconds]] from the CSV of ncu, after the warm-ups. Raises ValueError where launches are
    missing."""
    start = text.find('"ID"')
    kernels, launches = {product.kernel for product in products}, []
    for row in csv.DictReader(text[start:].splitlines() if start >= 0 else ()):
        kernel = row["Kernel Name"].removeprefix("__sycl_kernel_")
        if row["Metric Name"] == METRIC and row["Metric Unit"] == "ns" and kernel in kernels:
            launches.append((kernel, float(row["Metric Value"].replace(",", ""))))
    times = []
    for kernel in (product.kernel for product in products):
        own = [nanoseconds for name, nanoseconds in launches[:LAUNCHES] if name == kernel]
        if len(own) != LAUNCHES:
            raise ValueError(f"the profiler saw {len(own)} launches of {kernel}, not {LAUNCHES}")
        times.append(own[WARMUPS:])
        del launches[:LAUNCHES]
    return times


def run_profiler(ncu, selector, products):
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
        return profiler_times(text, products)


def rows_of(products, events, profiled):
    """A row a product, in microseconds."""
    rows = []
    for product, event_ns, profiler_ns in zip(products, events, profiled, strict=True):
        event, profiler = common.median(event_ns), common.median(profiler_ns)
        name = product.kernel if product.named else f"dispatch ({product.kernel})"
        rows.append(
            {
                "implementation": name,
                "dtype": product.dtype,
                "shape": f"{product.a.shape[0]}x{SIDE}x{SIDE}",
                "event_us": event / 1e3,
                "profiler_us": profiler / 1e3,
                "difference": event / profiler - 1,
                "event_ns": event_ns,
                "profiler_ns": profiler_ns,
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
