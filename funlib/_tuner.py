"""The tuner: measures which kernel, with which parameters, is the fastest for a product."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _arguments, _tuning
from ._gemm import explain, gemm, kernels
from ._queue import Queue, get_queue
from ._tensor import DeviceTensor
from .errors import FunlibError, UnsupportedError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from numpy.typing import DTypeLike

LOGGER = _tuning.LOGGER

# Shapes of a second check of each candidate: no multiples of any tile; and, for kernels that want
# rows of whole vectors of 16 bytes, no multiples of more than 16.
ODD = ((37, 53, 41), (48, 80, 144))
# What another choice must gain over that of the model to replace it.
GAIN = 0.02
# A candidate that takes longer than this many times the best is dropped after one measurement.
HOPELESS = 3.0
# Candidates are compared on a part of the product that takes about this long, the last of them on
# the product itself.
PART_SECONDS = 5e-3
# A measurement repeats a short product until this is over.
SAMPLE_SECONDS = 1e-3
SAMPLES = 5  # of each candidate in the search, of which the fastest counts
FINALISTS = 6
FINAL_SAMPLES = 21
# Choosing among finalists takes as long as so many calls, but no more than this share of the time.
FINAL_CALLS = 120
FINAL_SHARE = 0.3
COMPILER_BYTES = 400 << 20
# Multiply-adds of a reference; of larger products a part of the rows is checked.
REFERENCE_WORK = 1 << 32
# Of the time for several products, what compiling their common candidates may take.
PREPARE_SHARE = 0.4
SLOWEST = 1e9  # operations a second, where none is known


Shape = tuple[int, int, int, int]  # batches, M, K, N
Layout = tuple[bool, bool]  # whether A and B are transposed


class TuneResult(NamedTuple):
    """What tune() found for one product."""

    dtype: str
    batches: int
    m: int
    k: int
    n: int
    transpose_a: bool
    transpose_b: bool
    kernel: str
    parameters: dict[str, int]
    gflops: float
    model_gflops: float | None
    candidates: int


class Candidate(NamedTuple):
    kernel: str
    values: tuple[tuple[str, int], ...]

    @property
    def parameters(self) -> dict[str, int]:
        return dict(self.values)

    def __str__(self) -> str:
        return " ".join([self.kernel, *(f"{name}={value}" for name, value in self.values)])


# ---- products --------------------------------------------------------------------------------


def random_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Standard normal, or whole numbers whose products float64 sums exactly."""
    if dtype == np.float64:
        return rng.standard_normal(shape)
    if dtype.kind != "i":
        return rng.standard_normal(shape, np.float32).astype(dtype)
    bound = 127 if dtype.itemsize == 1 else 1 << 15
    return rng.integers(-bound, bound, shape, dtype)


def picked(extent: int, count: int) -> np.ndarray:
    """At most `count` indexes, evenly from the first to the last."""
    return np.unique(np.linspace(0, extent - 1, min(extent, max(count, 2))).astype(int))


class Product:
    """C = op(A) @ op(B) on a queue, with random operands and a reference."""

    def __init__(
        self,
        queue: Queue,
        dtype: np.dtype,
        shape: Shape,
        transposes: Layout,
    ):
        self.queue, self.dtype, self.transposes = queue, dtype, transposes
        self.batches, self.m, self.k, self.n = shape
        self.options: dict[str, Any] = {
            "transpose_a": transposes[0],
            "transpose_b": transposes[1],
            "queue": queue,
        }
        self.a = DeviceTensor(self._dimensions(self.m, self.k, transposes[0]), dtype, queue=queue)
        self.b = DeviceTensor(self._dimensions(self.k, self.n, transposes[1]), dtype, queue=queue)
        self._host: tuple[np.ndarray, np.ndarray] | None = None  # op(A), op(B)
        self._reference: tuple | None = None

    def __str__(self) -> str:
        batches = f"{self.batches}x" if self.batches > 1 else ""
        return f"{batches}{self.m}x{self.k}x{self.n} {self.dtype.name}"

    def _dimensions(self, rows: int, columns: int, transposed: bool) -> tuple[int, ...]:
        matrix = (columns, rows) if transposed else (rows, columns)
        return (self.batches, *matrix) if self.batches > 1 else matrix

    @property
    def operations(self) -> int:
        return 2 * self.batches * self.m * self.k * self.n

    def as_dispatched(self) -> tuple[Shape, Layout]:
        """The product as gemm() looks for it in the table."""
        found = explain(self.a, self.b, **self.options)
        return found.product, found.transposes

    def choice(
        self, kernel: str | None = None, parameters: Mapping[str, int] | None = None
    ) -> Candidate:
        """What gemm() would take, left to itself or for a kernel. Raises UnsupportedError."""
        found = explain(self.a, self.b, kernel=kernel, parameters=parameters, **self.options)
        return Candidate(found.kernel, tuple(found.parameters.items()))

    def takes(self, tried: Candidate) -> bool:
        try:
            explain(
                self.a, self.b, kernel=tried.kernel, parameters=tried.parameters, **self.options
            )
        except (UnsupportedError, ValueError):
            return False
        return True

    def output(self) -> DeviceTensor:
        """A C whose elements show where they were not written or wrongly read."""
        dtype = np.dtype(np.int32) if self.dtype.kind == "i" else self.dtype
        value = -1234567891 if self.dtype.kind == "i" else math.nan
        shape = self._dimensions(self.m, self.n, False)
        return DeviceTensor.full(shape, value, dtype, queue=self.queue)

    def _operands(self) -> tuple[np.ndarray, np.ndarray]:
        """op(A) and op(B) on the host. The device's are filled at first."""
        if self._host is None:
            rng = np.random.default_rng(0)
            host = []
            for tensor, transposed in zip((self.a, self.b), self.transposes, strict=True):
                values = random_values(rng, tensor.shape, self.dtype)
                tensor.copy_from(values).wait()
                host.append(values.swapaxes(-1, -2) if transposed else values)
            self._host = host[0], host[1]
        return self._host

    def run(self, tried: Candidate, out: DeviceTensor) -> None:
        self._operands()
        gemm(
            self.a,
            self.b,
            out=out,
            kernel=tried.kernel,
            parameters=tried.parameters,
            **self.options,
        ).wait()

    def seconds(self, tried: Candidate, out: DeviceTensor, estimate: float = 0.0) -> float:
        """The time of one call, from the call until its end. estimate: of it; 0: unknown."""
        calls = max(1, round(SAMPLE_SECONDS / estimate)) if estimate else 1
        start = time.perf_counter()
        for _ in range(calls):
            self.run(tried, out)
        return (time.perf_counter() - start) / calls

    def is_right(self, tried: Candidate) -> bool:
        """Whether a candidate's result agrees with the reference."""
        out = self.output()
        self.run(tried, out)
        result = out.to_host().reshape(self.batches, self.m, self.n)
        if self._reference is None:
            self._reference = self._make_reference()
        batches, rows, expected, bound = self._reference
        found = result[batches][:, rows]
        if self.dtype.kind == "i":
            return bool((found == expected).all())
        with np.errstate(all="ignore"):
            near = abs(found.astype(np.float64) - expected) <= bound
        return bool(near.all() and np.isfinite(result.astype(np.float32)).all())

    def _make_reference(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | int]:
        """(batches, rows, expected, bound): the exact result in float64 and how far a right one may
        be from it (Higham, Accuracy and Stability of Numerical Algorithms, 3.1), of as many rows of
        as many matrices as REFERENCE_WORK allows."""
        row_work = self.k * self.n
        batches = picked(self.batches, REFERENCE_WORK // (row_work * min(self.m, 64)))
        rows = picked(self.m, REFERENCE_WORK // (row_work * len(batches)))
        a, b = (
            host.reshape(self.batches, *host.shape[-2:])[batches].astype(np.float64)
            for host in self._operands()
        )
        a = a[:, rows]
        expected = a @ b
        if self.dtype.kind == "i":
            # Wrapped to int32, as on the device.
            return batches, rows, expected.astype(np.int64).astype(np.int32), 0

        def roundings(count: int, dtype: np.dtype | type) -> float:
            unit = float(np.finfo(dtype).eps) / 2
            return count * unit / (1 - count * unit)

        # |A| |B| is at most the product of the norms of row and column.
        size = np.linalg.norm(a, axis=2)[:, :, None] * np.linalg.norm(b, axis=1)[:, None, :]
        if self.dtype == np.float64:
            return batches, rows, expected, 2 * roundings(self.k + 2, np.float64) * size
        bound = roundings(self.k + 2, np.float32) * size
        if self.dtype.itemsize == 2:
            # float16 has 11 bits, bfloat16 8; NumPy's finfo knows only the former.
            unit = 2.0**-11 if self.dtype == np.float16 else 2.0**-8
            bound = bound + unit * (abs(expected) + bound) + 2.0**-24
        return batches, rows, expected, bound


def part_of(shape: Shape, seconds: float) -> Shape:
    """The shape with its largest extents halved until it takes about PART_SECONDS."""
    extents = list(shape)
    while seconds > 1.5 * PART_SECONDS and max(extents) > 1:
        largest = extents.index(max(extents))
        extents[largest] = (extents[largest] + 1) // 2
        seconds /= 2
    batches, m, k, n = extents
    return batches, m, k, n


# ---- progress --------------------------------------------------------------------------------


def terminal_progress() -> Callable[[str, float], None]:
    """Shows a line on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        return lambda text, part: None

    def show(text: str, part: float) -> None:
        line = f"\r\x1b[K[{'#' * round(30 * part):.<30}] {text}" if text else "\r\x1b[K"
        sys.stderr.write(line)
        sys.stderr.flush()

    return show


# ---- the search ------------------------------------------------------------------------------


def compiler_count() -> int:
    """How many compilers may run at once: by processors and memory."""
    processors = len(os.sched_getaffinity(0))
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":") for line in file)
        memory = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 1
    return max(1, min(processors, memory // 2 // COMPILER_BYTES))


class Tuner:
    """Tunes products of one data type on a queue."""

    def __init__(self, queue: Queue, dtype: DTypeLike, names: Iterable[str] | None):
        """names: of the kernels to try; None: all. Raises LookupError for an unknown one, TypeError
        for an unknown data type."""
        self.queue = queue
        self.dtype = DeviceTensor(0, dtype, queue=queue).dtype
        rows = {kernel.name: kernel for kernel in kernels()}
        for name in names or ():
            if name not in rows:
                raise LookupError(f"no GEMM kernel is called {name!r}; there are {', '.join(rows)}")
        chosen = set(rows if names is None else names)
        self.kernels = {name: row for name, row in rows.items() if name in chosen}
        self.compile_seconds = 2.0  # of one candidate; corrected as they are compiled
        # Whether a candidate compiles and is right on an odd shape, by transposes.
        self.sound: dict[tuple[Layout, Candidate], bool] = {}
        self.winners: list[Candidate] = []

    def products(
        self, shapes: str | Iterable[str | Sequence[int]], transposes: Iterable[Layout]
    ) -> list[tuple[Shape, Layout]]:
        """The products of all shapes and transposes, each once, as gemm() looks for them in the
        table. Raises ValueError for what is no shape."""
        layouts = [(bool(a), bool(b)) for a, b in transposes]
        found: dict[tuple[Shape, Layout], None] = {}
        for shape in _arguments.parse([shapes] if isinstance(shapes, str) else shapes):
            for layout in layouts:
                found[Product(self.queue, self.dtype, shape, layout).as_dispatched()] = None
        return list(found)

    # ---- candidates

    def starts(self, product: Product) -> list[Candidate]:
        """What was fastest for other products, and each kernel with the parameters that follow from
        the device."""
        wanted: list[tuple[str, Mapping[str, int] | None]] = [
            (each.kernel, each.parameters) for each in reversed(self.winners)
        ]
        wanted += [
            (entry["kernel"], entry["parameters"])
            for entry in _tuning.in_use(self.queue.device)
            if entry["dtype"] == self.dtype.name
        ]
        # The registry goes from plain kernels to those that promise more.
        wanted += [(name, None) for name in reversed(self.kernels)]
        found: dict[Candidate, None] = {}
        for kernel, parameters in wanted:
            if kernel in self.kernels:
                with contextlib.suppress(UnsupportedError):
                    found[product.choice(kernel, parameters)] = None
        return list(found)

    def neighbours(self, centre: Candidate) -> Iterator[Candidate]:
        """The candidates that differ in one parameter, by one step among its legal values."""
        values = centre.parameters
        for name, (_, legal) in self.kernels[centre.kernel].parameters.items():
            steps = sorted(legal)
            place = steps.index(values[name])
            for step in (place - 1, place + 1):
                if 0 <= step < len(steps):
                    changed = {**values, name: steps[step]}
                    yield Candidate(centre.kernel, tuple(changed.items()))

    # ---- compilation and checks

    def is_right(self, product: Product, tried: Candidate) -> bool:
        """Whether a candidate can be run and gives the right result; if not, a warning says so."""
        problem = "the result is wrong"
        try:
            if product.is_right(tried):
                return True
        except (FunlibError, MemoryError) as error:
            problem = str(error)
        LOGGER.warning("%s is left out: %s: %s", tried, product, problem)
        return False

    def check_odd(self, product: Product, tried: Candidate) -> None:
        """Compiles a candidate and notes whether it is right on an odd shape."""
        self.sound[product.transposes, tried] = False
        for m, k, n in ODD:
            # Some kernels are for few rows.
            for rows in (m, min(m, product.m), 1):
                shape = (min(2, product.batches), rows, k, n)
                odd = Product(self.queue, self.dtype, shape, product.transposes)
                if odd.takes(tried):
                    self.sound[product.transposes, tried] = self.is_right(odd, tried)
                    return
        LOGGER.warning("%s is left out: it takes none of the shapes of the check", tried)

    def sound_ones(
        self, product: Product, wanted: Iterable[Candidate], deadline: float, least: int = 0
    ) -> list[Candidate]:
        """Those of the candidates that the product takes, that compile and that are right on an odd
        shape. `least` of them are compiled in any case, more as long as the deadline allows."""
        fitting = [each for each in dict.fromkeys(wanted) if product.takes(each)]
        new = [each for each in fitting if (product.transposes, each) not in self.sound]
        if new:
            self.compile(product, new, deadline, least)
        return [each for each in fitting if self.sound.get((product.transposes, each))]

    def compile(self, product: Product, new: list[Candidate], deadline: float, least: int) -> None:
        # Imported where it is needed: importing funlib does not pay for it.
        from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

        workers = compiler_count()
        started = time.perf_counter()
        done: set[Future] = set()
        running: set[Future] = set()
        with ThreadPoolExecutor(workers) as pool:
            for number, each in enumerate(new):
                if len(running) >= workers:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    done |= finished
                if number >= least and time.perf_counter() + self.compile_seconds > deadline:
                    break
                running.add(pool.submit(self.check_odd, product, each))
            done |= wait(running).done
        for future in done:
            future.result()
        if done:
            taken = time.perf_counter() - started
            self.compile_seconds = taken * min(workers, len(done)) / len(done)

    def prepare(self, products: Iterable[tuple[Shape, Layout]], deadline: float) -> None:
        """Compiles what the products start from, as far as the deadline allows: it is the same for
        most of them."""
        for shape, transposes in products:
            product = Product(self.queue, self.dtype, shape, transposes)
            self.sound_ones(product, [product.choice(), *self.starts(product)], deadline)

    # ---- measurement

    def quick_seconds(self, product: Product, tried: Candidate, best: float) -> float:
        """The fastest of a few calls; of one if that is hopeless. Infinite if it can't be run."""
        try:
            out = product.output()
            product.run(tried, out)
            seconds = product.seconds(tried, out)
            for _ in range(SAMPLES - 1):
                if seconds > HOPELESS * best:
                    break
                seconds = min(seconds, product.seconds(tried, out, seconds))
        except (FunlibError, MemoryError) as error:
            LOGGER.warning("%s is left out: %s: %s", tried, product, error)
            return math.inf
        return seconds

    def search(
        self, product: Product, part: Product, found: dict[Candidate, float], deadline: float
    ) -> None:
        """Adds to `found` what is met on the walk from its candidates and the starts, with the
        times on a part of the product. Each step goes to the neighbours of the fastest candidate
        that has not been gone on from."""

        def measure(wanted: Iterable[Candidate]) -> None:
            for each in self.sound_ones(product, wanted, deadline):
                if each not in found and time.perf_counter() < deadline and part.takes(each):
                    best = min(found.values(), default=math.inf)
                    found[each] = self.quick_seconds(part, each, best)

        measure(self.starts(product))
        visited: set[Candidate] = set()
        while time.perf_counter() < deadline:
            limit = HOPELESS * min(found.values(), default=math.inf)
            ahead = [
                each
                for each, seconds in found.items()
                if seconds < limit and each not in visited and each.kernel in self.kernels
            ]
            if not ahead:
                break
            centre = min(ahead, key=found.__getitem__)
            visited.add(centre)
            measure(each for each in self.neighbours(centre) if each not in found)

    def halve(
        self, product: Product, rivals: list[Candidate], model: Candidate | None, deadline: float
    ) -> dict[Candidate, float]:
        """Median times of the fastest rival and of the model's choice. The slower half of the
        rivals goes after each round; in a round the candidates take turns, in rotating order."""
        out = product.output()
        samples = 0
        while True:
            samples += 3
            runners = [*rivals, *([model] if model else [])]
            last_round = len(rivals) <= 1
            times: dict[Candidate, list[float]] = {each: [] for each in runners}
            for each in runners:
                product.run(each, out)
            for turn in range(FINAL_SAMPLES if last_round else samples):
                if turn >= 3 and time.perf_counter() > deadline:
                    break
                start = turn % len(runners)
                for each in runners[start:] + runners[:start]:
                    estimate = times[each][-1] if times[each] else 0.0
                    times[each].append(product.seconds(each, out, estimate))
            medians = {each: float(np.median(values)) for each, values in times.items()}
            if last_round:
                return medians
            late = time.perf_counter() > deadline
            rivals = sorted(rivals, key=medians.__getitem__)[: 1 if late else len(rivals) // 2]

    def tune(self, shape: Shape, transposes: Layout, seconds: float) -> TuneResult | None:
        """Tunes one product in about `seconds`; None if no kernel gives the right result."""
        deadline = time.perf_counter() + seconds
        product = Product(self.queue, self.dtype, shape, transposes)
        with _tuning.without_tables(self.queue):
            choice = product.choice()
        model = None
        found: dict[Candidate, float] = {}
        part = product
        whole = product.operations / SLOWEST
        if self.sound_ones(product, [choice], deadline, least=1) and self.is_right(product, choice):
            model = choice
            whole = product.seconds(model, product.output())
        part_shape = part_of(shape, whole)
        if part_shape != shape:
            part = Product(self.queue, self.dtype, part_shape, transposes)
            if model and not part.takes(model):
                part = product
        if model:
            found[model] = self.quick_seconds(part, model, math.inf)
        final = min(FINAL_SHARE * seconds, FINAL_CALLS * max(whole, SAMPLE_SECONDS))
        self.search(product, part, found, deadline - final)

        # As many as can be compared in what is left, at some ten calls each.
        left = deadline - time.perf_counter()
        count = min(FINALISTS, max(1, int(left / (10 * max(whole, SAMPLE_SECONDS)))))
        ranking = sorted(found, key=found.__getitem__)
        rivals = [each for each in ranking if each != model and found[each] < math.inf][:count]
        rivals = [each for each in rivals if self.is_right(product, each)]
        if not rivals and not model:
            return None
        medians = self.halve(product, rivals, model, deadline)
        winner = min(medians, key=medians.__getitem__)
        if model and medians[winner] > (1 - GAIN) * medians[model]:
            winner = model
        self.winners.append(winner)
        return TuneResult(
            self.dtype.name,
            *shape,
            *transposes,
            winner.kernel,
            winner.parameters,
            product.operations / medians[winner] / 1e9,
            product.operations / medians[model] / 1e9 if model else None,
            len(found),
        )


# ---- the function that users call ------------------------------------------------------------


def keep(queue: Queue, result: TuneResult) -> bool:
    """Writes a result to the user's table; False, after a warning, if that can't be done."""
    try:
        _tuning.save(queue.device, [entry_of(result)])
    except OSError as error:
        LOGGER.warning("the results of tuning can't be kept for later processes: %s", error)
        return False
    return True


def entry_of(result: TuneResult) -> _tuning.Entry:
    """The entry of a table for a result."""
    entry = {name: getattr(result, name) for name in _tuning.TYPES}
    entry["gflops"] = round(result.gflops, 3)
    if result.model_gflops is not None:
        entry["model_gflops"] = round(result.model_gflops, 3)
    entry["date"] = datetime.date.today().isoformat()
    return entry


def tune(
    shapes: str | Iterable[str | Sequence[int]] = "transformer",
    dtype: DTypeLike = "float32",
    *,
    queue: Queue | str | None = None,
    budget: float = 60.0,
    kernels: Iterable[str] | None = None,
    transposes: Iterable[Layout] = ((False, False),),
    progress: Callable[[str, float], None] | None = None,
    save: bool = True,
) -> list[TuneResult]:
    """Measures which kernel, with which parameters, is the fastest for each shape on a queue's
    device, and makes gemm() take it from then on.

    shapes: (M, K, N) or (batches, M, K, N), also as text, "128x256x64", or the name of a group,
    "transformer" for one. dtype: of A and B. queue: None is the default one. budget: seconds for
    all of it, which is kept roughly. kernels: names to try, beside what gemm() takes without
    tuning; None: all. transposes: pairs (of A, of B); each is tuned for each shape. progress:
    called with a text and the part done, 0 to 1; None shows both on standard error if that is a
    terminal. save: results are kept for later processes, in the user's table (docs/tuning.md).

    Each candidate's result is checked before it counts, and it replaces the choice that the library
    would make only if it is more than 2 % faster. Where the time was too short to compare anything
    (`candidates` is 1), nothing changes. The machine should do nothing else meanwhile.

    Returns a TuneResult for each product: the product (`dtype`, `batches`, `m`, `k`, `n`,
    `transpose_a`, `transpose_b`), `kernel`, `parameters`, `gflops`, `model_gflops` (of the
    library's choice; None if its result was wrong) and `candidates`, the number of those measured.
    Products of at most 4 columns are tuned as those of the transposed operands, which gemm() does
    instead. A product has no result if no kernel is right for it or no time was left. Raises
    ValueError for shapes or a budget that can't be, LookupError for an unknown kernel, TypeError
    for an unknown data type, UnsupportedError for one that the device lacks, MemoryError.
    """
    held = queue if isinstance(queue, Queue) else get_queue(queue)
    tuner = Tuner(held, dtype, kernels)
    if not budget > 0:
        raise ValueError(f"budget must be more than 0 seconds, not {budget}")
    products = tuner.products(shapes, transposes)
    show = progress if progress is not None else terminal_progress()
    start = time.perf_counter()
    results = []
    if len(products) > 1:
        show("compiling", 0.0)
        tuner.prepare(products, start + PREPARE_SHARE * budget)
    for number, (shape, layout) in enumerate(products):
        left = start + budget - time.perf_counter()
        if left <= 0:
            LOGGER.warning("%d products are not tuned: time is over", len(products) - number)
            break
        text = "x".join(map(str, shape if shape[0] > 1 else shape[1:]))
        show(f"{number + 1} of {len(products)}: {text}", number / len(products))
        result = tuner.tune(shape, layout, left / (len(products) - number))
        if result is None:
            LOGGER.warning("%s is not tuned: no kernel gave the right result", text)
            continue
        results.append(result)
        if result.candidates == 1:
            continue  # nothing was compared
        if _tuning.enabled():
            _tuning.use(held, [entry_of(result)])
        if save:
            save = keep(held, result)
    show("", 1.0)
    return results
