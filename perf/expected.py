"""What a GEMM has to return, and how far from it a right result may be: for benchmarks and tests.

The reference computes in float64, exactly for integers, whatever the data type under test. The
tolerance is the a-priori bound of a sum in any order, with or without fused multiply-add (Higham,
Accuracy and Stability of Numerical Algorithms, section 3.1):

    |computed - exact| <= gamma(K + 3) * (|alpha| * |A| @ |B| + |beta| * |C| + |bias|)

with gamma(n) = n u / (1 - n u) and u half the distance between 1 and the next number of the type
that sums are kept in: float32 for float16 and bfloat16, else the data type itself. The sum has
K + 2 terms, whose additions are K + 1; the other two are the multiplications, by each other and by
alpha. A term of the smallest normal number for each operation covers devices that flush subnormal
numbers to zero. For float64 the reference is rounded too, so the bound counts twice.

An activation changes the error by no more than its steepest slope and adds one of its own. Then the
result is rounded to the type of C, if that is another one than that of the sums.
"""

import contextlib
import math

import numpy as np

with contextlib.suppress(ImportError):
    import ml_dtypes  # makes NumPy know bfloat16

DTYPES = ("float32", "float64", "int32", "float16", "bfloat16", "int8")

# What sums of a type are kept in, where that is another type.
SUMS = {"float16": "float32", "bfloat16": "float32", "int8": "int32"}

# Steepest slopes of the activations.
SLOPES = {"relu": 1.0, "gelu": 1.13, "gelu_tanh": 1.13, "silu": 1.1}
# The error of the library's functions, relative to the larger of 1 and |x|: of float32, which are
# polynomials and rational functions of its own, and of float64, of a few roundings.
FUNCTION_ERRORS = {"float32": 5e-7, "float64": 4e-15}


def is_integer(dtype):
    """Whether a data type is one of integers."""
    return np.dtype(dtype).name.startswith("int")


def float_info(dtype):
    """numpy.finfo, of bfloat16 too."""
    return ml_dtypes.finfo(dtype) if np.dtype(dtype).name == "bfloat16" else np.finfo(dtype)


def sums_of(dtype):
    """The data type that sums of products of a type are kept in."""
    name = np.dtype(dtype).name
    return np.dtype(SUMS.get(name, name))


def output_of(dtype):
    """The data type of C where none is asked for: that of A and B, int32 for int8."""
    return sums_of(dtype) if is_integer(dtype) else np.dtype(dtype)


def poison(dtype):
    """A value that shows when it gets into a result: NaN, or an odd number near the smallest."""
    dtype = np.dtype(dtype)
    return dtype.type(np.iinfo(dtype).min + 77 if is_integer(dtype) else math.nan)


def gamma(operations, dtype):
    """Relative error bound of that many roundings in a data type."""
    error = operations * float(float_info(dtype).eps) / 2
    return error / (1 - error)


def activated(x, activation):
    """The activation of float64 or int32 values: funlib_activation's formulas."""
    if activation in (None, "none"):
        return x
    if activation == "relu":
        return np.where(x < 0, np.zeros_like(x), x)
    if activation == "gelu":
        erf = np.vectorize(math.erf, otypes=[np.float64])
        return x / 2 * (1 + erf(x / math.sqrt(2)))
    if activation == "gelu_tanh":
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if activation == "silu":
        return x / (1 + np.exp(-x))
    raise ValueError(f"unknown activation {activation!r}")


def wrapped_product(a, b):
    """The product of integers modulo 2^32, exactly, for K up to 2^20.

    Operands are split into halves of 16 bits. Sums of K products of halves stay below 2^53, so
    float64 holds them exactly and the BLAS can form them.
    """
    halves = [(x & 0xFFFF, x >> 16) for x in (a.astype(np.int64), b.astype(np.int64))]
    (a_low, a_high), (b_low, b_high) = [[half.astype(np.float64) for half in x] for x in halves]
    low = (a_low @ b_low).astype(np.int64)
    middle = (a_high @ b_low).astype(np.int64) + (a_low @ b_high).astype(np.int64)
    return low + (middle << 16)


def integer_gemm(a, b, c, alpha, beta, bias, activation):
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    expected = np.zeros(shape, np.int64)
    if alpha != 0:
        expected = expected + int(alpha) * wrapped_product(a, b)
    if beta != 0:
        expected = expected + int(beta) * c.astype(np.int64)
    if bias is not None:
        expected = expected + bias
    return activated(expected.astype(np.int32), activation), np.zeros(shape)


# What an operand is off by, relatively, when it is cut to the 10 bits of mantissa of TF32.
TF32_ROUNDING = 2.0**-10


def gemm(
    a,
    b,
    c=None,
    alpha=1.0,
    beta=0.0,
    bias=None,
    activation=None,
    out_dtype=None,
    precision=None,
):
    """(expected, bound) for act(alpha * a @ b + beta * c + bias) of NumPy arrays, a and b of at
    least two dimensions and of one data type. out_dtype: None is output_of(a.dtype). precision:
    "tf32" where a and b may have been rounded to TF32.

    With beta == 0, c is not read; with alpha == 0, a and b are not. For float types, expected is
    float64 and bound the largest allowed difference, element by element; for integers, expected is
    the result modulo 2^32 and bound is 0.
    """
    sums = sums_of(a.dtype)
    with np.errstate(all="ignore"):
        if is_integer(sums):
            return integer_gemm(a, b, c, alpha, beta, bias, activation)
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        expected, magnitude = np.zeros(shape), np.zeros(shape)
        # The device sees alpha and beta rounded to the type of the sums.
        alpha, beta = float(sums.type(alpha)), float(sums.type(beta))
        operations = 3
        if alpha != 0 and a.shape[-1] > 0:
            operations += a.shape[-1]
            a64, b64 = a.astype(np.float64), b.astype(np.float64)
            expected = expected + alpha * (a64 @ b64)
            magnitude = magnitude + abs(alpha) * (abs(a64) @ abs(b64))
        if beta != 0:
            expected = expected + beta * c.astype(np.float64)
            magnitude = magnitude + abs(beta * c.astype(np.float64))
        if bias is not None:
            expected = expected + bias.astype(np.float64)
            magnitude = magnitude + abs(bias.astype(np.float64))
        bound = gamma(operations, sums) * magnitude
        if precision == "tf32":
            bound += 2 * TF32_ROUNDING * magnitude
        if magnitude.any():
            bound += operations * (1 + abs(alpha)) * float(float_info(sums).tiny)
        # What is not finite is not off by something.
        bound = np.where(np.isfinite(expected), bound, 0)
        if activation not in (None, "none"):
            bound = SLOPES[activation] * bound
            if activation != "relu":
                bound += FUNCTION_ERRORS[sums.name] * np.maximum(1, abs(expected))
            expected = activated(expected, activation)
            bound = np.where(np.isfinite(expected), bound, 0)
        if sums == np.float64:
            bound = 2 * bound
        out = np.dtype(out_dtype) if out_dtype is not None else output_of(a.dtype)
        if out != sums:
            expected, bound = rounded(expected, bound, out)
    return expected, bound


def rounded(expected, bound, out):
    """What gemm() returns, after a rounding to the data type `out`."""
    info = float_info(out)
    finite = np.isfinite(expected)
    # From halfway between the largest number and the next, which there isn't, on, it is infinity.
    limit = float(info.max) * (1 + float(info.eps) / 4)
    undecided = finite & (abs(abs(expected) - limit) <= bound)
    error = float(info.eps) / 2 * (abs(expected) + bound) + float(info.tiny)
    bound = np.where(undecided, np.inf, np.where(finite, bound + error, 0))
    return np.where(abs(expected) > limit, np.copysign(np.inf, expected), expected), bound


def problem(result, expected, bound):
    """What is wrong with the result, as a text, or None. Infinities and NaN must be where expected,
    unless the bound is infinite."""
    if result.shape != expected.shape:
        return f"shape {result.shape} instead of {expected.shape}"
    finite = np.isfinite(expected)
    with np.errstate(all="ignore"):
        values = result.astype(np.float64)
        good = np.where(
            finite,
            abs(values - expected) <= bound,
            (values == expected) | (np.isnan(values) & np.isnan(expected)) | (bound == np.inf),
        )
    if good.all():
        return None
    where = tuple(int(i) for i in np.argwhere(~good)[0])
    allowed = f" (bound {bound[where]:.3g})" if finite[where] else ""
    return (
        f"{np.count_nonzero(~good)} of {good.size} elements wrong; the first at {where}: "
        f"{result[where]!r} instead of {expected[where]!r}{allowed}"
    )
