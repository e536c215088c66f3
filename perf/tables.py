"""Tables of benchmark rows: for the terminal, as Markdown and as CSV.

The scripts that measure and the one that writes docs/results use the same tables. Nothing here
needs funlib or a device.
"""

import csv
import io

import common
from tabulate import tabulate

# ---- one value as text -----------------------------------------------------------------------


def fixed(value, digits):
    """The number with so many digits behind the point; "-" for None."""
    return "-" if value is None else f"{value:,.{digits}f}"


def milliseconds(value):
    """A time in milliseconds with four significant digits where it is short."""
    if value is None:
        return "-"
    return f"{value:.4f}" if value < 1 else f"{value:.3f}" if value < 100 else f"{value:.1f}"


def percent(fraction):
    """A fraction as whole percent, or with one digit where it is below ten."""
    if fraction is None:
        return "-"
    return f"{100 * fraction:.1f} %" if fraction < 0.1 else f"{100 * fraction:.0f} %"


def error_text(value):
    """A maximum error: 0 is exact, None (a NaN among the results) is shown as such."""
    return "nan" if value is None else "0" if value == 0 else f"{value:.1e}"


def verdict(row):
    """Whether the row can be trusted: right results, and no kernel longer than its call."""
    if not row["verified"]:
        return "WRONG"
    return "yes" if row["plausible"] else "times wrong"


# ---- tables: (heading, alignment, row -> text) -------------------------------------------------

GEMM = (
    ("M x K x N", "left", lambda r: r["shape"]),
    ("implementation", "left", lambda r: r["label"]),
    ("kernel ms", "right", lambda r: milliseconds(r["kernel_ms"])),
    ("total ms", "right", lambda r: milliseconds(r["total_ms"])),
    ("spread", "right", lambda r: percent(r["total_spread"])),
    ("GFLOP/s", "right", lambda r: fixed(r["gflops"], 1)),
    ("of roof", "right", lambda r: percent(r.get("roof_fraction"))),
    ("vs gemm", "right", lambda r: "-" if r["speedup"] is None else f"{r['speedup']:.2f}x"),
    ("max error", "right", lambda r: error_text(r["max_error"])),
    ("verified", "left", verdict),
    ("first ms", "right", lambda r: milliseconds(r["first_ms"])),
    ("reps", "right", lambda r: str(r["repetitions"])),
)
GEMM_NOTES = (
    "Times are medians. kernel: on the device, from event profiling. total: one call until its "
    "wait returns, with submission, allocation and destruction; its spread is the distance "
    "between the quartiles. GFLOP/s and the speed-up over `gemm` are of the total. of roof: "
    "GFLOP/s over what the device allows, the lower of its multiply-add peak and its copy "
    "bandwidth times the operations for each byte that has to move, both measured in the same "
    "run. first: the first call of the run, with compilation where the kernel cache did not have "
    f"the kernel. reps: measured repetitions ({common.REPETITIONS}, fewer for slow calls). max "
    "error: against a float64 reference (exact arithmetic modulo 2^32 for integers); verified: "
    "within the error bound of any order of summation."
)

FEATURES = (
    ("what", "left", lambda r: r["what"]),
    ("type", "left", lambda r: r["dtype"]),
    ("new way", "left", lambda r: r["new"]),
    ("ms", "right", lambda r: milliseconds(r["new_ms"])),
    ("GFLOP/s", "right", lambda r: fixed(r["new_gflops"], 1)),
    ("against", "left", lambda r: r["old"]),
    ("ms", "right", lambda r: milliseconds(r["old_ms"])),
    ("GFLOP/s", "right", lambda r: fixed(r["old_gflops"], 1)),
    ("gain", "right", lambda r: f"{r['gain']:.2f}x"),
    ("packing ms", "right", lambda r: milliseconds(r["packing_ms"])),
    ("break-even", "right", lambda r: fixed(r["break_even"], 1)),
    ("verified", "left", lambda r: "yes" if r["verified"] else "WRONG"),
)
FEATURES_NOTES = (
    "Medians from call to result; both of a pair are measured in turn. gain: speed of the new way "
    "over the other. break-even: products after which packing has paid for itself; - where it "
    "never does. verified: both results are within the error bound."
)

DISPATCH = (
    ("M x K x N", "left", lambda r: r["shape"]),
    ("chosen", "left", lambda r: r["chosen"]),
    ("by", "left", lambda r: r["source"]),
    ("ms", "right", lambda r: milliseconds(r["chosen_ms"])),
    ("fastest", "left", lambda r: r["fastest"]),
    ("ms", "right", lambda r: milliseconds(r["fastest_ms"])),
    ("behind", "right", lambda r: f"{r['behind']:.3f}x"),
    ("tried", "right", lambda r: str(r["tried"])),
)

ROOFLINE = (
    ("M x K x N", "left", lambda r: r["shape"]),
    ("implementation", "left", lambda r: r["label"]),
    ("FLOP/byte", "right", lambda r: fixed(r["intensity"], 1)),
    ("roof GFLOP/s", "right", lambda r: fixed(r["roof_gflops"], 1)),
    ("GFLOP/s", "right", lambda r: fixed(r["gflops"], 1)),
    ("of roof", "right", lambda r: percent(r["roof_fraction"])),
    ("verified", "left", verdict),
)
ROOFLINE_NOTES = (
    "FLOP/byte: operations for each byte that has to move, every element of A, B and C once. roof: "
    "the lower of the multiply-add peak and the copy bandwidth times that, both measured in the "
    "same run. GFLOP/s are from call to result, by medians."
)

COMPARE = (
    ("M x K x N", "left", lambda r: r["shape"]),
    ("implementation", "left", lambda r: r["label"]),
    ("kernel ms", "right", lambda r: milliseconds(r["kernel_ms"])),
    ("total ms", "right", lambda r: milliseconds(r["total_ms"])),
    ("spread", "right", lambda r: percent(r["total_spread"])),
    ("GFLOP/s", "right", lambda r: fixed(r["gflops"], 1)),
    ("of funlib's", "right", lambda r: f"{r['ratio']:.2f}x"),
    ("max error", "right", lambda r: error_text(r["max_error"])),
    ("verified", "left", verdict),
    ("reps", "right", lambda r: str(r["repetitions"])),
)
COMPARE_NOTES = (
    "Times are medians. kernel: on the device, from event profiling, or from graph replays for "
    "PyTorch on a GPU; others don't tell. total: one call until its result is there, with "
    "allocation and destruction, on inputs that lie where the implementation computes; its spread "
    "is the distance between the quartiles. GFLOP/s are of the total. Ratios are the peer's total "
    "over funlib's: above 1, funlib is faster. fastest: of the peers, on that shape. max error and "
    "verified: as in the GEMM benchmark. nt behind a shape: B is stored as N x K."
)

STARTUP = (
    ("step", "left", lambda r: r["step"]),
    ("cold cache ms", "right", lambda r: fixed(r["cold_ms"], 1)),
    ("spread", "right", lambda r: percent(r["cold_spread"])),
    ("warm cache ms", "right", lambda r: fixed(r["warm_ms"], 1)),
    ("spread", "right", lambda r: percent(r["warm_spread"])),
)
STARTUP_NOTES = (
    "Medians over fresh processes. cold: an empty kernel cache, so the first GEMM compiles its "
    "kernel. warm: the same cache afterwards. The spread is the distance between the quartiles."
)

OVERHEAD = (
    ("call", "left", lambda r: r["call"]),
    ("from", "left", lambda r: r["caller"]),
    ("total us", "right", lambda r: fixed(r["total_us"], 2)),
    ("spread", "right", lambda r: percent(r["spread"])),
    ("kernel us", "right", lambda r: fixed(r["kernel_us"], 2)),
    ("over C us", "right", lambda r: fixed(r["added_us"], 2)),
)
OVERHEAD_NOTES = (
    "Medians of one call until its wait returns, with allocation and destruction of the result "
    "where the call makes one. kernel: on the device, from event profiling. over C: what the call "
    "takes more from Python than the same submission from the C interface. The spread is the "
    "distance between the quartiles."
)

PROFILER = (
    ("M x K x N", "left", lambda r: r["shape"]),
    ("kernel", "left", lambda r: r["implementation"]),
    ("type", "left", lambda r: r["dtype"]),
    ("event us", "right", lambda r: fixed(r["event_us"], 1)),
    ("profiler us", "right", lambda r: fixed(r["profiler_us"], 1)),
    ("difference", "right", lambda r: f"{100 * r['difference']:+.1f} %"),
)
PROFILER_NOTES = (
    "Medians of 20 launches: times of funlib's events, and of Nsight Compute for the same launches "
    "in another process, with the clocks as they are."
)


def table(columns, rows, style="simple"):
    """The rows as text. columns: a table above. style: "simple", or "github" for Markdown."""
    if not rows:
        return "(no rows)"
    return tabulate(
        [[text(row) for _, _, text in columns] for row in rows],
        headers=[heading for heading, _, _ in columns],
        colalign=[alignment for _, alignment, _ in columns],
        tablefmt=style,
        disable_numparse=True,
    )


def environment_table(block, style="plain"):
    """The environment block as a two-column table."""
    rows = common.environment_rows(block)
    if style == "plain":
        return tabulate(rows, tablefmt="plain", disable_numparse=True)
    return tabulate(rows, headers=["", "measured on"], tablefmt=style, disable_numparse=True)


def comma_separated(rows):
    """All plain fields of the rows (not the raw samples) as CSV with a heading line."""
    fields = [key for key, value in rows[0].items() if not isinstance(value, list)] if rows else []
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def plain(headers, lines, style="github"):
    """A table of texts: the first column to the left, figures to the right."""
    return tabulate(
        lines,
        headers=headers,
        colalign=["left", *("right" for _ in headers[1:])],
        tablefmt=style,
        disable_numparse=True,
    )


def gemm_pivot(rows, names):
    """Markdown with a line a shape and a column for each of the named implementations that the rows
    have: total ms (GFLOP/s)."""
    names = [name for name in names if any(row["implementation"] == name for row in rows)]
    cells = {
        (row["shape"], row["implementation"]): (
            f"{milliseconds(row['total_ms'])} ({fixed(row['gflops'], 1)})"
        )
        for row in rows
    }
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    lines = [[shape, *(cells.get((shape, name), "-") for name in names)] for shape in shapes]
    return plain(["M x K x N", *names], lines)


def gemm_by_kernel(rows):
    """Markdown with a line an implementation and a column a shape: GFLOP/s."""
    cells = {(row["implementation"], row["shape"]): fixed(row["gflops"], 1) for row in rows}
    names = list(dict.fromkeys(row["implementation"] for row in rows))
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    lines = [[name, *(cells.get((name, shape), "-") for shape in shapes)] for name in names]
    return plain(["M x K x N", *shapes], lines)
