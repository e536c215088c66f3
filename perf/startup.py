"""Start-up benchmark: import, first queue, first GEMM, with a cold and with a warm kernel cache.

    python perf/startup.py
    python perf/startup.py --json perf/results/startup-cpu.json

Each figure is the median over fresh processes (perf/startup_child.py), on the default device, with
a kernel cache in a temporary folder. The exit status is 1 if a process fails or its GEMM is wrong,
or if the time from import to the first result is over its limit.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import common
import tables

COLD_PROCESSES = 5
WARM_PROCESSES = 11
CHILD = Path(__file__).with_name("startup_child.py")
CHILD_SECONDS = 120  # after which a process counts as hanging

TO_RESULT = "first GEMM, from import to result"
COLD_LIMIT_MS = 5000
WARM_LIMIT_MS = 200


def measure_process(cache):
    """Runs one fresh process with its kernel cache in the folder `cache`; returns {step: seconds}.

    Raises RuntimeError with the process's messages if it fails or its GEMM is wrong.
    """
    variables = os.environ | {"FUNLIB_CACHE_DIR": str(cache), "FUNLIB_CACHE": "on"}
    done = subprocess.run(
        [sys.executable, str(CHILD)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the measured process failed:\n{done.stderr}")
    report = json.loads(done.stdout)
    if not report["right"]:
        raise RuntimeError("the measured process computed a wrong product")
    return report["times"]


def measure(progress):
    """([times of cold processes], [times of warm ones]), each times a dict of seconds."""
    cold, warm = [], []
    with tempfile.TemporaryDirectory(prefix="funlib-startup-") as folder:
        measure_process(
            Path(folder) / "first"
        )  # brings the libraries into the page cache; not counted
        for number in range(COLD_PROCESSES):
            progress.step("cold cache")
            cold.append(measure_process(Path(folder) / f"cold{number}"))
        for _ in range(WARM_PROCESSES):
            progress.step("warm cache")
            warm.append(measure_process(Path(folder) / "cold0"))
    return cold, warm


def rows_of(cold, warm):
    """One row a step, with medians and spreads in milliseconds and the raw samples in seconds."""
    rows = []
    for step in cold[0]:
        row = {"step": step}
        for name, processes in (("cold", cold), ("warm", warm)):
            seconds = [times[step] for times in processes]
            row[f"{name}_ms"] = common.median(seconds) * 1e3
            row[f"{name}_spread"] = common.spread(seconds)
            row[f"{name}_s"] = seconds
        rows.append(row)
    return rows


def main(argv=None):
    """Runs the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--json", metavar="PATH", help='write the results as JSON ("-": to the screen)'
    )
    arguments = parser.parse_args(argv)
    import funlib

    block = common.environment(funlib, funlib.get_queue())
    progress = common.Progress(COLD_PROCESSES + WARM_PROCESSES)
    try:
        cold, warm = measure(progress)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"startup: {error}", file=sys.stderr)
        return 1
    finally:
        progress.close()
    rows = rows_of(cold, warm)
    if arguments.json:
        common.write_results(arguments.json, "startup", block, rows)
    if arguments.json != "-":
        print(tables.environment_table(block), "\n")
        print(tables.table(tables.STARTUP, rows))

    whole = next(row for row in rows if row["step"] == TO_RESULT)
    late = whole["cold_ms"] > COLD_LIMIT_MS or whole["warm_ms"] > WARM_LIMIT_MS
    if late:
        limits = f"{COLD_LIMIT_MS} ms cold, {WARM_LIMIT_MS} ms warm"
        print(f"startup: {TO_RESULT} takes longer than its limit ({limits})", file=sys.stderr)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
