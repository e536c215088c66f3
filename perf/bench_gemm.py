"""GEMM benchmark: every kernel of the registry, the dispatch and NumPy, head to head, verified.

    python perf/bench_gemm.py
    python perf/bench_gemm.py --shapes square 64x1000x64 --dtype float32 int32
    python perf/bench_gemm.py --kernels gemm gemm_tiled numpy
    python perf/bench_gemm.py --json perf/results/gemm-cpu.json

Shapes are M x K x N. The method is in docs/how_it_is_measured.md; in short: everything in one
process, on one queue, on the same device-resident inputs; each call verified against a reference;
medians. The exit status is 1 if a row isn't verified, 2 if the arguments are wrong or no device
fits.
"""

import argparse
import sys

import common
import expected
import numpy as np
import roofs
import tables
from peers import FunlibCall, Numpy, NumpyCall

DTYPES = expected.DTYPES
DISPATCH = "dispatch"  # gemm without kernel=
NUMPY = "numpy"

# What the warm-ups and repetitions of one implementation on one shape may take. Slow kernels make
# fewer (common.repetitions), so that a full run on two processors stays below five minutes.
CELL_SECONDS = 1.0


def random_inputs(shape, dtype, seed=1):
    """Random A (M x K) and B (K x N). Floats are uniform in [-1, 1); integers have their whole
    range, so that int32 wraps."""
    m, k, n = shape
    random = np.random.default_rng(seed)

    def matrix(rows, columns):
        if expected.is_integer(dtype):
            info = np.iinfo(dtype)
            return random.integers(info.min, info.max, (rows, columns), dtype, endpoint=True)
        return random.uniform(-1, 1, (rows, columns)).astype(dtype)

    return matrix(m, k), matrix(k, n)


def check(result, reference):
    """Compares with the reference, expected.gemm's: (max error, whether each element is right)."""
    wanted, _ = reference
    error = np.abs(result.astype(np.float64) - wanted.astype(np.float64))
    return float(error.max(initial=0)), expected.problem(result, *reference) is None


def text_of(shape):
    """A shape as it is written on the command line."""
    return "x".join(map(str, shape))


def supports(funlib, a, b, kernel):
    """Whether the kernel takes this product: some are for few rows, or for one type of device."""
    try:
        funlib.explain(a, b, kernel=kernel)
    except funlib.UnsupportedError:
        return False
    return True


def measure_shape(funlib, queue, shape, dtype, names, progress):
    """The rows of one shape (M, K, N) and data type, in the order of `names`.

    A kernel that doesn't take the shape has no row.
    """
    a, b = random_inputs(shape, dtype)
    reference = expected.gemm(a, b)
    device_a = funlib.DeviceTensor.from_numpy(a, queue=queue)
    device_b = funlib.DeviceTensor.from_numpy(b, queue=queue)
    queue.wait()

    calls, first, rows = {}, {}, {}
    for name in names:
        progress.step(f"{dtype} {text_of(shape)} {name}")
        if name not in (NUMPY, DISPATCH) and not supports(funlib, device_a, device_b, name):
            continue
        if name == NUMPY:
            calls[name] = NumpyCall(a, b)
        else:
            kernel = None if name == DISPATCH else name
            calls[name] = FunlibCall(funlib, queue, device_a, device_b, kernel)
        first_ns, result = calls[name].checked()
        first[name] = (first_ns, *check(result, reference))

    # NumPy is measured after the others and not among them: its threads, and a CPU device's, spin.
    ours = {name: call for name, call in calls.items() if name != NUMPY}
    timed = common.measure_rotated(ours, CELL_SECONDS)
    for name, call in ours.items():
        if not call.paired:
            samples = timed[name][1]
            samples.paired = False
            samples.kernel_ns = [call.kernel_ns() for _ in samples.total_ns]
    if NUMPY in calls:
        common.settle()
        timed |= common.measure_rotated({NUMPY: calls[NUMPY]}, CELL_SECONDS)
        common.settle()

    chosen = funlib.explain(device_a, device_b).kernel if DISPATCH in names else None
    registry = {kernel.name: kernel for kernel in funlib.kernels()}
    for name in calls:
        warmups, samples = timed[name]
        kernel = registry.get(chosen if name == DISPATCH else name)
        rows[name] = row_of(shape, dtype, name, kernel, queue.device, first[name], warmups, samples)
    baseline = rows.get("gemm")
    for row in rows.values():
        row["speedup"] = baseline["total_ms"] / row["total_ms"] if baseline else None
    return list(rows.values())


def measure(funlib, queue, block, shapes, dtypes, names):
    """All rows of a run. block: the environment block with the roofs of the data types; what the
    rows say against the run is added to its warnings."""
    progress = common.Progress(len(shapes) * len(dtypes) * len(names))
    rows = []
    for dtype in dtypes:
        able = {kernel.name for kernel in funlib.kernels() if dtype in kernel.dtypes}
        others = {DISPATCH, NUMPY} if dtype in Numpy.dtypes else {DISPATCH}
        fitting = [name for name in names if name in able | others]
        for shape in shapes:
            rows += measure_shape(funlib, queue, shape, dtype, fitting, progress)
    progress.close()
    rows = roofs.with_roofs(rows, block)
    block["warnings"] += roofs.warnings(rows, block)
    return rows


def row_of(shape, dtype, name, kernel, device, first, warmups, samples):
    """One row of results as a dict. kernel: its registry entry, None for NumPy."""
    m, k, n = shape
    operations = 2 * m * k * n
    first_ns, max_error, verified = first
    total_ns, kernel_ns = common.median(samples.total_ns), common.median(samples.kernel_ns)
    return {
        "shape": text_of(shape),
        "m": m,
        "k": k,
        "n": n,
        "dtype": dtype,
        "implementation": name,
        "label": f"{DISPATCH} ({kernel.name})" if name == DISPATCH else name,
        "kernel": kernel.name if kernel else None,
        "tile": "x".join(map(str, kernel.tile)) if kernel else None,
        "work_group": "x".join(map(str, kernel.work_group)) if kernel else None,
        "device": device.name if kernel else common.cpu_model(),
        "backend": device.backend if kernel else NUMPY,
        "driver": device.driver if kernel else np.__version__,
        "kernel_ms": None if kernel_ns is None else kernel_ns / 1e6,
        "kernel_spread": common.spread(samples.kernel_ns),
        "total_ms": total_ns / 1e6,
        "total_spread": common.spread(samples.total_ns),
        "gflops": operations / total_ns,
        "kernel_gflops": operations / kernel_ns if kernel_ns else None,
        "speedup": None,
        "max_error": max_error,
        "verified": verified,
        "plausible": samples.plausible(),
        "first_ms": first_ns / 1e6,
        "warmups": warmups,
        "repetitions": len(samples.total_ns),
        "total_ns": samples.total_ns,
        "kernel_ns": samples.kernel_ns,
    }


# ---- command line ----------------------------------------------------------------------------


def words(values):
    """The values with commas taken as separators too."""
    return [word for value in values for word in value.split(",") if word]


def parse_shapes(values):
    """[(M, K, N)] of words like "square" and "128x256x64". Raises ValueError on others."""
    from funlib import _arguments

    shapes = _arguments.parse(values)
    for batches, *shape in shapes:
        if batches > 1:
            raise ValueError(f"{batches}x{text_of(shape)}: batches are not measured")
    return [tuple(shape) for _, *shape in shapes]


def parse_names(values, known, what):
    """The words of `values`, each of which must be among `known`. Raises ValueError on others."""
    chosen = list(dict.fromkeys(words(values)))
    for word in chosen:
        if word not in known:
            raise ValueError(f"{what} {word!r} is unknown; there are {', '.join(known)}")
    return chosen


def add_measuring_options(parser, default_shapes):
    """--shapes, --dtype and --queue."""
    parser.add_argument(
        "--shapes",
        nargs="+",
        default=default_shapes,
        metavar="SHAPE",
        help="MxKxN or a group: square, rectangular, transformer, all (of these), large "
        f"(default: {' '.join(default_shapes)})",
    )
    parser.add_argument(
        "--dtype",
        nargs="+",
        default=["float32"],
        help=f"data types: {', '.join(DTYPES)} (default: float32)",
    )
    parser.add_argument(
        "--queue",
        default="default",
        metavar="SELECTOR",
        help='"default", or a device type, restricted: "cpu", "gpu,backend=cuda,vendor=nvidia"',
    )


def add_kernel_option(parser):
    """--kernels."""
    parser.add_argument(
        "--kernels",
        nargs="+",
        default=None,
        metavar="NAME",
        help=f'kernels of the registry, "{DISPATCH}" (no kernel named), "{NUMPY}" (default: all)',
    )


def parse_run(funlib, arguments):
    """(shapes, data types, implementations, queue) of the options above. Raises ValueError and
    FunlibError."""
    known = [*(kernel.name for kernel in funlib.kernels()), DISPATCH, NUMPY]
    return (
        parse_shapes(arguments.shapes),
        parse_names(arguments.dtype, DTYPES, "data type"),
        parse_names(arguments.kernels or known, known, "kernel"),
        common.select_queue(funlib, arguments.queue),
    )


def add_report_options(parser):
    """--json, --csv and --markdown."""
    for option, what in (("--json", "JSON"), ("--csv", "CSV"), ("--markdown", "Markdown")):
        parser.add_argument(
            option,
            nargs="?",
            const="-",
            metavar="PATH",
            help=f"write the results as {what}; without PATH to the screen instead of the table",
        )


def to_screen(arguments):
    """Whether a report goes to the screen, which then shows nothing else."""
    return "-" in (arguments.json, arguments.csv, arguments.markdown)


def parse_arguments(argv):
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_measuring_options(parser, default_shapes=["all"])
    add_kernel_option(parser)
    add_report_options(parser)
    return parser.parse_args(argv)


def write_reports(arguments, block, rows, columns=tables.GEMM, notes=tables.GEMM_NOTES):
    """Writes the files that were asked for, and the table unless one of them went to the screen."""
    if arguments.json:
        common.write_results(arguments.json, "gemm", block, rows)
    if arguments.csv:
        common.write_text(arguments.csv, tables.comma_separated(rows))
    if arguments.markdown:
        parts = [
            tables.environment_table(block, "github"),
            tables.table(columns, rows, "github"),
        ]
        common.write_text(arguments.markdown, "\n\n".join([*parts, notes]) + "\n")
    if not to_screen(arguments):
        for dtype in dict.fromkeys(row["dtype"] for row in rows):
            print(f"\n{dtype}\n")
            print(tables.table(columns, [row for row in rows if row["dtype"] == dtype]))


def conclude(script, arguments, rows, failed=False):
    """Says which rows are wrong, or that none is; returns the exit status of the script, which is
    not 0 either if it `failed` or there are no rows."""
    bad = [row for row in rows if not (row["verified"] and row["plausible"])]
    for row in bad:
        print(
            f"{script}: {row['dtype']} {row['shape']} {row['label']}: {tables.verdict(row)}",
            file=sys.stderr,
        )
    if not bad and not to_screen(arguments):
        print(f"\nall {len(rows)} rows verified")
    return 1 if bad or failed or not rows else 0


def main(argv=None):
    """Runs the benchmark; returns the exit status."""
    arguments = parse_arguments(argv)
    import funlib  # after the arguments, so that --help needs no device and no library

    try:
        shapes, dtypes, names, queue = parse_run(funlib, arguments)
        block = common.environment(funlib, queue)
        block["roofs"] = roofs.measure(funlib, queue, dtypes)
    except (ValueError, funlib.FunlibError) as error:
        print(f"bench_gemm: {error}", file=sys.stderr)
        return 2

    if not to_screen(arguments):
        print(tables.environment_table(block))
    rows = measure(funlib, queue, block, shapes, dtypes, names)
    write_reports(arguments, block, rows)
    return conclude("bench_gemm", arguments, rows)


if __name__ == "__main__":
    sys.exit(main())
