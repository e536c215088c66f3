"""What a GEMM has to return, how far it may be off, and one GEMM as a line that can be run again.

The reference computes in float64 (int64 for int32), whatever the data type under test. The one
tolerance of the test suite is the a-priori bound of a dot product of length K summed in any order,
with or without fused multiply-add (Higham, Accuracy and Stability of Numerical Algorithms, 3.1):

    |computed - exact| <= gamma(K + 2) * |alpha| * (|A| @ |B|) + gamma(3) * |beta| * |C|

with gamma(n) = n u / (1 - n u) and u half the distance between 1 and the next number. The 2 stands
for the multiplication by alpha and the addition of beta * C, the 3 for converting beta, multiplying
and adding. A term of the smallest normal number for each operation covers devices that flush
subnormal numbers to zero. For float64 the reference is rounded too, so the bound counts twice.
"""

from __future__ import annotations

import dataclasses
import sys

import numpy as np

import funlib


def gamma(operations: int, dtype) -> float:
    """Relative error bound of that many roundings in the data type."""
    unit = float(np.finfo(dtype).eps) / 2
    return operations * unit / (1 - operations * unit)


def gemm(a, b, c=None, alpha=1.0, beta=0.0):
    """(expected, bound) for alpha * a @ b + beta * c of NumPy matrices of one data type.

    With beta == 0, c is not read; with alpha == 0, a and b are not. For float types, expected is
    float64 and bound the largest allowed difference, element by element; for int32, expected is the
    result modulo 2**32 and bound is 0.
    """
    dtype = a.dtype
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    with np.errstate(all="ignore"):
        if dtype == np.int32:
            expected = np.zeros((m, n), np.int64)
            if alpha != 0:
                expected += int(alpha) * (a.astype(np.int64) @ b.astype(np.int64))
            if beta != 0:
                expected += int(beta) * c.astype(np.int64)
            return expected.astype(np.int32), np.zeros((m, n))
        expected, bound = np.zeros((m, n)), np.zeros((m, n))
        tiny = float(np.finfo(dtype).tiny)
        # The device sees alpha and beta rounded to its data type.
        alpha, beta = float(dtype.type(alpha)), float(dtype.type(beta))
        if alpha != 0 and k > 0:
            a64, b64 = a.astype(np.float64), b.astype(np.float64)
            expected += alpha * (a64 @ b64)
            bound += gamma(k + 2, dtype) * abs(alpha) * (abs(a64) @ abs(b64))
            bound += (k + 2) * (1 + abs(alpha)) * tiny
        if beta != 0:
            c64 = c.astype(np.float64)
            expected += beta * c64
            bound += gamma(3, dtype) * abs(beta * c64) + 3 * tiny
        if dtype == np.float64:
            bound *= 2
    return expected, bound


def problem(result, expected, bound) -> str | None:
    """What is wrong with the result, or None. Infinities and NaN must be where expected."""
    if result.shape != expected.shape:
        return f"shape {result.shape} instead of {expected.shape}"
    finite = np.isfinite(expected)
    with np.errstate(all="ignore"):
        difference = np.where(finite, abs(result.astype(np.float64) - expected), 0.0)
        good = np.where(
            finite,
            difference <= bound,
            (result == expected) | (np.isnan(result) & np.isnan(expected)),
        )
    if good.all():
        return None
    where = tuple(int(i) for i in np.argwhere(~good)[0])
    allowed = f" (bound {bound[where]:.3g})" if finite[where] else ""
    return (
        f"{np.count_nonzero(~good)} of {good.size} elements wrong; the first at {where}: "
        f"{result[where]!r} instead of {expected[where]!r}{allowed}"
    )


def supports(a, b, **options) -> bool:
    """Whether gemm(a, b, **options) can be done: some kernels are for few rows or one device."""
    try:
        funlib.explain(a, b, **options)
    except funlib.UnsupportedError:
        return False
    return True


# How a rows x columns operand lies in a larger, C-contiguous allocation: the allocation's shape and
# the indexing that finds the operand in it, which works on NumPy arrays and on tensors alike.
LAYOUTS = {
    "c": (lambda r, c: (r, c), lambda base, r, c: base),
    "f": (lambda r, c: (c, r), lambda base, r, c: base.T),
    "rows": (lambda r, c: (2 * r, c), lambda base, r, c: base[::2]),
    "columns": (lambda r, c: (r, 3 * c), lambda base, r, c: base[:, 1::3]),
    "block": (lambda r, c: (r + 3, c + 5), lambda base, r, c: base[2 : 2 + r, 4 : 4 + c]),
    "f_block": (lambda r, c: (c + 1, r + 2), lambda base, r, c: base[1:, 2:].T),
    "up": (lambda r, c: (r, c), lambda base, r, c: base[::-1]),
    "left": (lambda r, c: (r, c), lambda base, r, c: base[:, ::-1]),
    "up_left": (lambda r, c: (r, 2 * c), lambda base, r, c: base[::-1, ::-2]),
    "slice_3d": (lambda r, c: (r, 3, c), lambda base, r, c: base[:, 1, :]),
    "f_3d": (lambda r, c: (c, 2, r), lambda base, r, c: base[:, 1, :].T),
}
# Element-wise writable without two indices meeting at one element: all of the above.
OUT_LAYOUTS = tuple(LAYOUTS)


def poison(dtype):
    """A value that shows when it gets into a result: NaN, or a large odd number for integers."""
    dtype = np.dtype(dtype)
    return dtype.type(np.nan) if dtype.kind == "f" else dtype.type(-1234567891)


def place(values, layout: str):
    """(base, view): a poisoned host array in which `view` has the given values and layout."""
    rows, columns = values.shape
    shape, find = LAYOUTS[layout]
    base = np.full(shape(rows, columns), poison(values.dtype), values.dtype)
    view = find(base, rows, columns)
    view[...] = values
    return base, view


def random_matrix(rng, shape, dtype):
    """Standard normal, or the whole range of a type that wraps."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


@dataclasses.dataclass(frozen=True)
class Case:
    """One GEMM. `check()` runs it and raises AssertionError with the line that runs it again.

    out: None (the library makes C) or a layout. queue: the name of a registered queue, or None.
    """

    kernel: str | None
    dtype: str
    m: int
    k: int
    n: int
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    beta: float = 0.0
    a: str = "c"
    b: str = "c"
    out: str | None = None
    seed: int = 0
    queue: str | None = None

    def check(self):
        failure = self.run()
        if failure:
            line = dataclasses.replace(self, queue=None)
            raise AssertionError(
                f"{failure}\nto run it again, from the top folder of the source:\n"
                f"PYTHONPATH=tests:$PYTHONPATH {sys.executable} -P -c "
                f'"from reference import Case; {line!r}.check()"'
            )

    def run(self) -> str | None:
        """What went wrong, or None."""
        queue = funlib.get_queue(self.queue)
        rng = np.random.default_rng(self.seed)
        shape_a = (self.k, self.m) if self.transpose_a else (self.m, self.k)
        shape_b = (self.n, self.k) if self.transpose_b else (self.k, self.n)
        a = random_matrix(rng, shape_a, self.dtype)
        b = random_matrix(rng, shape_b, self.dtype)
        operands = []
        for values, layout in ((a, self.a), (b, self.b)):
            base, _ = place(values, layout)
            device = funlib.DeviceTensor.from_numpy(base, queue=queue)
            operands.append(LAYOUTS[layout][1](device, *values.shape))
        scalars = {"alpha": self.alpha, "beta": self.beta}
        options = {
            "transpose_a": self.transpose_a,
            "transpose_b": self.transpose_b,
            "queue": queue,
            "kernel": self.kernel,
        }
        if not supports(*operands, **options):
            try:
                funlib.gemm(*operands, **options)
            except funlib.UnsupportedError:
                return None
            return "gemm did what explain refuses"
        c = base = out_base = None
        if self.out is not None:
            c = np.full((self.m, self.n), poison(self.dtype), self.dtype)
            if self.beta != 0:
                c = random_matrix(rng, c.shape, self.dtype)
            base, view = place(c, self.out)
            out_base = funlib.DeviceTensor.from_numpy(base, queue=queue)
            out = LAYOUTS[self.out][1](out_base, self.m, self.n)
            returned = funlib.gemm(*operands, out=out, **scalars, **options)
            if returned is not out:
                return "gemm did not return `out`"
        else:
            # What the allocator hands out again is poisoned.
            funlib.DeviceTensor.full(
                (self.m, self.n), poison(self.dtype), self.dtype, queue=queue
            ).wait()
            out = funlib.gemm(*operands, **scalars, **options)
        result = out.to_host()
        if result.dtype != np.dtype(self.dtype):
            return f"data type {result.dtype} instead of {self.dtype}"
        expected, bound = gemm(
            a.T if self.transpose_a else a, b.T if self.transpose_b else b, c, **scalars
        )
        failure = problem(result, expected, bound)
        if failure is None and out_base is not None:
            view[...] = result
            after = out_base.to_host()
            if after.tobytes() != base.tobytes():
                return f"elements beside the {self.out!r} view of out were written"
        return failure
