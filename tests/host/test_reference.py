"""The reference and its tolerance: loose enough for any order of summation, tight enough to see a
single wrong term."""

import math

import numpy as np
import pytest
import reference
from reference import expected

import funlib

FLOATS = ["float32", "float64"]
SMALL_FLOATS = ["float16", "bfloat16"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("k", [1, 2, 17, 300, 4096])
def test_any_order_of_summation_passes(dtype, k):
    rng = np.random.default_rng(k)
    a = rng.standard_normal((4, k)).astype(dtype)
    b = rng.standard_normal((k, 5)).astype(dtype)
    expected, bound = reference.gemm(a, b, alpha=1.7)
    alpha = np.dtype(dtype).type(1.7)
    for order in (np.arange(k), np.arange(k)[::-1], rng.permutation(k)):
        total = np.zeros((4, 5), dtype)
        for i in order:
            total += a[:, i : i + 1] * b[i : i + 1]
        assert reference.problem(alpha * total, expected, bound) is None
    assert reference.problem(alpha * (a @ b), expected, bound) is None


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_wrong_term_fails(dtype):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 300)).astype(dtype)
    b = rng.standard_normal((300, 50)).astype(dtype)
    expected, bound = reference.gemm(a, b)
    wrong = a.copy()
    wrong[3, 299] = 0
    assert "at (3, 0)" in reference.problem(wrong @ b, expected, bound)
    assert reference.problem((a @ b)[:, ::-1], expected, bound)
    assert reference.problem((a @ b).T, expected, bound)
    half = a.astype(np.float16) @ b.astype(np.float16)
    assert reference.problem(half.astype(dtype), expected, bound)


@pytest.mark.parametrize("out_dtype", [None, "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_small_types_are_summed_in_float32(dtype, out_dtype):
    """A float32 product rounded once passes, one that was summed in the small type does not."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal((8, 500)).astype(dtype)
    b = rng.standard_normal((500, 9)).astype(dtype)
    c = rng.standard_normal((8, 9)).astype(out_dtype or dtype)
    bias = rng.standard_normal(9).astype(out_dtype or dtype)
    reference_of = reference.gemm(a, b, c, 0.5, -2.0, bias, out_dtype=out_dtype)
    wide = [x.astype(np.float32) for x in (a, b, c, bias)]
    whole = 0.5 * (wide[0] @ wide[1]) - 2 * wide[2] + wide[3]
    assert reference.problem(whole.astype(out_dtype or dtype), *reference_of) is None
    total = np.zeros((8, 9), dtype)
    for k in range(500):
        total += a[:, k : k + 1] * b[k]
    small = (0.5 * total.astype(np.float32) - 2 * wide[2] + wide[3]).astype(out_dtype or dtype)
    assert reference.problem(small, *reference_of)
    # Truncation instead of rounding shows in the small types; a missing bias in all.
    assert reference.problem((whole - wide[3]).astype(out_dtype or dtype), *reference_of)
    if (out_dtype or dtype) == "bfloat16":
        cut = (whole.view(np.uint32) & 0xFFFF0000).view(np.float32)
        assert reference.problem(cut.astype("bfloat16"), *reference_of)


@pytest.mark.parametrize("activation", expected.SLOPES)
def test_activations(activation):
    """Known values; no slope is steeper than said; float32 arithmetic passes and others don't."""
    x = np.linspace(-20, 20, 400_001)
    y = expected.activated(x, activation)
    known = {"relu": 1.0, "gelu": 0.841344746, "gelu_tanh": 0.841191990, "silu": 0.731058579}
    assert expected.activated(np.array([1.0]), activation)[0] == pytest.approx(known[activation])
    slope = abs(np.diff(y) / np.diff(x)).max()
    assert slope <= expected.SLOPES[activation] * (1 + 1e-9)
    assert slope > 0.95 * expected.SLOPES[activation]
    row, one = np.linspace(-9, 9, 1001, dtype=np.float32)[None], np.ones((1, 1), np.float32)
    wanted = reference.gemm(one, row, activation=activation)
    with np.errstate(over="ignore"):
        single = expected.activated(row, activation).astype(np.float32)
    assert reference.problem(single, *wanted) is None
    for other in expected.SLOPES:
        if other != activation:
            assert reference.problem(expected.activated(row, other), *wanted)


def test_special_values_of_activations():
    x = np.array([[np.inf, -np.inf, np.nan, -1e30, 1e30]], np.float32)
    one = np.ones((1, 1), np.float32)
    nan, inf = math.nan, math.inf
    for activation, values in (
        ("relu", [inf, 0, nan, 0, 1e30]),
        ("gelu", [inf, nan, nan, 0, 1e30]),
        ("gelu_tanh", [inf, nan, nan, 0, 1e30]),
        ("silu", [inf, nan, nan, 0, 1e30]),
    ):
        wanted, bound = reference.gemm(one, x, activation=activation)
        result = np.array([values], np.float32)
        assert reference.problem(result, wanted, bound) is None
        for place in (0, 1, 2):
            bad = result.copy()
            bad[0, place] = 3
            assert reference.problem(bad, wanted, bound), (activation, place)


def test_overflow_of_a_small_type():
    a, b = np.full((1, 1), 256, np.float16), np.array([[255, 256, -300]], np.float16)
    wanted = reference.gemm(a, b)
    assert reference.problem(np.array([[65280, np.inf, -np.inf]], np.float16), *wanted) is None
    for result in ([65280, 65504, -np.inf], [np.inf, np.inf, -np.inf], [65280, np.inf, np.inf]):
        assert reference.problem(np.array([result], np.float16), *wanted)


def test_float64_result_is_not_float32():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((8, 30)), rng.standard_normal((30, 8))
    rounded = a.astype(np.float32) @ b.astype(np.float32)
    assert reference.problem(rounded.astype(np.float64), *reference.gemm(a, b))


def test_special_values_must_be_in_place():
    a = np.array([[1, np.nan], [np.inf, 1]], np.float32)
    b = np.array([[1, 0], [2, 1]], np.float32)
    expected, bound = reference.gemm(a, b)
    good = np.array([[np.nan, np.nan], [np.inf, np.nan]], np.float32)
    assert reference.problem(good, expected, bound) is None
    for where, value in (((0, 0), 1), ((1, 0), -np.inf), ((1, 0), np.nan), ((1, 1), 1)):
        bad = good.copy()
        bad[where] = value
        assert reference.problem(bad, expected, bound)


def test_integers_wrap():
    a, b = np.array([[2**31 - 1]], np.int32), np.array([[2]], np.int32)
    expected, bound = reference.gemm(a, b, np.array([[5]], np.int32), alpha=3, beta=-2)
    assert expected.dtype == np.int32
    assert expected[0, 0] == -6 - 10
    assert reference.problem(expected + np.int32(1), expected, bound)
    rng = np.random.default_rng(2)
    a = rng.integers(-(2**31), 2**31, (4, 90), np.int32, endpoint=False)
    b = rng.integers(-(2**31), 2**31, (2, 90, 3), np.int32, endpoint=False)
    exact = [[[sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) for column in each.T]
              for row in a] for each in b]  # fmt: skip
    wrapped = [[[(x + 2**31) % 2**32 - 2**31 for x in row] for row in each] for each in exact]
    assert np.array_equal(reference.gemm(a, b)[0], wrapped)


def test_int8_is_summed_in_int32():
    a, b = np.full((1, 300), -128, np.int8), np.full((300, 2), 127, np.int8)
    wanted, bound = reference.gemm(a, b, bias=np.array([1, 2], np.int32), activation="relu")
    assert wanted.dtype == np.int32
    assert (wanted == 0).all()
    wanted, _ = reference.gemm(a, b, bias=np.array([1, 2], np.int32))
    assert wanted.tolist() == [[1 - 300 * 128 * 127, 2 - 300 * 128 * 127]]
    assert (bound == 0).all()


def test_inputs_that_are_not_read():
    bad = np.full((2, 2), np.nan, np.float32)
    expected, _ = reference.gemm(bad, bad, bad, alpha=0.0, beta=0.0)
    assert (expected == 0).all()


@pytest.mark.parametrize("layout", reference.LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 4), (4, 0)])
def test_layouts_hold_their_values(layout, shape):
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    base, view = reference.place(values, layout)
    assert base.flags.c_contiguous
    assert np.array_equal(view, values)
    assert np.isnan(base).sum() == base.size - values.size


def test_failing_case_prints_the_line_that_runs_it_again(monkeypatch):
    case = reference.Case("gemm", "float32", 3, 4, 5, alpha=2.5, out="rows", queue="tests")
    monkeypatch.setattr(reference.Case, "run", lambda self: "wrong")
    with pytest.raises(AssertionError) as raised:
        case.check()
    line = str(raised.value).splitlines()[-1]
    code = line.split(' -c "', 1)[1].rstrip('"')
    assert code.startswith("from reference import Case; Case(kernel='gemm', dtype='float32'")
    assert code.endswith(".check()")
    compile(code, "line", "exec")


def test_knows_the_data_types_of_the_kernels():
    known = {np.dtype(dtype).name for kernel in funlib.kernels() for dtype in kernel.dtypes}
    assert known == set(expected.DTYPES)
