"""What the benchmark scripts share: timing, statistics, the environment block, result files.

A result file is JSON of this form, one row a line so that changes can be read::

    {"kind": "gemm", "environment": {...}, "rows": [{...}, ...]}

Times in rows are nanoseconds (integers) in the raw samples and say their unit in their name
elsewhere.
"""

import contextlib
import ctypes
import datetime
import gc
import importlib.metadata
import json
import math
import os
import platform
import resource
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

# Implementations that can't be rotated call by call, since their threads disturb one another, are
# measured in this many blocks each.
ROUNDS = 3

# A call that takes longer than this is measured once.
SINGLE_SECONDS = 10

# Thread pools spin for a while after a call, on the processors that others need. They sleep when
# the process uses less than SETTLED_LOAD of one processor over SETTLE_STEP_SECONDS. A pool that is
# told to spin for ever is not waited for longer than SETTLE_LIMIT_SECONDS.
SETTLED_LOAD = 0.1
SETTLE_STEP_SECONDS = 0.02
SETTLE_LIMIT_SECONDS = 1.0

# Variables that slow NumPy's BLAS (or choose its threads) without a trace in the code.
BLAS_SLOWING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
THREAD_LIMITS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOTO_NUM_THREADS")

# Load of the last minute, by processor, above which a run is marked as disturbed.
IDLE_LOAD = 0.75

# Part of all processors that other programs may use during a run before it is marked as disturbed.
OTHERS_LIMIT = 0.05
# How much longer products that follow each other without a pause may take than single ones.
LOWERED_CLOCK = 1.15

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
    """The raw times of one implementation: `total_ns`, and `kernel_ns` where the device told.

    paired: whether the kernel times are those of the very calls that the totals are of.
    """

    def __init__(self, paired=True):
        self.paired = paired
        self.total_ns = []
        self.kernel_ns = []

    def add(self, total_ns, kernel_ns=None):
        """Keeps one repetition."""
        self.total_ns.append(total_ns)
        if kernel_ns is not None:
            self.kernel_ns.append(kernel_ns)

    def plausible(self):
        """Whether no repetition claims more time in the kernel than for the whole call; of samples
        that are not paired, whether their medians don't, but for a clock lowered under load."""
        if self.paired or not self.kernel_ns:
            return all(k <= t for k, t in zip(self.kernel_ns, self.total_ns, strict=False))
        return median(self.kernel_ns) <= LOWERED_CLOCK * median(self.total_ns)


@contextlib.contextmanager
def no_collection():
    """While it lasts, Python collects no garbage: that would be counted as part of a call."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def rotated(names, turn):
    """The names as a list, beginning with another one each turn."""
    names = list(names)
    first = turn % len(names) if names else 0
    return names[first:] + names[:first]


def settle():
    """Waits until the threads of this process sleep; False if they didn't in time."""
    limit = now_ns() + SETTLE_LIMIT_SECONDS * 1e9
    while now_ns() < limit:
        wall, used = now_ns(), time.process_time_ns()
        time.sleep(SETTLE_STEP_SECONDS)
        if time.process_time_ns() - used < SETTLED_LOAD * (now_ns() - wall):
            return True
    return False


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
    with no_collection():
        for turn in range(max((measured for _, measured in plan.values()), default=0)):
            for name in rotated(calls, turn):
                if turn < plan[name][1]:
                    samples[name].add(*calls[name]())
    return {name: (plan[name][0], samples[name]) for name in calls}


def measure_in_blocks(calls, budget_seconds):
    """Times implementations against one another that have threads of their own.

    calls: {name: call}; call.block(count) makes so many calls in a row, leaves no spinning thread
    behind and returns [(total ns, kernel ns or None)]. The repetitions come in ROUNDS blocks, each
    with its own warm-ups; blocks of the implementations alternate, in an order that rotates, so
    that a drift of the machine hits all alike. budget_seconds: as in `repetitions`; calls that
    don't make all repetitions have LEAST_WARMUPS a block. A call of more than SINGLE_SECONDS is
    made once, without warm-up. Returns {name: (warm-ups of each block, Samples)}.
    """
    plan, samples = {}, {name: Samples(call.paired) for name, call in calls.items()}
    for name, call in calls.items():
        ((total_ns, kernel_ns),) = call.block(1)
        if total_ns > SINGLE_SECONDS * 1e9:
            samples[name].add(total_ns, kernel_ns)
            plan[name] = (0, 0)
            continue
        warmups, measured = repetitions(total_ns / 1e9, budget_seconds)
        if measured < REPETITIONS:
            warmups = LEAST_WARMUPS
        plan[name] = (warmups, math.ceil(measured / ROUNDS))
    for turn in range(ROUNDS):
        for name in rotated(calls, turn):
            warmups, measured = plan[name]
            if measured:
                for sample in calls[name].block(warmups + measured)[warmups:]:
                    samples[name].add(*sample)
    return {name: (plan[name][0], samples[name]) for name in calls}


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
    """The queue that a script runs on, by the words of `python -m funlib tune --queue`. Raises
    ValueError on others and what funlib raises where no device fits."""
    return funlib._arguments.select_queue(selector, "perf")


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


class OtherPrograms:
    """How much of the processors other programs use, from the making of this object on."""

    def __init__(self):
        self.start = self.seconds()

    @staticmethod
    def seconds():
        """(seconds that pass, processor seconds of all other programs), from some origin."""
        usage = [
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        own = sum(part.ru_utime + part.ru_stime for part in usage)
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields[1:9])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), busy - own

    def processors(self):
        """How many processors they used on average. Child processes count as others until this
        process has waited for their end."""
        (start, before), (now, after) = self.start, self.seconds()
        return max(0.0, (after - before) / (now - start))


def git_revision():
    """The source's revision, "-dirty" if files were changed; None without git or a repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def openblas():
    """The OpenBLAS inside NumPy's package as a ctypes library; None if NumPy has another BLAS."""
    for library in (Path(np.__file__).parent.parent / "numpy.libs").glob("lib*openblas*.so*"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(str(library))
    return None


def numpy_blas():
    """NumPy's BLAS, with the kernels that it chose for this processor where it tells (OpenBLAS)."""
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    text = " ".join(str(blas[key]) for key in ("name", "version") if blas.get(key)) or "unknown"
    core = getattr(openblas(), "scipy_openblas_get_corename64_", None)
    if core is None:
        return text
    core.restype = ctypes.c_char_p
    return f"{text}, {core().decode()} kernels"


def numpy_threads():
    """Number of threads of NumPy's BLAS; None where it doesn't tell."""
    threads = getattr(openblas(), "scipy_openblas_get_num_threads64_", None)
    return None if threads is None else threads()


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
    rows += [
        (
            f"roofs, {dtype}",
            f"{found['multiply_add_gflops']:,.1f} GFLOP/s multiply-add, "
            f"{found['copy_gb_s']:,.1f} GB/s copy",
        )
        for dtype, found in block.get("roofs", {}).items()
    ]
    rows += [(name, peer_text(peer)) for name, peer in block.get("peers", {}).items()]
    return rows + [("WARNING", text) for text in block["warnings"]]


def peer_text(peer):
    """A peer's entry in the environment block (peers.Peer.describe) as text."""
    parts = [f"{name} {version}" for name, version in peer["versions"].items()]
    if peer["threads"] is not None:
        parts.append(f"{peer['threads']} threads")
    return ", ".join([*parts, f"in {peer['process']}"])


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
