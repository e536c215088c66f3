"""How good the choice of kernels is: the chosen one against every other, on shapes drawn at random.

    python perf/dispatch.py
    python perf/dispatch.py --count 50 --seed 7 --json perf/results/dispatch-cpu.json

Shapes are M, K and N drawn evenly from 1 to --largest. On each, every kernel that can do the
product is tried once; those that take no more than TRIED times as long as the best are measured in
turn with it. The chosen kernel counts as good within GOOD of the best. The exit status is 1 if
fewer than SHARE of the choices are good or one takes more than WORST times as long as the best.
"""

import argparse
import statistics
import sys

import bench_gemm
import common
import numpy as np
import peers
import tables

TRIED = 1.5
GOOD = 1.05
SHARE = 0.9
WORST = 2.0
CELL_SECONDS = 0.5


def draw(count, largest, seed):
    """Shapes (M, K, N)."""
    random = np.random.default_rng(seed)
    return [tuple(int(x) for x in random.integers(1, largest + 1, 3)) for _ in range(count)]


def measure(funlib, queue, shape, dtype, progress):
    """The row of one shape."""
    a, b = bench_gemm.random_inputs(shape, dtype)
    device_a, device_b = (funlib.DeviceTensor.from_numpy(x, queue=queue) for x in (a, b))
    queue.wait()
    chosen = funlib.explain(device_a, device_b)
    calls, tried = {}, {}
    # The chosen one first: it bounds how slow another may be.
    names = [chosen.kernel, *(kernel.name for kernel in funlib.kernels())]
    for name in dict.fromkeys(names):
        progress.step(f"{bench_gemm.text_of(shape)} {name}")
        if not bench_gemm.supports(funlib, device_a, device_b, name):
            continue
        kernel = None if name == chosen.kernel else name
        calls[name] = peers.FunlibCall(funlib, queue, device_a, device_b, kernel)
        calls[name]()
        tried[name] = min(calls[name]()[0] for _ in range(2))
    best = min(tried.values())
    close = {name: calls[name] for name in calls if tried[name] <= TRIED * best}
    close[chosen.kernel] = calls[chosen.kernel]
    timed = common.measure_rotated(close, CELL_SECONDS)
    totals = {name: common.median(samples.total_ns) for name, (_, samples) in timed.items()}
    fastest = min(totals, key=totals.get)
    return {
        "shape": bench_gemm.text_of(shape),
        "dtype": dtype,
        "chosen": chosen.kernel,
        "source": chosen.source,
        "fastest": fastest,
        "chosen_ms": totals[chosen.kernel] / 1e6,
        "fastest_ms": totals[fastest] / 1e6,
        "behind": totals[chosen.kernel] / totals[fastest],
        "tried": len(tried),
        "measured_ms": {name: total / 1e6 for name, total in totals.items()},
    }


def summary(rows):
    """(share of good choices, the worst ratio, a sentence)."""
    good = sum(row["behind"] <= GOOD for row in rows) / len(rows)
    worst = max(row["behind"] for row in rows)
    mean = statistics.geometric_mean(row["behind"] for row in rows)
    text = (
        f"The chosen kernel is within {GOOD - 1:.0%} of the best on {good:.0%} of {len(rows)} "
        f"shapes; it takes {mean:.3f} times as long as the best in the geometric mean, "
        f"{worst:.2f} times at worst."
    )
    return good, worst, text


def main(argv=None):
    """Runs the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=50, help="number of shapes (default: 50)")
    parser.add_argument("--largest", type=int, default=2048, help="largest extent (default: 2048)")
    parser.add_argument("--seed", type=int, default=1, help="of the shapes (default: 1)")
    parser.add_argument("--dtype", default="float32", help="data type (default: float32)")
    parser.add_argument("--queue", default="default", metavar="SELECTOR", help="see bench_gemm.py")
    parser.add_argument(
        "--json", metavar="PATH", help='write the results as JSON ("-": to the screen)'
    )
    arguments = parser.parse_args(argv)
    import funlib

    try:
        bench_gemm.parse_names([arguments.dtype], bench_gemm.DTYPES, "data type")
        queue = common.select_queue(funlib, arguments.queue)
        if arguments.count < 1 or arguments.largest < 1:
            raise ValueError("--count and --largest are at least 1")
    except (ValueError, funlib.FunlibError) as error:
        print(f"dispatch: {error}", file=sys.stderr)
        return 2
    block = common.environment(funlib, queue)
    shapes = draw(arguments.count, arguments.largest, arguments.seed)
    progress = common.Progress(len(shapes) * len(funlib.kernels()))
    rows = [measure(funlib, queue, shape, arguments.dtype, progress) for shape in shapes]
    progress.close()
    good, worst, text = summary(rows)
    if arguments.json:
        common.write_results(arguments.json, "dispatch", block, rows)
    if arguments.json != "-":
        print(tables.environment_table(block), "\n")
        print(tables.table(tables.DISPATCH, rows))
        print(f"\n{text}")
    return 0 if good >= SHARE and worst <= WORST else 1


if __name__ == "__main__":
    sys.exit(main())
