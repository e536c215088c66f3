"""What fusing, packing, batching and size do to a GEMM, each beside what it replaces.

    python perf/bench_features.py
    python perf/bench_features.py --sections epilogue packed --json perf/results/features-cpu.json

epilogue   bias and GELU in the kernel, against a second pass over C, and against one for each
packed     B packed once, against B as it is; how many products pay for the packing
batch      10,000 products of 16 x 16 x 16 in one call, against one product of as many operations
growth     the time of an operation at 8192^3, against that at 2048^3

Each pair is measured in turn in one process, on device-resident inputs. Both results are verified
against the reference of perf/expected.py; the exit status is 1 if one is wrong.
"""

import argparse
import sys

import bench_gemm
import common
import expected
import numpy as np
import tables

EPILOGUE_SHAPES = ((1024, 768, 3072), (256, 384, 1536), (64, 768, 3072))
PACKED_SHAPES = ((1, 4096, 4096), (8, 4096, 4096), (64, 768, 768), (512, 768, 768))
BATCH, SIDE = 10_000, 16
# Integers have no GELU; a type smaller than that of the sums would be rounded to between kernels.
DTYPES = [
    dtype
    for dtype in bench_gemm.DTYPES
    if not expected.is_integer(dtype) and expected.sums_of(dtype) == dtype
]
GROWTH = (2048, 8192)

# Multiply-adds of a reference.
CHECKED_WORK = 1 << 31

# What one implementation of a pair may take; products of seconds are measured a few times only.
CELL_SECONDS = 3.0


class Call:
    """A product as common.measure_rotated takes it. function: makes C, a DeviceTensor."""

    def __init__(self, function):
        self.function = function

    def __call__(self):
        start = common.now_ns()
        c = self.function()
        c.wait()
        event = c.event
        del c
        return common.now_ns() - start, event.times.kernel_ns


class Operands:
    """Random operands of a product, on the host and on the device. shapes: of A, of B and, if there
    is one, of the bias."""

    def __init__(self, funlib, queue, dtype, *shapes):
        random = np.random.default_rng(1)
        self.host = [random.standard_normal(shape).astype(dtype) for shape in shapes]
        self.device = [funlib.DeviceTensor.from_numpy(array, queue=queue) for array in self.host]

    def is_right(self, result, activation=None):
        """Whether a result is right, in rows from the first to the last whose reference does not
        take long."""
        a, b, *bias = self.host
        count = max(2, CHECKED_WORK // (b.shape[-2] * b.shape[-1]))
        rows = np.unique(np.linspace(0, a.shape[-2] - 1, count).astype(int))
        options = {"bias": bias[0]} if bias else {}
        wanted = expected.gemm(a[..., rows, :], b, activation=activation, **options)
        return expected.problem(result.to_host()[..., rows, :], *wanted) is None


def row_of(section, what, dtype, names, functions, operations, verified):
    """Measures two ways of multiplying in turn: a row for the JSON file. names, functions,
    operations: of the new way and of what it is held against. gain: speed over speed."""
    timed = common.measure_rotated(
        {name: Call(function) for name, function in zip(names, functions, strict=True)},
        CELL_SECONDS,
    )
    samples = [timed[name][1].total_ns for name in names]
    new, old = (common.median(times) for times in samples)
    rates = operations[0] / new, operations[1] / old
    return {
        "section": section,
        "what": what,
        "dtype": dtype,
        "new": names[0],
        "old": names[1],
        "new_ms": new / 1e6,
        "old_ms": old / 1e6,
        "gain": rates[0] / rates[1],
        "new_gflops": rates[0],
        "old_gflops": rates[1],
        "verified": verified,
        "packing_ms": None,
        "break_even": None,
        "new_ns": samples[0],
        "old_ns": samples[1],
    }


def epilogue(funlib, queue, dtype):
    """Rows of the section `epilogue`."""
    for m, k, n in EPILOGUE_SHAPES:
        operands = Operands(funlib, queue, dtype, (m, k), (k, n), (n,))
        none_a, none_b = (funlib.DeviceTensor(s, dtype, queue) for s in ((m, 0), (0, n)))

        def fused(operands=operands):
            a, b, bias = operands.device
            return funlib.gemm(a, b, bias=bias, activation="gelu")

        def separate(passes, operands=operands, none_a=none_a, none_b=none_b):
            # With K == 0, a product is its epilogue: one pass over C.
            a, b, bias = operands.device
            c = funlib.gemm(a, b)
            for options in passes(bias):
                funlib.gemm(none_a, none_b, beta=1.0, out=c, **options)
            return c

        def one_pass(separate=separate):
            return separate(lambda bias: [{"bias": bias, "activation": "gelu"}])

        def two_passes(separate=separate):
            return separate(lambda bias: [{"bias": bias}, {"activation": "gelu"}])

        for name, way in (("one more pass", one_pass), ("two more passes", two_passes)):
            yield row_of(
                "epilogue",
                f"{m}x{k}x{n} + bias, gelu",
                dtype,
                ("fused", name),
                (fused, way),
                [2 * m * k * n] * 2,
                operands.is_right(fused(), "gelu") and operands.is_right(way(), "gelu"),
            )


def packed(funlib, queue, dtype):
    """Rows of the section `packed`."""
    for m, k, n in PACKED_SHAPES:
        operands = Operands(funlib, queue, dtype, (m, k), (k, n))
        a, b = operands.device
        weights = funlib.pack_weights(b)
        ways = (lambda a=a, w=weights: funlib.gemm(a, w), lambda a=a, b=b: funlib.gemm(a, b))
        row = row_of(
            "packed",
            f"{m}x{k}x{n}",
            dtype,
            ("packed", "as it is"),
            ways,
            [2 * m * k * n] * 2,
            all(operands.is_right(way()) for way in ways),
        )

        def pack(b=b):
            start = common.now_ns()
            kept = funlib.pack_weights(b)
            queue.wait()
            del kept
            return common.now_ns() - start, None

        _, samples = common.measure_rotated({"pack": pack}, CELL_SECONDS)["pack"]
        row["packing_ms"] = common.median(samples.total_ns) / 1e6
        saved = row["old_ms"] - row["new_ms"]
        row["break_even"] = row["packing_ms"] / saved if saved > 0 else None
        yield row


def sizes(funlib, queue, dtype, section, what, names, shapes):
    """The row of two products of different size. shapes: (batches, M, K, N), the new way first."""
    operands = [
        Operands(funlib, queue, dtype, (batches, m, k), (batches, k, n))
        for batches, m, k, n in shapes
    ]
    ways = [lambda each=each: funlib.gemm(*each.device) for each in operands]
    work = [2 * batches * m * k * n for batches, m, k, n in shapes]
    verified = all(each.is_right(way()) for each, way in zip(operands, ways, strict=True))
    return row_of(section, what, dtype, names, ways, work, verified)


def batch(funlib, queue, dtype):
    """The row of the section `batch`. Its gain is how much of the speed of one product is kept."""
    side = round((BATCH * SIDE**3) ** (1 / 3))
    one = f"{side}x{side}x{side}"
    shapes = ((BATCH, SIDE, SIDE, SIDE), (1, side, side, side))
    what = f"{BATCH} x {SIDE}x{SIDE}x{SIDE}"
    yield sizes(funlib, queue, dtype, "batch", what, ("one call", one), shapes)


def growth(funlib, queue, dtype):
    """The row of the section `growth`. Its gain is the speed at the large size over the small."""
    small, large = GROWTH
    shapes = ((1, large, large, large), (1, small, small, small))
    names = (f"{large}^3", f"{small}^3")
    yield sizes(funlib, queue, dtype, "growth", names[0], names, shapes)


SECTIONS = {"epilogue": epilogue, "packed": packed, "batch": batch, "growth": growth}


def main(argv=None):
    """Runs the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sections", nargs="+", default=list(SECTIONS), choices=list(SECTIONS))
    parser.add_argument("--dtype", default="float32", help="data type (default: float32)")
    parser.add_argument("--queue", default="default", metavar="SELECTOR", help="see bench_gemm.py")
    parser.add_argument(
        "--json", metavar="PATH", help='write the results as JSON ("-": to the screen)'
    )
    arguments = parser.parse_args(argv)
    import funlib

    try:
        bench_gemm.parse_names([arguments.dtype], DTYPES, "data type")
        queue = common.select_queue(funlib, arguments.queue)
    except (ValueError, funlib.FunlibError) as error:
        print(f"bench_features: {error}", file=sys.stderr)
        return 2
    block = common.environment(funlib, queue)
    progress = common.Progress(len(arguments.sections))
    rows = []
    for name in arguments.sections:
        progress.step(name)
        rows += SECTIONS[name](funlib, queue, arguments.dtype)
    progress.close()
    if arguments.json:
        common.write_results(arguments.json, "features", block, rows)
    if arguments.json != "-":
        print(tables.environment_table(block), "\n")
        print(tables.table(tables.FEATURES, rows))
    return 0 if all(row["verified"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
