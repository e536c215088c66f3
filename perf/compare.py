"""funlib beside its peers: NumPy, PyTorch and dpnp, shape by shape in one run, verified.

    python perf/compare.py
    python perf/compare.py --shapes square 64x1000x64 --dtype float32 int32 --peers numpy torch
    python perf/compare.py --peer-python dpnp=other/bin/python
    python perf/compare.py --json perf/results/compare-cpu.json
    python perf/compare.py --queue gpu --dtype float32 tf32 bfloat16
    python perf/compare.py --transposed

Shapes are M x K x N; with --transposed, B is stored as N x K, as weights often are. Peers are
those that compute where the queue does (the CPU for a CPU device) and are installed, or the ones
named. A peer of another environment is measured in a process under that environment's interpreter,
beside the others in the same run. The method is in docs/how_it_is_measured.md. The exit status is
1 if a row isn't verified or a peer failed, 2 if the arguments are wrong, no device fits or a peer
that was named can't be used.
"""

import argparse
import statistics
import sys
from contextlib import ExitStack, closing

import bench_gemm
import common
import expected
import numpy as np
import peer_process
import peers
import tables

FUNLIB = "funlib"

# Behind the shape of products whose B is stored as N x K.
TRANSPOSED = " nt"

# What one implementation on one shape may take for its warm-ups and repetitions.
CELL_SECONDS = 2.0

# Geometric means are given apart for products of at least so many multiply-adds and for smaller
# ones, which the cost of a call governs.
LARGE = 256**3


class Funlib(peers.Peer):
    """The library itself: gemm's own choice of kernel, on the queue."""

    name = FUNLIB

    def __init__(self, funlib, queue):
        super().__init__(peers.place_of(queue.device))
        self.funlib, self.queue = funlib, queue
        self.dtypes = {dtype for kernel in funlib.kernels() for dtype in kernel.dtypes}
        self.dtypes.add(peers.TF32)

    def prepare(self, a, b, precision=None):
        device_a = self.funlib.DeviceTensor.from_numpy(a, queue=self.queue)
        device_b = peers.stored(
            b, lambda array: self.funlib.DeviceTensor.from_numpy(array, queue=self.queue)
        )
        self.queue.wait()
        return peers.FunlibCall(self.funlib, self.queue, device_a, device_b, None, precision)

    def kernel(self, call):
        """The registry's entry of the kernel that a call uses."""
        name = self.funlib.explain(call.a, call.b, precision=call.wish["precision"]).kernel
        return next(kernel for kernel in self.funlib.kernels() if kernel.name == name)


# ---- measuring -------------------------------------------------------------------------------


def measure_shape(ours, others, shape, transposed, dtype, progress):
    """The rows of one shape (M, K, N) and data type: funlib (`ours`, a Funlib) and then the peers
    that can do the type. transposed: B is stored as N x K. Raises peer_process.PeerError if the
    process of a peer fails."""
    precision = "tf32" if dtype == peers.TF32 else None
    a, b = bench_gemm.random_inputs(shape, "float32" if precision else dtype)
    if transposed:
        b = np.ascontiguousarray(b.T).T
    reference = expected.gemm(a, b, precision=precision)
    calls, first = {}, {}
    for peer in (ours, *others):
        progress.step(f"{dtype} {bench_gemm.text_of(shape)} {peer.name}")
        if dtype in peer.dtypes:
            calls[peer.name] = peer.prepare(a, b, precision)
            first_ns, result = calls[peer.name].checked()
            first[peer.name] = (first_ns, *bench_gemm.check(result, reference))
    timed = common.measure_in_blocks(calls, CELL_SECONDS)

    rows = []
    for name, call in calls.items():
        kernel = ours.kernel(call) if name == FUNLIB else None
        warmups, samples = timed[name]
        row = bench_gemm.row_of(
            shape, dtype, name, kernel, ours.queue.device, first[name], warmups, samples
        )
        del row["speedup"]  # over a kernel that isn't measured here
        row["settled"] = call.settled
        if transposed:
            row["shape"] += TRANSPOSED
        if name == FUNLIB:
            row["label"] = f"{FUNLIB} ({kernel.name})"
        else:
            row["backend"] = row["driver"] = None  # the environment block describes peers
        rows.append(row)
    return with_ratios(rows)


def with_ratios(rows):
    """The rows of one shape and data type with "ratio": how many times as long as funlib each takes
    from call to result (1.0 for funlib), above 1 where funlib is faster."""
    ours = next(row for row in rows if row["implementation"] == FUNLIB)
    return [row | {"ratio": row["total_ms"] / ours["total_ms"]} for row in rows]


# ---- what is made of the rows ----------------------------------------------------------------


def by_shape(rows):
    """{shape: {implementation: row}} of rows of one data type."""
    shapes = {}
    for row in rows:
        shapes.setdefault(row["shape"], {})[row["implementation"]] = row
    return shapes


def fastest(measured):
    """Name of the fastest peer of a shape, None where no peer was measured. measured:
    {implementation: row}."""
    others = {name: row for name, row in measured.items() if name != FUNLIB}
    return min(others, key=lambda name: others[name]["total_ms"], default=None)


def ratios(measured, names):
    """funlib against each of the named peers of a shape, then against the fastest: numbers, None
    where a peer was not measured."""
    found = [measured[name]["ratio"] if name in measured else None for name in names]
    best = fastest(measured)
    return [*found, measured[best]["ratio"] if best else None]


def geometric_means(shapes, names):
    """[(which shapes, their number, ratios)] of all shapes of `by_shape`, of the large and of the
    small ones; a ratio is the geometric mean over the shapes that have it."""
    work = {
        shape: row["m"] * row["k"] * row["n"]
        for shape, measured in shapes.items()
        for row in [measured[FUNLIB]]
    }
    groups = {
        "all": list(work),
        "from 256^3 multiply-adds": [shape for shape in work if work[shape] >= LARGE],
        "below": [shape for shape in work if work[shape] < LARGE],
    }
    means = []
    for text, members in groups.items():
        columns = zip(*(ratios(shapes[shape], names) for shape in members), strict=True)
        found = [[ratio for ratio in column if ratio is not None] for column in columns]
        if members:
            means.append(
                (text, len(members), [statistics.geometric_mean(c) if c else None for c in found])
            )
    return means


def summary(rows, style="simple"):
    """A table of the rows of one data type, a line a shape: GFLOP/s, and funlib against each peer;
    geometric means of that at the end."""
    names = list(dict.fromkeys(row["implementation"] for row in rows))
    others = names[1:]
    shapes = by_shape(rows)

    def times(values):
        return ["-" if value is None else f"{value:.2f}x" for value in values]

    lines = []
    for shape, measured in shapes.items():
        rates = [
            tables.fixed(measured[name]["gflops"] if name in measured else None, 1)
            for name in names
        ]
        lines.append([shape, *rates, *times(ratios(measured, others)), fastest(measured) or "-"])
    for text, count, means in geometric_means(shapes, others):
        empty = [""] * len(names)
        lines.append([f"geometric mean, {text} ({count})", *empty, *times(means), ""])
    rates = [f"{name} GFLOP/s" for name in names]
    against = [f"vs {name}" for name in (*others, "fastest")]
    return tables.plain(["M x K x N", *rates, *against, "fastest"], lines, style)


def sections(rows, style="simple"):
    """[(data type, summary, table of all rows)]."""
    found = []
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        those = [row for row in rows if row["dtype"] == dtype]
        found.append((dtype, summary(those, style), tables.table(tables.COMPARE, those, style)))
    return found


def page(rows):
    """The rows as parts of a Markdown page."""
    parts = []
    for dtype, short, full in sections(rows, "github"):
        parts += [f"## {dtype}", short, full]
    return [*parts, tables.COMPARE_NOTES]


# ---- command line ----------------------------------------------------------------------------


def parse_pythons(values):
    """{peer: interpreter} of words NAME=PATH. Raises ValueError on others."""
    pythons = {}
    for word in values:
        name, _, python = word.partition("=")
        if name not in peers.PEERS or not python:
            known = ", ".join(peers.PEERS)
            raise ValueError(f"--peer-python {word!r}: should be NAME=PATH, NAME one of {known}")
        pythons[name] = python
    return pythons


def parse_arguments(argv):
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    bench_gemm.add_measuring_options(parser, default_shapes=["all", "large"])
    parser.add_argument(
        "--peers",
        nargs="+",
        metavar="NAME",
        help=f"of {', '.join(peers.PEERS)} (default: those that can be used)",
    )
    parser.add_argument(
        "--peer-python",
        nargs="+",
        default=[],
        metavar="NAME=PATH",
        help="measure a peer in a process under the interpreter PATH",
    )
    parser.add_argument("--transposed", action="store_true", help="B is stored as N x K")
    bench_gemm.add_report_options(parser)
    return parser.parse_args(argv)


def open_peers(place, names, pythons, stack):
    """The peers that can be used at a place, ready. names: peers that are wanted, None for all;
    pythons: {peer: interpreter}; stack: an ExitStack that closes them. Raises ValueError if one of
    `names` can't be used; without names, says so on standard error."""
    opened = []
    for name in names or peers.PEERS:
        peer = peers.PEERS[name]
        if place not in peer.places:
            reason = f"computes on {', '.join(peer.places)}, and the queue's device is {place}"
        else:
            here = name not in pythons
            made = peer(place) if here else peer_process.RemotePeer(peer, place, pythons[name])
            stack.enter_context(closing(made))
            reason = made.missing()
        if reason is None:
            opened.append(made)
        elif names:
            raise ValueError(f"{name} can't be used: {reason}")
        else:
            print(f"compare: without {name}: {reason}", file=sys.stderr)
    return opened


def write_reports(arguments, block, rows):
    """Writes the files that were asked for, and the tables unless one of them is on the screen."""
    if arguments.json:
        common.write_results(arguments.json, "compare", block, rows)
    if arguments.csv:
        common.write_text(arguments.csv, tables.comma_separated(rows))
    if arguments.markdown:
        parts = [tables.environment_table(block, "github"), *page(rows)]
        common.write_text(arguments.markdown, "\n\n".join(parts) + "\n")
    if not bench_gemm.to_screen(arguments):
        for dtype, short, full in sections(rows):
            print(f"\n{dtype}\n\n{full}\n\n{short}")


def disturbances(rows, others):
    """Warnings for the environment block, of what disturbed the run. others: processors that other
    programs used on average."""
    spinning = dict.fromkeys(row["implementation"] for row in rows if not row["settled"])
    warnings = [f"threads of {name} went on spinning, beside the next one" for name in spinning]
    if others > common.OTHERS_LIMIT * common.usable_cpus():
        warnings.append(f"other programs used {others:.2f} processors during the run")
    return warnings


def main(argv=None):
    """Runs the comparison; returns the exit status."""
    arguments = parse_arguments(argv)
    import funlib  # after the arguments, so that --help needs no device and no library

    other_programs = common.OtherPrograms()
    with ExitStack() as stack:
        try:
            shapes = bench_gemm.parse_shapes(arguments.shapes)
            dtypes = bench_gemm.parse_names(
                arguments.dtype, [*bench_gemm.DTYPES, peers.TF32], "data type"
            )
            names = bench_gemm.parse_names(arguments.peers or [], list(peers.PEERS), "peer")
            pythons = parse_pythons(arguments.peer_python)
            queue = common.select_queue(funlib, arguments.queue)
            ours = Funlib(funlib, queue)
            others = open_peers(ours.place, names, pythons, stack)
            if not others:
                raise ValueError(f"no peer can be used on {ours.place}")
        except (ValueError, funlib.FunlibError) as error:
            print(f"compare: {error}", file=sys.stderr)
            return 2

        block = common.environment(funlib, queue)
        block["peers"] = {peer.name: peer.describe() for peer in others}
        if not bench_gemm.to_screen(arguments):
            print(tables.environment_table(block))
        progress = common.Progress(len(shapes) * len(dtypes) * (1 + len(others)))
        rows, failed = [], False
        try:
            for dtype in dtypes:
                for shape in shapes:
                    rows += measure_shape(
                        ours, others, shape, arguments.transposed, dtype, progress
                    )
        except peer_process.PeerError as error:
            print(f"compare: {error}", file=sys.stderr)
            failed = True
        finally:
            progress.close()

    warnings = disturbances(rows, other_programs.processors())
    block["warnings"] += warnings
    write_reports(arguments, block, rows)
    for text in warnings:
        print(f"compare: WARNING: {text}", file=sys.stderr)
    return bench_gemm.conclude("compare", arguments, rows, failed)


if __name__ == "__main__":
    sys.exit(main())
