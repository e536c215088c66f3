"""One GEMM as a line that can be run again, held against the reference of perf/expected.py."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
from helpers import SOURCE

import funlib

sys.path.append(str(SOURCE / "perf"))

import expected
from expected import gemm, poison, problem

__all__ = ["LAYOUTS", "OUT_LAYOUTS", "Case", "gemm", "poison", "problem", "random", "tensors"]


def supports(a, b, **options) -> bool:
    """Whether gemm(a, b, **options) can be done: some kernels are for few rows or one device."""
    try:
        funlib.explain(a, b, **options)
    except funlib.UnsupportedError:
        return False
    return True


def turned(array):
    """A view with the last two dimensions exchanged, of a NumPy array or a tensor."""
    axes = list(range(array.ndim))
    axes[-2:] = axes[:-3:-1]
    return array.transpose(axes)


# How rows x columns matrices, of a batch or single, lie in a larger, C-contiguous allocation: the
# last dimensions of the allocation and the indexing that finds the matrices in it, which works on
# NumPy arrays and on tensors alike.
LAYOUTS = {
    "c": (lambda r, c: (r, c), lambda base, r, c: base),
    "f": (lambda r, c: (c, r), lambda base, r, c: turned(base)),
    "rows": (lambda r, c: (2 * r, c), lambda base, r, c: base[..., ::2, :]),
    "columns": (lambda r, c: (r, 3 * c), lambda base, r, c: base[..., 1::3]),
    "block": (lambda r, c: (r + 3, c + 5), lambda base, r, c: base[..., 2 : 2 + r, 4 : 4 + c]),
    "f_block": (lambda r, c: (c + 1, r + 2), lambda base, r, c: turned(base[..., 1:, 2:])),
    "up": (lambda r, c: (r, c), lambda base, r, c: base[..., ::-1, :]),
    "left": (lambda r, c: (r, c), lambda base, r, c: base[..., ::-1]),
    "up_left": (lambda r, c: (r, 2 * c), lambda base, r, c: base[..., ::-1, ::-2]),
    "slice_3d": (lambda r, c: (r, 3, c), lambda base, r, c: base[..., 1, :]),
    "f_3d": (lambda r, c: (c, 2, r), lambda base, r, c: turned(base[..., 1, :])),
}
# Element-wise writable without two indices meeting at one element: all of the above.
OUT_LAYOUTS = tuple(LAYOUTS)


def place(values, layout: str):
    """(base, view): a poisoned host array in which `view` has the given values and layout."""
    *batch, rows, columns = values.shape
    shape, find = LAYOUTS[layout]
    base = np.full((*batch, *shape(rows, columns)), poison(values.dtype), values.dtype)
    view = find(base, rows, columns)
    view[...] = values
    return base, view


def random_matrix(rng, shape, dtype):
    """Standard normal, or the whole range of an integer type."""
    if not expected.is_integer(dtype):
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def tensors(queue, *arrays):
    """The arrays on the device."""
    return [funlib.DeviceTensor.from_numpy(array, queue=queue) for array in arrays]


def random(queue, shape, dtype="float32", seed=0):
    """A random array, and the same on the device."""
    values = random_matrix(np.random.default_rng(seed), shape, dtype)
    return values, *tensors(queue, values)


@dataclasses.dataclass(frozen=True)
class Case:
    """One GEMM. `check()` runs it and raises AssertionError with the line that runs it again.

    out: None (the library makes C) or a layout. batch_a, batch_b: dimensions before the last two,
    which are broadcast. packed: B is packed before. queue: the name of a registered queue, or None.
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
    batch_a: tuple[int, ...] = ()
    batch_b: tuple[int, ...] = ()
    packed: bool = False
    bias: bool = False
    activation: str | None = None
    out_dtype: str | None = None
    parameters: dict[str, int] | None = None
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
        a = random_matrix(rng, (*self.batch_a, *shape_a), self.dtype)
        b = random_matrix(rng, (*self.batch_b, *shape_b), self.dtype)
        operands = []
        for values, layout in ((a, self.a), (b, self.b)):
            base, _ = place(values, layout)
            device = funlib.DeviceTensor.from_numpy(base, queue=queue)
            operands.append(LAYOUTS[layout][1](device, *values.shape[-2:]))
        out_dtype = self.out_dtype or expected.output_of(self.dtype).name
        shape = (*np.broadcast_shapes(self.batch_a, self.batch_b), self.m, self.n)
        options = {
            "transpose_a": self.transpose_a,
            "transpose_b": self.transpose_b,
            "activation": self.activation,
            "out_dtype": self.out_dtype,
            "queue": queue,
            "kernel": self.kernel,
            "parameters": self.parameters,
        }
        if self.packed:
            del options["transpose_b"]
            operands[1] = funlib.pack_weights(
                operands[1], transpose_b=self.transpose_b, queue=queue
            )
        bias = None
        if self.bias:
            bias = random_matrix(rng, (self.n,), out_dtype)
            options["bias"] = funlib.DeviceTensor.from_numpy(bias, queue=queue)
        if not supports(*operands, **options):
            try:
                funlib.gemm(*operands, **options)
            except funlib.UnsupportedError:
                return None
            return "gemm did what explain refuses"
        scalars = {"alpha": self.alpha, "beta": self.beta}
        c = base = out_base = None
        if self.out is not None:
            c = np.full(shape, poison(out_dtype), out_dtype)
            if self.beta != 0:
                c = random_matrix(rng, shape, out_dtype)
            base, view = place(c, self.out)
            out_base = funlib.DeviceTensor.from_numpy(base, queue=queue)
            out = LAYOUTS[self.out][1](out_base, self.m, self.n)
            returned = funlib.gemm(*operands, out=out, **scalars, **options)
            if returned is not out:
                return "gemm did not return `out`"
        else:
            # What the allocator hands out again is poisoned.
            funlib.DeviceTensor.full(shape, poison(out_dtype), out_dtype, queue=queue).wait()
            out = funlib.gemm(*operands, **scalars, **options)
        if self.kernel and out.size > 0 and not out.event.label.startswith(f"{self.kernel} "):
            return f"{out.event.label!r} ran"
        result = out.to_host()
        if result.dtype != np.dtype(out_dtype):
            return f"data type {result.dtype} instead of {out_dtype}"
        left, right = turned(a) if self.transpose_a else a, turned(b) if self.transpose_b else b
        epilogue = {"bias": bias, "activation": self.activation, "out_dtype": self.out_dtype}
        failure = problem(result, *gemm(left, right, c, **scalars, **epilogue))
        if failure is None and out_base is not None:
            view[...] = result
            after = out_base.to_host()
            if after.tobytes() != base.tobytes():
                return f"elements beside the {self.out!r} view of out were written"
        return failure
