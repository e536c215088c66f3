"""What fusing, packing, batching and size do to a GEMM, each beside what it replaces.

    python perf/bench_features.py
    python perf/bench_features.py --sections epilogue packed --json perf/results/features-cpu.json

epilogue   bias and GELU in the kernel, against a product and a second pass over C
packed     B packed once, against B as it is; how many products pay for the packing
batch      10,000 products of 16 x 16 x 16 in one call, against one product of as many operations
growth     the time of an operation at 8192^3, against that at 2048^3

Each pair is measured in turn in one process, on the same device-resident inputs, and both results
are compared with each other. The exit status is 1 if they differ by more than rounding.
"""

import argparse
import sys

import bench_gemm
import common
import numpy as np
import tables

EPILOGUE_SHAPES = ((1024, 768, 3072), (256, 384, 1536), (64, 768, 3072))
PACKED_SHAPES = ((1, 4096, 4096), (8, 4096, 4096), (64, 768, 768), (512, 768, 768))
BATCH, SIDE = 10_000, 16
# GELU has no meaning for integers.
DTYPES = [dtype for dtype in bench_gemm.DTYPES if "float" in dtype]
GROWTH = (2048, 8192)

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


def normal(random, shape, dtype, queue, funlib):
    """A tensor of normally distributed elements."""
    return funlib.DeviceTensor.from_numpy(random.standard_normal(shape).astype(dtype), queue=queue)


def agree(first, second, k, dtype):
    """Whether two results of products over K differ by no more than rounding: their elements are
    sums of K products of order one."""
    a, b = (result.to_host().astype(np.float64) for result in (first(), second()))
    eps = 2.0**-8 if dtype == "bfloat16" else float(np.finfo(dtype).eps)
    return bool(np.all(np.abs(a - b) <= 16 * eps * max(k, 1) ** 0.5 * (1 + np.abs(b).max())))


def pair(section, what, names, functions, operations, k, dtype):
    """Measures a pair: a row for the JSON file. names: of the new way and of what it replaces."""
    verified = agree(*functions, k, dtype)
    timed = common.measure_rotated(
        {name: Call(function) for name, function in zip(names, functions, strict=True)},
        CELL_SECONDS,
    )
    samples = [timed[name][1].total_ns for name in names]
    new, old = (common.median(times) for times in samples)
    return {
        "section": section,
        "what": what,
        "dtype": dtype,
        "new": names[0],
        "old": names[1],
        "new_ms": new / 1e6,
        "old_ms": old / 1e6,
        "gain": old / new,
        "new_gflops": operations / new,
        "old_gflops": operations / old,
        "verified": verified,
        "packing_ms": None,
        "break_even": None,
        "new_ns": samples[0],
        "old_ns": samples[1],
    }


def epilogue(funlib, queue, dtype):
    """Rows of the section `epilogue`."""
    random = np.random.default_rng(1)
    for m, k, n in EPILOGUE_SHAPES:
        a, b, bias = (normal(random, s, dtype, queue, funlib) for s in ((m, k), (k, n), (n,)))
        none_a, none_b = (funlib.DeviceTensor(s, dtype, queue) for s in ((m, 0), (0, n)))

        def fused(a=a, b=b, bias=bias):
            return funlib.gemm(a, b, bias=bias, activation="gelu")

        def separate(a=a, b=b, bias=bias, none_a=none_a, none_b=none_b):
            # With K == 0, a product is its epilogue: one pass over C.
            c = funlib.gemm(a, b)
            return funlib.gemm(none_a, none_b, beta=1.0, out=c, bias=bias, activation="gelu")

        yield pair(
            "epilogue",
            f"{m}x{k}x{n} + bias, gelu",
            ("fused", "separate"),
            (fused, separate),
            2 * m * k * n,
            k,
            dtype,
        )


def packed(funlib, queue, dtype):
    """Rows of the section `packed`."""
    random = np.random.default_rng(2)
    for m, k, n in PACKED_SHAPES:
        a, b = (normal(random, s, dtype, queue, funlib) for s in ((m, k), (k, n)))
        weights = funlib.pack_weights(b)
        queue.wait()
        row = pair(
            "packed",
            f"{m}x{k}x{n}",
            ("packed", "as it is"),
            (lambda a=a, w=weights: funlib.gemm(a, w), lambda a=a, b=b: funlib.gemm(a, b)),
            2 * m * k * n,
            k,
            dtype,
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


def batch(funlib, queue, dtype):
    """The row of the section `batch`. Its gain is how much of the speed of one product is kept."""
    random = np.random.default_rng(3)
    side = round((BATCH * SIDE**3) ** (1 / 3))
    small = [normal(random, (BATCH, SIDE, SIDE), dtype, queue, funlib) for _ in range(2)]
    large = [normal(random, (side, side), dtype, queue, funlib) for _ in range(2)]
    timed = common.measure_rotated(
        {
            "batch": Call(lambda: funlib.gemm(*small)),
            "one": Call(lambda: funlib.gemm(*large)),
        },
        CELL_SECONDS,
    )
    expected = np.matmul(*(tensor.to_host().astype(np.float64) for tensor in small))
    result = funlib.gemm(*small).to_host().astype(np.float64)
    operations = [2 * BATCH * SIDE**3, 2 * side**3]
    samples = [timed[name][1].total_ns for name in ("batch", "one")]
    rates = [work / common.median(times) for work, times in zip(operations, samples, strict=True)]
    yield {
        "section": "batch",
        "what": f"{BATCH} x {SIDE}x{SIDE}x{SIDE}",
        "dtype": dtype,
        "new": "one call",
        "old": f"{side}x{side}x{side}",
        "new_ms": common.median(samples[0]) / 1e6,
        "old_ms": common.median(samples[1]) / 1e6,
        "gain": rates[0] / rates[1],
        "new_gflops": rates[0],
        "old_gflops": rates[1],
        "verified": bool(np.allclose(result, expected, rtol=1e-2, atol=0.2)),
        "packing_ms": None,
        "break_even": None,
        "new_ns": samples[0],
        "old_ns": samples[1],
    }


def growth(funlib, queue, dtype):
    """The row of the section `growth`. Its gain is the speed at the large size over the small."""
    random = np.random.default_rng(4)
    rates, times = [], []
    for side in GROWTH:
        a, b = (normal(random, (side, side), dtype, queue, funlib) for _ in range(2))
        _, samples = common.measure_rotated(
            {"gemm": Call(lambda a=a, b=b: funlib.gemm(a, b))}, CELL_SECONDS
        )["gemm"]
        times.append(samples.total_ns)
        rates.append(2 * side**3 / common.median(samples.total_ns))
    small, large = GROWTH
    yield {
        "section": "growth",
        "what": f"{large}^3",
        "dtype": dtype,
        "new": f"{large}^3",
        "old": f"{small}^3",
        "new_ms": common.median(times[1]) / 1e6,
        "old_ms": common.median(times[0]) / 1e6,
        "gain": rates[1] / rates[0],
        "new_gflops": rates[1],
        "old_gflops": rates[0],
        "verified": True,  # results of any size are the tests' affair
        "packing_ms": None,
        "break_even": None,
        "new_ns": times[1],
        "old_ns": times[0],
    }


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
