"""Writes docs/results and the figures of other documents from perf/results/*.json.

    python perf/report.py            write them
    python perf/report.py --check    exit status 1 if they are not what the results give

perf/results/WHAT-DEVICE.json becomes docs/results/WHAT-DEVICE.md, and docs/results/DEVICE.md is the
overview of a device. In README.md and docs/gemm_ladder.md the text between the lines
`<!-- figures -->` and `<!-- /figures -->` is replaced. The text depends on nothing but the results.
"""

import argparse
import statistics
import sys

import common
import compare
import dispatch
import roofline
import startup
import tables

PAGES = common.ROOT / "docs" / "results"
README = common.ROOT / "README.md"
LADDER = common.ROOT / "docs" / "gemm_ladder.md"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
GENERATED = "<!-- Written by perf/report.py from perf/results; do not edit. -->"

INDEX = f"""\
# Results

{GENERATED}

[How it is measured](../how_it_is_measured.md). The raw samples are in perf/results.

"""


def gemm_page(name, results):
    """The tables of a GEMM result file, one a data type, each with its chart."""
    parts = []
    shown = charts(name, results)
    for dtype in dict.fromkeys(row["dtype"] for row in results["rows"]):
        rows = [row for row in results["rows"] if row["dtype"] == dtype]
        parts.append(f"## {dtype}")
        if dtype in shown:
            parts.append(f"![Roofline chart, {dtype}]({shown[dtype].name})")
        parts.append(tables.table(tables.GEMM, rows, "github"))
    return [*parts, tables.GEMM_NOTES]


def charts(name, results):
    """{data type: path} of the roofline charts of a result file."""
    found = results["environment"].get("roofs", {}) if results["kind"] == "gemm" else {}
    return {dtype: PAGES / f"{name}-{dtype}.svg" for dtype in found}


def compare_page(_, results):
    """The tables of a comparison with peers, two a data type."""
    return compare.page(results["rows"])


def startup_page(_, results):
    """The table of a start-up result file."""
    return [tables.table(tables.STARTUP, results["rows"], "github"), tables.STARTUP_NOTES]


def overhead_page(_, results):
    """The table of a call overhead result file."""
    return [tables.table(tables.OVERHEAD, results["rows"], "github"), tables.OVERHEAD_NOTES]


def profiler_page(_, results):
    """The table of event times beside a profiler's."""
    return [tables.table(tables.PROFILER, results["rows"], "github"), tables.PROFILER_NOTES]


def features_page(_, results):
    """The table of a result file of what fusing, packing, batching and size do."""
    return [tables.table(tables.FEATURES, results["rows"], "github"), tables.FEATURES_NOTES]


def dispatch_page(_, results):
    """The summary and the table of a result file on the choice of kernels."""
    rows = results["rows"]
    return [dispatch.summary(rows)[2], tables.table(tables.DISPATCH, rows, "github")]


KINDS = {
    "gemm": ("GEMM", gemm_page),
    "compare": ("Beside other libraries", compare_page),
    "features": ("Epilogues, packed weights, batches, size", features_page),
    "dispatch": ("The choice of kernels", dispatch_page),
    "startup": ("Start-up", startup_page),
    "overhead": ("Call overhead", overhead_page),
    "profiler": ("Event times beside a profiler's", profiler_page),
}


def title_of(results):
    """The heading of a result file's page."""
    dtypes = dict.fromkeys(row["dtype"] for row in results["rows"] if "dtype" in row)
    return f"{', '.join([KINDS[results['kind']][0], *dtypes])}: {results['environment']['device']}"


def page_of(name, results):
    """A result file as Markdown."""
    environment = tables.environment_table(results["environment"], "github")
    body = KINDS[results["kind"]][1](name, results)
    return "\n\n".join([f"# {title_of(results)}", GENERATED, environment, *body]) + "\n"


def by_device(files):
    """{page: {name: results}}: the result files of each device, by the name of its overview."""
    devices = {}
    for name, results in files.items():
        devices.setdefault(name.rpartition("-")[2], {})[name] = results
    return devices


def device_of(files):
    """The device that result files, all of one device, are of."""
    return next(iter(files.values()))["environment"]["device"]


def links(files):
    """A list of the pages of result files. files: {name: results}."""
    return "\n".join(f"- [{title_of(results)}]({name}.md)" for name, results in files.items())


def overview_of(files):
    """The page of one device: its pages, and what the README says of it."""
    parts = [f"# {device_of(files)}", GENERATED, links(files), figures_of(files, "../")]
    return "\n\n".join(parts) + "\n"


def index_of(files):
    """The text of docs/results/README.md. files: {name: results}."""
    parts = [
        f"## [{device_of(own)}]({page}.md)\n\n{links(own)}"
        for page, own in by_device(files).items()
    ]
    return INDEX + "\n\n".join(parts) + "\n"


def gemm_figures(name, results, docs):
    """The README's GEMM table of one result file, for the first data type in it: the plainest
    kernel, the dispatch and NumPy."""
    dtype = results["rows"][0]["dtype"]
    block = results["environment"]
    device = f"{block['device']} ({block['backend']}, {block['compute_units']} compute units)"
    rows = [row for row in results["rows"] if row["dtype"] == dtype]
    beside = ""
    if any(row["implementation"] == "numpy" for row in rows):
        beside = f", NumPy ({block['numpy_blas']}) beside it"
    warnings = "".join(f" Warning: {text}." for text in block["warnings"])
    table = tables.gemm_pivot(rows, ("gemm", "dispatch", "numpy"))
    return (
        f"GEMM, {dtype}, on {device}{beside}. Milliseconds from call to result, GFLOP/s in "
        f"brackets ([all figures]({docs}results/{name}.md), "
        f"[by kernel]({docs}gemm_ladder.md#measured)).{warnings}\n\n{table}"
    )


def ladder_figures(files):
    """The ladder's tables: every kernel's GFLOP/s from call to result, of each GEMM result file."""
    parts = []
    for name, results in files.items():
        if results["kind"] == "gemm":
            dtype = results["rows"][0]["dtype"]
            rows = [row for row in results["rows"] if row["dtype"] == dtype]
            parts.append(
                f"GFLOP/s from call to result, {dtype}, on {results['environment']['device']} "
                f"([all figures](results/{name}.md)):\n\n{tables.gemm_by_kernel(rows)}"
            )
    return "\n\n".join(parts)


def startup_figures(name, results, docs):
    """The README's sentence on start-up."""
    row = next(row for row in results["rows"] if row["step"] == startup.TO_RESULT)
    return (
        f"A fresh process has its first GEMM {row['warm_ms']:,.0f} ms after import with a warm "
        f"kernel cache and {row['cold_ms']:,.0f} ms after import with an empty one "
        f"([start-up]({docs}results/{name}.md))."
    )


def overhead_figures(name, results, docs):
    """The README's sentence on call overhead."""
    rows = {(row["call"], row["caller"]): row for row in results["rows"]}
    python, in_c = rows["gemm(a, b)", "Python"], rows["gemm(a, b)", "C"]
    return (
        f"An 8x8x8 GEMM takes {python['total_us']:.1f} us from Python and {in_c['total_us']:.1f} "
        f"us from C, call to result ([overhead]({docs}results/{name}.md))."
    )


def compare_figures(name, results, docs):
    """The README's lines on one comparison: a line a data type and peer."""
    device = results["environment"]["device"]
    warnings = results["environment"]["warnings"]
    lines = [f"Warning, of the next lines: {text}.\n" for text in warnings]
    for dtype in dict.fromkeys(row["dtype"] for row in results["rows"]):
        shapes = compare.by_shape([row for row in results["rows"] if row["dtype"] == dtype])
        peers = {row["implementation"] for row in results["rows"] if row["dtype"] == dtype}
        for peer in sorted(peers - {compare.FUNLIB}):
            found = [m[peer]["ratio"] for m in shapes.values() if peer in m]
            versions = results["environment"]["peers"][peer]["versions"]
            text = ", ".join(f"{what} {version}" for what, version in versions.items())
            mean = statistics.geometric_mean(found)
            lines.append(
                f"- {device}, {dtype}, {len(found)} shapes: {mean:.2f} times as fast as {peer} "
                f"({text}) from call to result, geometric mean; {min(found):.2f} to "
                f"{max(found):.2f} ([all figures]({docs}results/{name}.md))"
            )
    return "\n".join(lines)


FIGURES = {
    "gemm": gemm_figures,
    "compare": compare_figures,
    "startup": startup_figures,
    "overhead": overhead_figures,
}


def figures_of(files, docs):
    """Figures of result files: GEMM tables first, then the sentences. docs: the folder of the
    documents, as seen from the page."""
    parts = [
        FIGURES[kind](name, results, docs)
        for kind in FIGURES
        for name, results in files.items()
        if results["kind"] == kind
    ]
    return "\n\n".join(parts)


def with_figures(path, figures):
    """The file's text with its figures replaced. Raises ValueError without the marker lines."""
    head, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path.name} has no {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n{figures}\n{END}{tail}"


def result_files():
    """{name: results} of perf/results. Raises ValueError for damaged ones."""
    files = {path.stem: common.read_results(path) for path in sorted(common.RESULTS.glob("*.json"))}
    for name, results in files.items():
        if results["kind"] not in KINDS:
            raise ValueError(f"{name}.json: kind {results['kind']!r} is none of {', '.join(KINDS)}")
    return files


def texts(files):
    """{path: text} of the texts that are made. Raises ValueError for files without marker lines."""
    made = {PAGES / f"{name}.md": page_of(name, results) for name, results in files.items()}
    for page, own in by_device(files).items():
        made[PAGES / f"{page}.md"] = overview_of(own)
    made[PAGES / "README.md"] = index_of(files)
    made[README] = with_figures(README, figures_of(files, "docs/"))
    made[LADDER] = with_figures(LADDER, ladder_figures(files))
    return made


def write(path, made, pictures):
    """Writes a text or draws a picture, or removes what is neither; returns what was done."""
    shown = path.relative_to(common.ROOT)
    if path in made:
        common.write_text(path, made[path])
        return f"wrote {shown}"
    if path in pictures:
        results, dtype = pictures[path]
        roofline.draw(results["rows"], results["environment"], dtype, [path])
        return f"drew {shown}"
    path.unlink()
    return f"removed {shown}, which has no results"


def main(argv=None):
    """Writes or checks the texts; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit status 1 if a text is out of date"
    )
    arguments = parser.parse_args(argv)
    try:
        files = result_files()
        made = texts(files)
    except (OSError, ValueError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    stale, pictures = [], {}
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path)
    for name, results in files.items():
        for dtype, path in charts(name, results).items():
            pictures[path] = (results, dtype)
            # Its bytes depend on matplotlib's version, so they are not compared.
            if not path.exists() or PAGES / f"{name}.md" in stale:
                stale.append(path)
    known = made.keys() | pictures.keys()
    stale += [path for path in PAGES.glob("*") if path not in known]
    for path in stale:
        if arguments.check:
            print(
                f"report: {path.relative_to(common.ROOT)} isn't what perf/results gives; run "
                "python perf/report.py",
                file=sys.stderr,
            )
        else:
            print(write(path, made, pictures))
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
