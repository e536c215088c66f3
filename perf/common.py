"""What the benchmark scripts share: timing, statistics, the environment block, result files.

A result file is JSON of this form, one row a line so that changes can be read::

    {"kind": "gemm", "environment": {...}, "rows": [{...}, ...]}

Times in rows are nanoseconds (integers) in the raw samples and say their unit in their name
elsewhere.
"""

import ctypes
import datetime
import gc
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "perf" / "results"

# The benchmark method: see "repetitions" for when fewer are made.
WARMUPS = 5
REPETITIONS = 21
LEAST_WARMUPS = 1
LEAST_REPETITIONS = 5

# Variables that slow NumPy's BLAS (or choose its threads) without a trace in the code.
BLAS_SLOWING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
THREAD_LIMITS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOTO_NUM_THREADS")

# Load of the last minute, by processor, above which a run is marked as disturbed.
IDLE_LOAD = 0.75

PACKAGES = ("numpy", "intel-sycl-rt", "intel-cmplr-lib-rt", "intel-opencl-rt")


# ---- timing ----------------------------------------------------------------------------------


def repetitions(call_seconds, budget_seconds):
    """How many warm-ups and measured repetitions of a call of `call_seconds` are made.

    WARMUPS and REPETITIONS where they fit into `budget_seconds`; else as many as fit, but never
    fewer than LEAST_WARMUPS and LEAST_REPETITIONS. Returns (warm-ups, repetitions).
    """
    fitting = int(budget_seconds / call_seconds) if call_seconds > 0 else WARMUPS + REPETITIONS
    measured = min(REPETITIONS, max(LEAST_REPETITIONS, fitting - WARMUPS))
    warmups = min(WARMUPS, max(LEAST_WARMUPS, fitting - measured))
    return warmups, measured


class Samples:
    """The raw times of one implementation: `total_ns`, and `kernel_ns` where the device told."""

    def __init__(self):
        self.total_ns = []
        self.kernel_ns = []

    def add(self, total_ns, kernel_ns=None):
        """Keeps one repetition."""
        self.total_ns.append(total_ns)
        if kernel_ns is not None:
            self.kernel_ns.append(kernel_ns)

    def plausible(self):
        """Whether no repetition claims more time in the kernel than for the whole call."""
        return all(k <= t for k, t in zip(self.kernel_ns, self.total_ns, strict=False))


def measure_rotated(calls, budget_seconds):
    """Times implementations against one another.

    calls: {name: call}; a call does one operation to its end and returns (total ns, kernel ns or
    None). budget_seconds: see `repetitions`; the length of a call is taken from its first warm-up.
    In each round the implementations run once each, and each round starts with another of them, so
    that none always runs behind the same neighbour. Returns {name: (warm-ups, Samples)}.
    """
    plan = {}
    for name, call in calls.items():
        warmups, measured = repetitions(call()[0] / 1e9, budget_seconds)
        for _ in range(warmups - 1):
            call()
        plan[name] = (warmups, measured)
    samples = {name: Samples() for name in calls}
    names = list(calls)
    collecting = gc.isenabled()
    gc.disable()  # a collection in the middle of a call would be counted as part of it
    try:
        for turn in range(max((measured for _, measured in plan.values()), default=0)):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                if turn < plan[name][1]:
                    samples[name].add(*calls[name]())
    finally:
        if collecting:
            gc.enable()
    return {name: (plan[name][0], samples[name]) for name in names}


def median(values):
    """The median as a float, or None of nothing."""
    return float(statistics.median(values)) if values else None


def spread(values):
    """Distance between the quartiles, as a fraction of the median; None where there are too few."""
    if len(values) < 2:
        return None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    middle = statistics.median(values)
    return (high - low) / middle if middle else None


def now_ns():
    """The host clock of all measurements, in nanoseconds."""
    return time.perf_counter_ns()


# ---- the environment block -------------------------------------------------------------------


def select_queue(funlib, selector):
    """The queue that a script runs on.

    selector: "default" (the library's own choice), or a device type with optional restrictions,
    "cpu", "gpu,backend=cuda", "any,vendor=intel". Profiling is on. Raises ValueError on other words
    and what funlib raises where no device fits.
    """
    if selector == "default":
        return funlib.get_queue()
    device, *restrictions = selector.split(",")
    options = {}
    for restriction in restrictions:
        key, _, value = restriction.partition("=")
        if key not in ("vendor", "backend") or not value:
            raise ValueError(
                f"queue {selector!r}: {restriction!r} should be vendor=NAME or backend=NAME"
            )
        options[key] = value
    return funlib.register_queue("perf", device=device, profiling=True, **options)


def cpu_model():
    """The processor's name as the operating system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cpus():
    """Number of processors that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count()


def git_revision():
    """The source's revision, "-dirty" if files were changed; None without git or a repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def numpy_blas():
    """NumPy's BLAS, with the kernels that it chose for this processor where it tells (OpenBLAS)."""
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    text = " ".join(str(blas[key]) for key in ("name", "version") if blas.get(key)) or "unknown"
    for library in (Path(np.__file__).parent.parent / "numpy.libs").glob("lib*openblas*.so*"):
        try:
            openblas = ctypes.CDLL(str(library))
            core = openblas.scipy_openblas_get_corename64_
        except (OSError, AttributeError):
            continue
        core.restype = ctypes.c_char_p
        return f"{text}, {core().decode()} kernels"
    return text


def package_versions():
    """Versions of the installed packages that the figures depend on, by name."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def environment(funlib, queue):
    """Everything that a reader needs to judge or repeat the figures, as a dict for JSON."""
    device = queue.device
    load, cpus = os.getloadavg()[0], usable_cpus()
    variables = {n: os.environ[n] for n in (*BLAS_SLOWING, *THREAD_LIMITS) if n in os.environ}
    warnings = [
        f"{name}={variables[name]} is set: NumPy's BLAS may be slower than it is without"
        for name in BLAS_SLOWING
        if name in variables
    ]
    warnings += [
        f"{name}={variables[name]} is set: it may limit the threads that NumPy uses"
        for name in THREAD_LIMITS
        if name in variables
    ]
    if load > IDLE_LOAD * cpus:
        warnings.append(f"load {load:.2f} before the run: other programs may have disturbed it")
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "revision": git_revision(),
        "device": device.name,
        "device_type": device.type,
        "vendor": device.vendor,
        "backend": device.backend,
        "driver": device.driver,
        "compute_units": device.compute_units,
        "local_memory_bytes": device.local_memory,
        "sub_group_sizes": list(device.sub_group_sizes),
        "cpu": cpu_model(),
        "cpus": cpus,
        "load": round(load, 2),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "funlib": funlib.__version__,
        "packages": package_versions(),
        "numpy_blas": numpy_blas(),
        "variables": variables,
        "warnings": warnings,
    }


def environment_rows(block):
    """The environment block as (what, value) pairs of text, in reading order."""
    packages = ", ".join(f"{name} {version}" for name, version in block["packages"].items())
    sizes = ", ".join(map(str, block["sub_group_sizes"])) or "none named"
    rows = [
        ("device", f"{block['device']} ({block['device_type']}, {block['vendor']})"),
        ("backend, driver", f"{block['backend']}, {block['driver']}"),
        ("compute units", str(block["compute_units"])),
        ("local memory", f"{block['local_memory_bytes']} bytes"),
        ("sub-group sizes", sizes),
        ("host processor", f"{block['cpu']}, {block['cpus']} usable"),
        ("load before the run", f"{block['load']:.2f}"),
        ("system", f"{block['system']}, Python {block['python']}"),
        (
            "funlib",
            block["funlib"] + (f", revision {block['revision']}" if block["revision"] else ""),
        ),
        ("packages", packages),
        ("NumPy's BLAS", block["numpy_blas"]),
        ("date", block["date"]),
    ]
    return rows + [("WARNING", text) for text in block["warnings"]]


# ---- result files and the terminal -----------------------------------------------------------


def write_results(path, kind, block, rows):
    """Writes a result file; `path` "-" is standard output. See the module's text for the form."""
    lines = ",\n".join(json.dumps(clean(row)) for row in rows)
    head = json.dumps({"kind": kind, "environment": clean(block)}, indent=1).removesuffix("\n}")
    write_text(path, f'{head},\n "rows": [\n{lines}\n]}}\n')


def clean(value):
    """The value with NaN and infinities, which JSON has no word for, turned into None."""
    if isinstance(value, dict):
        return {key: clean(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [clean(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_results(path):
    """The contents of a result file. Raises ValueError that names the file if it isn't one."""
    try:
        results = json.loads(Path(path).read_text(encoding="utf-8"))
        if not {"kind", "environment", "rows"} <= set(results):
            raise ValueError("kind, environment or rows is missing")
    except ValueError as error:
        raise ValueError(f"{path} isn't a result file: {error}") from error
    return results


def write_text(path, text):
    """Writes `text` to a file, whose folder is made, or to standard output if `path` is "-"."""
    if path == "-":
        sys.stdout.write(text)
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


class Progress:
    """A progress bar on standard error, shown on a terminal only."""

    WIDTH = 30

    def __init__(self, steps):
        self.steps = steps
        self.done = 0
        self.shown = sys.stderr.isatty()

    def step(self, text):
        """Says that the next step, described by `text`, begins."""
        if self.shown:
            filled = self.WIDTH * self.done // max(self.steps, 1)
            bar = "#" * filled + "." * (self.WIDTH - filled)
            sys.stderr.write(f"\r\x1b[K[{bar}] {self.done}/{self.steps} {text}")
            sys.stderr.flush()
        self.done += 1

    def close(self):
        """Takes the bar off the screen."""
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
