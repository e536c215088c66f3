"""The reference and its tolerance: loose enough for any order of summation, tight enough to see a
single wrong term."""

import numpy as np
import pytest
import reference

FLOATS = ["float32", "float64"]


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
