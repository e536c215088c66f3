"""Roofline chart of a device: its two roofs, and every GEMM kernel below them.

    python perf/roofline.py
    python perf/roofline.py --shapes square 1x4096x4096 --kernels gemm gemm_tiled dispatch
    python perf/roofline.py --results perf/results/gemm-cpu.json
    python perf/roofline.py --picture build/roofline --json build/roofline.json

Measures as bench_gemm.py does, or takes the results of a run of it. Writes PICTURE-DTYPE.png and
PICTURE-DTYPE.svg for each data type. The horizontal axis is arithmetic intensity, operations for
each byte that a product has to move; the sloped roof is the copy bandwidth, the flat one the
multiply-add peak. The exit status is 1 if a row isn't verified, 2 if the arguments are wrong, the
results have no roofs or no device fits.
"""

import argparse
import math
import sys
from pathlib import Path

import bench_gemm
import common
import roofs
import tables

# One marker an implementation; the dispatch has one of its own.
MARKERS = "osD^v<>pPXhH8d*"
DISPATCH_COLOUR = "#d62728"
LABEL_GAP = 0.024  # between the shapes named at the top, as a fraction of the width


def spaced(positions, gap):
    """The sorted positions (0 to 1) moved apart to at least `gap`, or as far as there is room."""
    gap = min(gap, 1 / max(len(positions) - 1, 1))
    moved = []
    for position in positions:
        moved.append(max(position, moved[-1] + gap) if moved else position)
    for i in range(len(moved) - 1, -1, -1):
        limit = 1 if i == len(moved) - 1 else moved[i + 1] - gap
        moved[i] = min(moved[i], limit)
    return moved


def draw(rows, block, dtype, paths):
    """Writes the chart of one data type to each of the paths, whose suffixes say the format.

    rows: those of a GEMM run (roofs.with_roofs), block: its environment block.
    """
    import matplotlib  # where it is needed: most of this file does without

    matplotlib.use("Agg")
    # The same rows give the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "funlib", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    found = block["roofs"][dtype]
    engines = found.get("engines", False)
    rows = [
        row
        for row in rows
        if row["dtype"] == dtype and (row["roof_gflops"] or (engines and row["kernel"]))
    ]
    peak, bandwidth = found["multiply_add_gflops"], found["copy_gb_s"]
    ridge = peak / bandwidth
    intensities = sorted({row["intensity"] for row in rows})
    left = min(ridge, *intensities) / 2
    right = max(ridge, *intensities) * 2
    low = min(row["gflops"] for row in rows) / 2
    high = max(peak, *(row["gflops"] for row in rows)) * 2

    figure, axes = plt.subplots(figsize=(11, 6.5), layout="constrained")
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    axes.set_xlabel("arithmetic intensity: operations for each byte that has to move, FLOP/byte")
    axes.set_ylabel("GFLOP/s, from call to result")
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.plot([left, ridge, right], [left * bandwidth, peak, peak], color="black", linewidth=1.8)
    beside = {"textcoords": "offset points", "fontsize": 9, "annotation_clip": False}
    whose = " of work-items (not of matrix engines)" if engines else ""
    text = f"multiply-add peak{whose} {peak:,.1f} GFLOP/s"
    axes.annotate(text, (right, peak), (-4, 5), ha="right", **beside)
    start, above = max(left, 1.2 * low / bandwidth), 1.1
    axes.text(
        start,
        above * start * bandwidth,
        f"  copy bandwidth {bandwidth:,.1f} GB/s",
        fontsize=9,
        rotation=math.degrees(math.atan(above * bandwidth)),  # in the data's coordinates
        rotation_mode="anchor",
        transform_rotates_text=True,
    )

    names = list(dict.fromkeys(row["implementation"] for row in rows))
    names.sort(key=lambda name: name == bench_gemm.DISPATCH)  # drawn last, on top
    colours = plt.get_cmap("tab20")
    for number, name in enumerate(names):
        points = [row for row in rows if row["implementation"] == name]
        style = {
            "marker": MARKERS[number % len(MARKERS)],
            "markersize": 6,
            "color": colours(number % colours.N),
            "alpha": 0.8,
        }
        if name == bench_gemm.DISPATCH:
            style = {
                "marker": "*",
                "markersize": 15,
                "color": DISPATCH_COLOUR,
                "markeredgecolor": "black",
                "markeredgewidth": 0.8,
            }
        axes.plot(
            [row["intensity"] for row in points],
            [row["gflops"] for row in points],
            linestyle="none",
            label=name,
            **style,
        )
    name_shapes(axes, rows)
    figure.legend(loc="outside right center", fontsize=8, frameon=False)
    figure.suptitle(f"GEMM, {dtype}, on {block['device']} ({block['backend']})", fontsize=11)
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=150, metadata=metadata)
    plt.close(figure)


def name_shapes(axes, rows):
    """Writes the shapes above the chart, each with a line down to its intensity."""
    shapes = sorted({(row["intensity"], row["shape"]) for row in rows})
    to_fraction = axes.transScale + axes.transLimits
    positions = [float(to_fraction.transform((x, 1))[0]) for x, _ in shapes]
    for (_, shape), at, place in zip(shapes, positions, spaced(positions, LABEL_GAP), strict=True):
        axes.annotate(
            shape,
            (at, 0),
            (place, 1.03),
            xycoords="axes fraction",
            textcoords="axes fraction",
            rotation=90,
            ha="center",
            va="bottom",
            fontsize=7,
            annotation_clip=False,
        )
        for xs, ys in (((at, at), (0, 1)), ((at, place), (1, 1.025))):
            axes.plot(
                xs,
                ys,
                transform=axes.transAxes,
                color="#bbbbbb",
                linewidth=0.5,
                zorder=0.5,
                clip_on=False,
            )


# ---- command line ----------------------------------------------------------------------------


def parse_arguments(argv):
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    bench_gemm.add_measuring_options(parser, default_shapes=["all"])
    bench_gemm.add_kernel_option(parser)
    parser.add_argument(
        "--results",
        metavar="PATH",
        help="results of bench_gemm.py --json, of which all is drawn; nothing is measured",
    )
    parser.add_argument(
        "--picture",
        default="roofline",
        metavar="PATH",
        help="beginning of the pictures' names (default: roofline)",
    )
    bench_gemm.add_report_options(parser)
    return parser.parse_args(argv)


def read_run(path):
    """(environment block, rows) of a result file. Raises ValueError if it is of another kind or
    from a run that measured no roofs, OSError if it can't be read."""
    results = common.read_results(path)
    if results["kind"] != "gemm":
        raise ValueError(f"{path} holds results of {results['kind']}, not of gemm")
    if "roofs" not in results["environment"]:
        raise ValueError(f"{path} is of a run that measured no roofs; run bench_gemm.py again")
    return results["environment"], results["rows"]


def measure_run(arguments):
    """(environment block, rows) of what the arguments ask for. Raises ValueError if they are wrong
    or no device fits."""
    import funlib  # here, so that drawing results needs no device and no library

    try:
        shapes, dtypes, names, queue = bench_gemm.parse_run(funlib, arguments)
        block = common.environment(funlib, queue)
        block["roofs"] = roofs.measure(funlib, queue, dtypes)
    except funlib.FunlibError as error:
        raise ValueError(str(error)) from error
    return block, bench_gemm.measure(funlib, queue, block, shapes, dtypes, names)


def main(argv=None):
    """Draws the chart; returns the exit status."""
    arguments = parse_arguments(argv)
    try:
        run = read_run(arguments.results) if arguments.results else measure_run(arguments)
    except (OSError, ValueError) as error:
        print(f"roofline: {error}", file=sys.stderr)
        return 2

    block, rows = run
    if not bench_gemm.to_screen(arguments):
        print(tables.environment_table(block))
    bench_gemm.write_reports(arguments, block, rows, tables.ROOFLINE, tables.ROOFLINE_NOTES)
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        paths = [Path(f"{arguments.picture}-{dtype}.{suffix}") for suffix in ("png", "svg")]
        draw(rows, block, dtype, paths)
        print("wrote", *paths, file=sys.stderr)
    return bench_gemm.conclude("roofline", arguments, rows)


if __name__ == "__main__":
    sys.exit(main())
