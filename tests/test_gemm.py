"""Every kernel of the registry against the reference, and the rules that hold for all of them."""

import functools
import itertools

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import reference
from helpers import SOURCE
from reference import LAYOUTS, OUT_LAYOUTS, Case, expected, random, supports, tensors

import funlib
from funlib import DeviceTensor

KERNELS = {kernel.name: kernel for kernel in funlib.kernels()}
KERNEL_DTYPES = [(k.name, np.dtype(d).name) for k in KERNELS.values() for d in k.dtypes]
DTYPES = sorted({dtype for _, dtype in KERNEL_DTYPES})
FLOAT_DTYPES = [dtype for dtype in DTYPES if not expected.is_integer(dtype)]
TRANSPOSES = list(itertools.product((False, True), repeat=2))
# Kernels whose source reads B by gemm_common.hpp's element_b. In them, what transposed operands and
# types that are summed in another one change does not meet: each is tested without the other, since
# every specialisation takes seconds to compile.
ELEMENT_LOADS = {
    name
    for name, kernel in KERNELS.items()
    if "element_b(" in (SOURCE / "lib" / "kernels" / kernel.source).read_text()
}

# (M, K, N)
SHAPES = [
    (1, 1, 1),
    (2, 3, 4),
    (16, 16, 16),
    (64, 64, 64),
    (128, 128, 128),
    (8, 64, 200),
    (200, 8, 64),
    (64, 200, 8),
    (17, 19, 23),
    (127, 129, 131),
    (1, 57, 33),
    (33, 57, 1),
    (33, 1, 57),
    (1, 1, 100),
    (1, 100, 1),
    (100, 1, 1),
    (3, 1025, 5),
    (20, 600, 70),
    (0, 5, 7),
    (5, 7, 0),
    (0, 7, 0),
    (5, 0, 7),
    (0, 0, 0),
]


# Types that are widened on the way to the sums differ in loads and stores only.
FEW_SHAPES = [
    (2, 3, 4),
    (17, 19, 23),
    (127, 129, 131),
    (1, 57, 33),
    (33, 57, 1),
    (20, 600, 70),
    (0, 5, 7),
    (5, 0, 7),
]


def shapes_for(dtype):
    """Products to be tested in the data type."""
    return SHAPES if expected.sums_of(dtype) == dtype else FEW_SHAPES


def each_kernel_and_dtype(function):
    return pytest.mark.parametrize(("kernel", "dtype"), KERNEL_DTYPES)(function)


def each_kernel(function):
    return pytest.mark.parametrize("kernel", KERNELS)(function)


def transposes_for(kernel, dtype):
    """Pairs of transpose_a and transpose_b to be tested."""
    return TRANSPOSES if any_layout(kernel, dtype) else [(False, False)]


def any_layout(kernel, dtype):
    return kernel not in ELEMENT_LOADS or expected.sums_of(dtype) == dtype


def scalars_for(dtype):
    """Pairs of alpha and beta that the data type takes."""
    if not expected.is_integer(dtype):
        return [(1.0, 0.0), (-0.75, 0.0), (1.0, 1.0), (1.3, -2.5), (0.0, 0.5), (0.0, 0.0)]
    return [(1, 0), (-3, 0), (1, 1), (7, -5), (0, 3), (0, 0)]


@pytest.fixture(autouse=True)
def needs_fp64(request, queue):
    """Devices without float64 refuse it (test_float64_is_refused_where_missing); skip the rest."""
    parameters = getattr(request.node, "callspec", None)
    if parameters and parameters.params.get("dtype") == "float64" and not queue.device.fp64:
        pytest.skip(f"{queue.device.name} has no float64")


@pytest.fixture(autouse=True)
def needs_matrix_engines(request, queue, needs_fp64):
    """Devices without refuse the kernel for them (test_gemm_gpu_kernels.py); skip the rest."""
    parameters = getattr(request.node, "callspec", None)
    if parameters and parameters.params.get("kernel") == "gemm_matrix_engine":
        operand = DeviceTensor((1, 1), parameters.params.get("dtype", "float32"), queue=queue)
        if not supports(operand, operand, kernel="gemm_matrix_engine"):
            pytest.skip(f"{queue.device.name} has no matrix engines for these products")


def rows_for(queue, kernel, rows, dtype="float32"):
    """That many rows, or as many as the kernel takes. Skips if it does not take every product: what
    is left out of gemv_strips here is in test_gemm_gpu_kernels.py."""
    b = DeviceTensor((1, 7), dtype, queue=queue)
    for fewer in range(rows, 0, -1):
        if supports(DeviceTensor((fewer, 1), dtype, queue=queue), b, kernel=kernel):
            return fewer
    pytest.skip(f"{kernel} is not for {queue.device.name}")


# ---- right results -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "dtype", "shape"),
    [(*row, shape) for row in KERNEL_DTYPES for shape in shapes_for(row[1])],
    ids=lambda value: "x".join(map(str, value)) if isinstance(value, tuple) else value,
)
def test_shapes_transposes_scalars(queue, kernel, dtype, shape):
    for transposes in transposes_for(kernel, dtype):
        for alpha, beta in scalars_for(dtype):
            for out in (None, "c") if beta == 0 else ("c",):
                options = {"alpha": alpha, "beta": beta, "out": out, "queue": "tests"}
                Case(kernel, dtype, *shape, *transposes, **options).check()


@each_kernel_and_dtype
def test_around_the_tile(queue, kernel, dtype):
    """One less, as many and one more rows and columns than the tile of a work-group."""
    rows, columns = KERNELS[kernel].tile
    depth = max(KERNELS[kernel].work_group)
    for m, k, n in itertools.product(
        (rows - 1, rows, rows + 1), (depth - 1, depth + 1), (columns - 1, columns, columns + 1)
    ):
        Case(kernel, dtype, m, k, n, out="c", queue="tests").check()
        transposes = transposes_for(kernel, dtype)[-1]
        Case(kernel, dtype, m, k, n, *transposes, 2.0, -1.0, out="block", queue="tests").check()


@pytest.mark.parametrize("dtype", expected.DTYPES)
def test_long_rows(queue, dtype):
    """gemm_vector reads long rows of A where they lie, in one block or several, or packs them where
    B is wide. The last rows are fewer than a tile's."""
    rows_for(queue, "gemm_vector", 5, dtype)
    threads = queue.device.compute_units
    common = {"a": "block", "b": "block", "queue": "tests"}
    for m, k, n in ((12 * threads + 5, 700, 45), (1030 * threads + 5, 200, 33)):
        Case("gemm_vector", dtype, m, k, n, **common).check()
    for m, k, n in ((29, 700, 45), (29, 200, 2600 * threads)):
        Case("gemm_vector", dtype, m, k, n, bias=True, batch_a=(3,), **common).check()
        Case(
            "gemm_vector", dtype, m, k, n, packed=True, alpha=2, beta=-1, out="block", **common
        ).check()
    for parameters in ({"MR": 4, "KC": 192}, {"MR": 8, "KC": 256}):
        Case("gemm_vector", dtype, 70, 600, 45, parameters=parameters, **common).check()
    if dtype == "float32":  # whose sums wait in the workspace
        Case("gemm_vector", dtype, 300, 1200, 45, out_dtype="bfloat16", **common).check()


@pytest.mark.parametrize("layout", LAYOUTS)
@each_kernel_and_dtype
def test_layouts(queue, kernel, dtype, layout):
    if not any_layout(kernel, dtype):
        pytest.skip("each layout is tested without conversion, and the conversion in one layout")
    alpha, beta = scalars_for(dtype)[3]
    for transpose_a, transpose_b in TRANSPOSES:
        common = {"transpose_a": transpose_a, "transpose_b": transpose_b, "queue": "tests"}
        Case(kernel, dtype, 35, 21, 50, a=layout, **common).check()
        Case(kernel, dtype, 35, 21, 50, b=layout, **common).check()
        Case(kernel, dtype, 35, 21, 50, out=layout, **common).check()
        Case(kernel, dtype, 35, 21, 50, alpha=alpha, beta=beta, out=layout, **common).check()
        for m, n in ((1, 50), (8, 8)):  # few rows, of C and of its transpose
            Case(kernel, dtype, m, 21, n, alpha=alpha, beta=beta, out=layout, **common).check()


@st.composite
def cases(draw):
    kernel, dtype = draw(st.sampled_from([row for row in KERNEL_DTYPES if any_layout(*row)]))
    size = st.one_of(st.integers(0, 40), st.integers(0, 40), st.integers(41, 200))
    if not expected.is_integer(dtype):
        # Products of three factors stay far from overflow.
        most = 2.0**4 if dtype == "float16" else 2.0**20
        scalar = st.one_of(
            st.sampled_from([0.0, 1.0, -1.0]),
            st.floats(-most, most, width=32).filter(lambda x: abs(x) >= 1 / most),
        )
    else:
        scalar = st.one_of(st.sampled_from([0, 1, -1]), st.integers(-(2**31), 2**31 - 1))
    out = draw(st.sampled_from((None, *OUT_LAYOUTS)))
    # Few matrices, of few rows and columns each.
    batch_a, batch_b = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3)
    ).input_shapes
    if batch_a or batch_b:
        size = st.integers(0, 20)
    return Case(
        kernel=kernel,
        dtype=dtype,
        m=draw(size),
        k=draw(size),
        n=draw(size),
        transpose_a=draw(st.booleans()),
        transpose_b=draw(st.booleans()),
        alpha=draw(scalar),
        beta=0.0 if out is None else draw(scalar),
        a=draw(st.sampled_from(tuple(LAYOUTS))),
        b=draw(st.sampled_from(tuple(LAYOUTS))),
        out=out,
        batch_a=batch_a,
        batch_b=batch_b,
        seed=draw(st.integers(0, 2**16)),
        queue="tests",
    )


@hypothesis.given(case=cases())
@hypothesis.settings(
    deadline=None,
    max_examples=500,
    suppress_health_check=[
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.too_slow,
    ],
)
def test_anything(queue, case):
    hypothesis.assume(case.dtype != "float64" or queue.device.fp64)
    case.check()


@each_kernel
def test_many_work_groups(queue, kernel):
    """More work-groups in one direction than a 16-bit launch dimension can count."""
    many = 65536 * max(KERNELS[kernel].tile) + 3
    Case(kernel, "float32", many, 1, 1, queue="tests").check()
    Case(kernel, "float32", 1, 1, many, queue="tests").check()


@each_kernel
def test_offsets_beyond_32_bits(queue, kernel):
    """Operands whose last row is 2**31 elements away. Only pages that are touched take memory."""
    rows_for(queue, kernel, 1)
    stride = 2**30 + 16
    elements = 2 * stride + 256
    if queue.device.max_allocation < 4 * elements:
        pytest.skip(f"the device allocates at most {queue.device.max_allocation} bytes at once")
    base = DeviceTensor((elements,), "float32", queue=queue)
    far, other = base[::stride][:, None], base[64::stride][:, None]
    values = np.array([[1], [2], [3]], np.float32)
    far.copy_from(values)
    other.copy_from(10 * values)
    row, seven = random(queue, (1, 5)), DeviceTensor.full((1, 1), 7, queue=queue)
    product = funlib.gemm(far, row[1], kernel=kernel)
    assert np.array_equal(product.to_host(), values * row[0])
    product = funlib.gemm(far, other, transpose_a=True, kernel=kernel)
    assert np.array_equal(product.to_host(), [[140]])
    funlib.gemm(far.contiguous(), seven, beta=1, out=other, kernel=kernel)
    assert np.array_equal(other.to_host(), 17 * values)
    assert np.array_equal(far.to_host(), values)
    del far, other, base
    funlib.trim(queue)


@each_kernel
def test_more_work_items_than_32_bits_count(queue, kernel):
    """A row so wide that the work-groups that cover it hold more than 2**31 work-items."""
    rows_for(queue, kernel, 1)
    columns = 2**27 + 16
    if queue.device.max_allocation < 4 * columns:
        pytest.skip(f"the device allocates at most {queue.device.max_allocation} bytes at once")
    a, b = DeviceTensor((1, 0), queue=queue), DeviceTensor((0, columns), queue=queue)
    out = DeviceTensor.full((1, columns), 2, queue=queue)
    funlib.gemm(a, b, beta=3, out=out, kernel=kernel)
    with out.host_view("r") as view:
        assert (np.asarray(view) == 6).all()
    del a, b, out, view
    funlib.trim(queue)


@each_kernel
def test_zero_strides(queue, c_library, kernel):
    """A view whose rows (columns) are all one, which only the C interface can make."""
    values = np.arange(1, 8, dtype=np.float32)
    rows = rows_for(queue, kernel, 5)
    result = c_library.gemm_of_broadcast(values, rows=rows, kernel=kernel)
    a = np.broadcast_to(values, (rows, 7))
    assert reference.problem(result, *reference.gemm(a, a.T)) is None


@each_kernel_and_dtype
def test_same_bits(queue, kernel, dtype):
    _, a = random(queue, (rows_for(queue, kernel, 130, dtype), 77), dtype)
    _, b = random(queue, (77, 95), dtype, seed=1)
    first = funlib.gemm(a, b, kernel=kernel).to_host()
    for _ in range(5):
        assert funlib.gemm(a, b, kernel=kernel).to_host().tobytes() == first.tobytes()


@each_kernel_and_dtype
def test_function_of_its_name(queue, kernel, dtype):
    """Each row of the registry is a function; "gemm" itself is the dispatching one."""
    m = rows_for(queue, kernel, 20, dtype)
    a, b = random(queue, (m, 30), dtype)[1], random(queue, (30, 10), dtype, seed=1)[1]
    function = getattr(funlib, kernel)
    options = {"alpha": 2, "transpose_a": True, "transpose_b": True}
    product = funlib.gemm(a.T, b.T, kernel=kernel, **options).to_host()
    if kernel != "gemm":
        assert function(a.T, b.T, **options).to_host().tobytes() == product.tobytes()
        with pytest.raises(TypeError):
            function(a, b, kernel=kernel)
    else:
        assert function(a.T, b.T, **options).shape == (m, 10)


def test_split_k(queue):
    """A long K is cut into slices, whose partial sums come and go with the operation."""
    m, k, n = 5, 5000, 40
    a, b = random(queue, (m, k)), random(queue, (k, n), seed=1)
    multiply = functools.partial(funlib.gemm_split_k, a[1], b[1])
    first = multiply().to_host()
    before = funlib.memory_info(queue)
    for _ in range(20):
        assert multiply().to_host().tobytes() == first.tobytes()
    after = funlib.memory_info(queue)
    assert after.live_bytes == before.live_bytes
    assert after.allocations == before.allocations + 40  # the product and the partial sums
    c = random(queue, (m, n), seed=2)
    for alpha, beta in ((1.5, 0.0), (1.0, -2.0), (np.nan, 1.0)):
        out = DeviceTensor.from_numpy(c[0], queue=queue)
        multiply(alpha=alpha, beta=beta, out=out)
        wanted = reference.gemm(a[0], b[0], c[0], alpha, beta)
        assert reference.problem(out.to_host(), *wanted) is None
    if queue.profiling:
        times = out.event.times
        assert times.kernel_ns <= times.end_ns - times.start_ns


@pytest.mark.parametrize("dtype", DTYPES)
def test_dispatch(queue, dtype):
    """matmul, @ and gemm without a kernel agree with the kernel that explain names."""
    for m, k, n in SHAPES:
        a, b = random(queue, (m, k), dtype), random(queue, (k, n), dtype, seed=1)
        choice = funlib.explain(a[1], b[1])
        chosen, parameters = choice.kernel, choice.parameters
        assert chosen in KERNELS
        product = funlib.gemm(a[1], b[1], kernel=chosen, parameters=parameters).to_host()
        for result in (funlib.matmul(a[1], b[1]), a[1] @ b[1], funlib.gemm(a[1], b[1])):
            assert result.shape == (m, n)
            assert result.dtype == expected.output_of(dtype)
            assert result.to_host().tobytes() == product.tobytes()
            if result.size > 0:
                assert result.event.label == f"{chosen} {m}x{k}x{n} {dtype}"
        assert reference.problem(product, *reference.gemm(a[0], b[0])) is None


# ---- special values ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@each_kernel
def test_nan_and_infinity_propagate(queue, kernel, dtype):
    rng = np.random.default_rng(3)
    m, n = rows_for(queue, kernel, 37, dtype), rows_for(queue, kernel, 35, dtype)
    for special in (np.nan, np.inf, -np.inf):
        for place in ((0, 0), (m - 1, 20), (m // 2, 13)):
            a = rng.standard_normal((m, 21)).astype(dtype)
            b = rng.standard_normal((21, n)).astype(dtype)
            a[place] = special
            b[5, n // 2] = 0  # inf * 0 is NaN
            b[place[1], 3] = 0
            for left, right in ((a, b), (b.T, a.T)):
                result = funlib.gemm(*tensors(queue, left, right), kernel=kernel).to_host()
                assert reference.problem(result, *reference.gemm(left, right)) is None
                assert np.isnan(result).any()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@each_kernel
def test_special_values_stay_in_their_row(queue, kernel, dtype):
    """A NaN in one row of A and one column of B reaches no other row or column, edges included."""
    m = rows_for(queue, kernel, 33, dtype)
    a, b = np.ones((m, 17), dtype), np.ones((17, 31), dtype)
    a[m - 1, 16] = np.nan
    b[16, 30] = np.nan
    result = funlib.gemm(*tensors(queue, a, b), kernel=kernel).to_host()
    assert np.isnan(result[m - 1]).all()
    assert np.isnan(result[:, 30]).all()
    assert (result[: m - 1, :30] == 17).all()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@each_kernel
def test_nan_in_c(queue, kernel, dtype):
    """beta * C with NaN and infinity in C is NaN and infinity, unless beta is 0."""
    m = rows_for(queue, kernel, 19, dtype)
    a, b = random(queue, (m, 5), dtype), random(queue, (5, 18), dtype, seed=1)
    c = np.ones((m, 18), dtype)
    c[0, 0], c[m - 1, 17], c[m // 2, 7] = np.nan, np.inf, -np.inf
    for beta in (0.0, -0.5):
        (out,) = tensors(queue, c)
        funlib.gemm(a[1], b[1], beta=beta, out=out, kernel=kernel)
        wanted = reference.gemm(a[0], b[0], c, beta=beta)
        assert reference.problem(out.to_host(), *wanted) is None


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@each_kernel
def test_alpha_zero_reads_no_input(queue, kernel, dtype):
    m = rows_for(queue, kernel, 19, dtype)
    a, b = np.full((m, 5), np.nan, dtype), np.full((5, 18), np.inf, dtype)
    c = np.arange(m * 18).reshape(m, 18).astype(dtype)
    for beta in (0.0, 2.0):
        (out,) = tensors(queue, c)
        funlib.gemm(*tensors(queue, a, b), alpha=0.0, beta=beta, out=out, kernel=kernel)
        assert np.array_equal(out.to_host().astype(float), beta * c.astype(float))


@each_kernel_and_dtype
def test_k_zero_scales_c(queue, kernel, dtype):
    rows_for(queue, kernel, 4, dtype)
    a, b = DeviceTensor((4, 0), dtype, queue=queue), DeviceTensor((0, 6), dtype, queue=queue)
    c = np.arange(24).reshape(4, 6).astype(expected.output_of(dtype))
    (out,) = tensors(queue, c)
    funlib.gemm(a, b, beta=3, out=out, kernel=kernel)
    assert np.array_equal(out.to_host().astype(float), 3 * c.astype(float))
    funlib.gemm(a, b, out=out, kernel=kernel)
    assert np.array_equal(out.to_host(), np.zeros_like(c))
    assert np.array_equal(funlib.gemm(a, b, kernel=kernel).to_host(), np.zeros_like(c))


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@each_kernel
def test_scalars_that_are_not_finite(queue, kernel, dtype):
    m = rows_for(queue, kernel, 9, dtype)
    a, b = random(queue, (m, 5), dtype), random(queue, (5, 8), dtype, seed=1)
    for alpha in (np.nan, np.inf):
        result = funlib.gemm(a[1], b[1], alpha=alpha, kernel=kernel).to_host()
        assert reference.problem(result, *reference.gemm(a[0], b[0], alpha=alpha)) is None
    out = DeviceTensor.full((m, 8), 1, dtype, queue=queue)
    funlib.gemm(a[1], b[1], beta=np.nan, out=out, kernel=kernel)
    assert np.isnan(out.to_host()).all()


@each_kernel
def test_int32_wraps(queue, kernel):
    rows_for(queue, kernel, 2, "int32")
    most, least = np.iinfo(np.int32).max, np.iinfo(np.int32).min
    a = np.array([[most, most, 1], [least, least, least]], np.int32)
    b = np.array([[most, 1], [2, least], [1, 1]], np.int32)
    c = np.full((2, 2), most, np.int32)
    for alpha, beta in ((1, 0), (most, 0), (least, most), (-1, least)):
        (out,) = tensors(queue, c)
        funlib.gemm(*tensors(queue, a, b), alpha=alpha, beta=beta, out=out, kernel=kernel)
        assert np.array_equal(out.to_host(), reference.gemm(a, b, c, alpha, beta)[0])


# ---- out -----------------------------------------------------------------------------------------


@each_kernel
def test_out_may_not_overlap(queue, kernel):
    m = rows_for(queue, kernel, 20)
    base = DeviceTensor.zeros((2 * m, m), "float32", queue=queue)
    a, b = base[:m], DeviceTensor.zeros((m, m), "float32", queue=queue)
    for out in (a, a.T, base[m // 2 : -(m // 2)], base[m - 1 : -1], base[::-1][m:]):
        for left, right in ((a, b), (b, a)):
            with pytest.raises(ValueError, match="overlap"):
                funlib.gemm(left, right, out=out, kernel=kernel)


@each_kernel
def test_out_may_lie_beside_an_input(queue, kernel):
    """Rows or columns of one allocation that have no element in common."""
    m = rows_for(queue, kernel, 20)
    for rows, columns, find in (
        (2 * m, 20, lambda x: (x[:m], x[m:])),
        (m, 40, lambda x: (x[:, :20], x[:, 20:])),
        (m, 40, lambda x: (x[:, 20:], x[:, :20])),
    ):
        values, base = random(queue, (rows, columns))
        b_values, b = random(queue, (20, 20), seed=1)
        a, out = find(base)
        funlib.gemm(a, b, out=out, kernel=kernel)
        wanted = reference.gemm(find(values)[0], b_values)
        assert reference.problem(out.to_host(), *wanted) is None
        assert np.array_equal(a.to_host(), find(values)[0])


@each_kernel
def test_inputs_may_be_one_tensor(queue, kernel):
    values, a = random(queue, (rows_for(queue, kernel, 40), 40))
    result = funlib.gemm(a, a.T, kernel=kernel).to_host()
    assert reference.problem(result, *reference.gemm(values, values.T)) is None


def test_out_of_wrong_shape_or_type(queue):
    a, b = random(queue, (4, 5))[1], random(queue, (5, 6))[1]
    for shape in ((4, 7), (6, 4), (24,), (1, 4, 6)):
        with pytest.raises(ValueError, match="out"):
            funlib.gemm(a, b, out=DeviceTensor(shape, queue=queue))
    with pytest.raises(TypeError, match="int32"):
        funlib.gemm(a, b, out=DeviceTensor((4, 6), "int32", queue=queue))
    with pytest.raises(TypeError, match="out"):
        funlib.gemm(a, b, out=np.empty((4, 6), np.float32))


def test_beta_needs_out(queue):
    a, b = random(queue, (4, 5))[1], random(queue, (5, 6))[1]
    with pytest.raises(ValueError, match="beta"):
        funlib.gemm(a, b, beta=1.0)


# ---- errors name what was found and what would be right ------------------------------------------


def test_shape_mismatch(queue):
    a, b = DeviceTensor((3, 4), queue=queue), DeviceTensor((5, 6), queue=queue)
    for kernel in (None, *KERNELS):
        with pytest.raises(ValueError, match=r"3\D{1,3}4\b.*5\D{1,3}6\b"):
            funlib.gemm(a, b, kernel=kernel)
    with pytest.raises(ValueError, match=r"3\D{1,3}4\b.*5\D{1,3}6\b"):
        a @ b
    # A fitting shape, but not once transposed.
    square = DeviceTensor((4, 7), queue=queue)
    with pytest.raises(ValueError, match="4"):
        funlib.gemm(a, square, transpose_a=True)


def test_dimensions(queue):
    matrix, scalar = DeviceTensor((3, 3), queue=queue), DeviceTensor((), queue=queue)
    for operands in ((matrix, scalar), (scalar, matrix)):
        with pytest.raises(ValueError, match=r"\(\); at least one dimension"):
            funlib.gemm(*operands)
    row = DeviceTensor((3,), queue=queue)
    for operands, option in (((row, matrix), "transpose_a"), ((matrix, row), "transpose_b")):
        with pytest.raises(ValueError, match=rf"{option} is set, but \w has shape \(3,\)"):
            funlib.gemm(*operands, **{option: True})


def test_batches_that_do_not_fit(queue):
    for left, right in (((2, 3, 3), (3, 3, 3)), ((4, 2, 3, 3), (4, 3, 3))):
        a, b = DeviceTensor(left, queue=queue), DeviceTensor(right, queue=queue)
        with pytest.raises(ValueError, match="equal or 1") as raised:
            funlib.gemm(a, b)
        assert str(left) in str(raised.value)
        assert str(right) in str(raised.value)


def test_dtype_mismatch(queue):
    a, b = DeviceTensor((3, 3), "float32", queue=queue), DeviceTensor((3, 3), "int32", queue=queue)
    for kernel in (None, *KERNELS):
        with pytest.raises(TypeError, match=r"float32.*int32"):
            funlib.gemm(a, b, kernel=kernel)


def test_unknown_kernel(queue):
    a = DeviceTensor((3, 3), queue=queue)
    with pytest.raises(LookupError) as raised:
        funlib.gemm(a, a, kernel="gemm_magic")
    assert "gemm_magic" in str(raised.value)
    for name in KERNELS:
        assert name in str(raised.value)


def test_int32_takes_whole_scalars(queue):
    a = DeviceTensor.zeros((3, 3), "int32", queue=queue)
    out = DeviceTensor.zeros((3, 3), "int32", queue=queue)
    for options in ({"alpha": 0.5}, {"beta": 0.5}, {"alpha": np.nan}, {"alpha": np.inf}):
        with pytest.raises((ValueError, TypeError), match="int32"):
            funlib.gemm(a, a, out=out, **options)


def test_operands_on_the_host(queue):
    a = DeviceTensor((3, 3), queue=queue)
    host = np.zeros((3, 3), np.float32)
    for operands in ((host, a), (a, host), (host, host), (a, None), ([[1.0]], a)):
        with pytest.raises(TypeError, match="from_numpy"):
            funlib.gemm(*operands)
    with pytest.raises(TypeError):
        host @ a
    with pytest.raises(TypeError):
        a @ host


def test_float64_is_refused_where_missing(queue):
    if queue.device.fp64:
        pytest.skip(f"{queue.device.name} has float64")
    with pytest.raises(funlib.UnsupportedError, match="float64"):
        DeviceTensor((3, 3), "float64", queue=queue)


# ---- the registry --------------------------------------------------------------------------------


@each_kernel
def test_registry_row(kernel):
    row = KERNELS[kernel]
    assert row.idea
    assert "\n" not in row.idea
    assert row.source.endswith((".cpp", ".hpp", ".h", ".cl", ".inc", ".sycl"))
    assert row.dtypes
    assert all(size > 0 for size in (*row.work_group, *row.tile))
    for name, (value, legal) in row.parameters.items():
        assert value in legal, name
    assert callable(getattr(funlib, kernel))


@each_kernel
def test_event_times(queue, kernel):
    if not queue.profiling:
        pytest.skip("the queue has no profiling")
    m = rows_for(queue, kernel, 64)
    a = random(queue, (m, 64))[1]
    event = funlib.gemm(a, a.T, kernel=kernel).event
    event.wait()
    assert event.is_complete
    assert kernel in event.label
    assert f"{m}x64x{m}" in event.label
    assert "float32" in event.label
    times = event.times
    assert times.submit_ns <= times.start_ns <= times.end_ns
    assert times.kernel_ns > 0
    assert event.kernel_time == pytest.approx(times.kernel_ns * 1e-9)
