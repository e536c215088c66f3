"""Batches of products: shapes as numpy.matmul takes them, any strides, one launch."""

import numpy as np
import pytest
import reference
from reference import LAYOUTS, Case, random, supports, turned

import funlib
from funlib import DeviceTensor

KERNELS = [kernel.name for kernel in funlib.kernels()]

# At most 4 rows, which every kernel takes.
SHAPES = [
    ((3,), (3,)),
    ((3,), (3, 5)),
    ((4, 3), (3,)),
    ((3,), (6, 3, 5)),
    ((6, 4, 3), (3,)),
    ((6, 4, 3), (6, 3, 5)),
    ((1, 4, 3), (6, 3, 5)),
    ((6, 4, 3), (1, 3, 5)),
    ((6, 4, 3), (3, 5)),
    ((4, 3), (6, 3, 5)),
    ((2, 1, 4, 3), (1, 6, 3, 5)),
    ((2, 6, 4, 3), (6, 3, 5)),
    ((6, 4, 3), (2, 1, 3, 5)),
    ((1, 1, 4, 3), (1, 3, 5)),
    ((2, 1, 3, 1, 2, 4, 3), (1, 5, 1, 2, 1, 3, 5)),
    ((1, 2, 1, 2, 1, 2, 4, 3), (2, 1, 2, 1, 2, 1, 3, 5)),
    ((2, 3, 2, 1, 2, 3, 4, 3), (3, 3, 5)),
    ((3, 4, 0), (3, 0, 5)),
    ((3, 0, 4), (3, 4, 5)),
    ((3, 4, 3), (3, 3, 0)),
    ((3, 9, 4), (3, 4, 0)),
    ((0, 9, 4), (4, 3)),
    ((0, 9, 4), (1, 4, 1)),
    ((0, 4, 3), (3, 5)),
    ((0, 4, 3), (1, 3, 5)),
    ((0, 4, 3), (0, 3, 5)),
    ((2, 0, 4, 3), (2, 1, 3, 5)),
    ((0,), (0,)),
    ((0,), (2, 0, 5)),
]


def matmul(a, b, **options):
    """reference.gemm for the shapes of numpy.matmul."""
    left = a[None] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    found = reference.gemm(left, right, **options)
    if b.ndim == 1:
        found = [x[..., 0] for x in found]
    if a.ndim == 1:
        found = [x[..., 0, :] if b.ndim > 1 else x[..., 0] for x in found]
    return found


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(queue, shapes):
    a, b = random(queue, shapes[0]), random(queue, shapes[1], seed=1)
    wanted = matmul(a[0], b[0])
    assert wanted[0].shape == np.matmul(a[0], b[0]).shape
    for kernel in (None, *KERNELS):
        if not supports(a[1], b[1], kernel=kernel):
            continue
        result = funlib.gemm(a[1], b[1], kernel=kernel).to_host()
        assert reference.problem(result, *wanted) is None, kernel
    assert reference.problem((a[1] @ b[1]).to_host(), *wanted) is None
    out = DeviceTensor.full(wanted[0].shape, np.nan, queue=queue)
    funlib.gemm(a[1], b[1], out=out)
    assert reference.problem(out.to_host(), *wanted) is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int32", "float64"])
def test_types(queue, dtype):
    if dtype == "float64" and not queue.device.fp64:
        pytest.skip(f"{queue.device.name} has no float64")
    for kernel in (None, *KERNELS):
        Case(
            kernel, dtype, 4, 40, 21, batch_a=(2, 1), batch_b=(3,), out="block", queue="tests"
        ).check()


VIEWS = {
    "all": lambda x: x,
    "reversed": lambda x: x[::-1],
    "some": lambda x: x[::2, 1:],
    "exchanged": lambda x: x.transpose(1, 0, 2, 3),
    "inside": lambda x: x.transpose(2, 0, 1, 3)[:4],
    "turned": lambda x: turned(x)[..., :4, :],
    "columns": lambda x: x[..., ::2],
    "rows": lambda x: x[..., ::-1, :],
    "last": lambda x: x.transpose(0, 3, 2, 1)[..., :4, :],
}


@pytest.mark.parametrize("right", VIEWS)
@pytest.mark.parametrize("left", VIEWS)
def test_views(queue, left, right):
    """Operands whose batch and matrix strides are negative, not in order, or fit no kernel."""
    a, b = random(queue, (4, 4, 4, 4)), random(queue, (4, 4, 4, 4), seed=1)
    operands = [[VIEWS[left](x) for x in a], [VIEWS[right](x) for x in b]]
    # Cut to what fits together.
    depth = min(operands[0][0].shape[-1], operands[1][0].shape[-2])
    batch = [min(x, y) for x, y in zip(operands[0][0].shape, operands[1][0].shape, strict=True)]
    a = [x[: batch[0], : batch[1], ..., :depth] for x in operands[0]]
    b = [x[: batch[0], : batch[1], :depth] for x in operands[1]]
    wanted = matmul(a[0], b[0])
    for kernel in (None, "gemm_register_blocked", "gemm_split_k", "gemv_vector"):
        if supports(a[1], b[1], kernel=kernel):
            result = funlib.gemm(a[1], b[1], kernel=kernel).to_host()
            assert reference.problem(result, *wanted) is None, kernel


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", [None, "gemm_register_blocked"])
def test_matrices_of_any_layout(queue, kernel, layout):
    common = {"batch_a": (2, 1), "batch_b": (3,), "queue": "tests"}
    for transposes in ((False, False), (True, True)):
        Case(kernel, "float32", 9, 21, 13, *transposes, a=layout, **common).check()
        Case(kernel, "float32", 9, 21, 13, *transposes, b=layout, **common).check()
        Case(kernel, "float32", 9, 21, 13, *transposes, 1.5, -0.5, out=layout, **common).check()


def test_out_between_others(queue):
    """An out whose batch is not the outermost dimension, or backwards: its neighbours stay."""
    a, b = random(queue, (3, 6, 5)), random(queue, (3, 5, 7), seed=1)
    wanted = matmul(a[0], b[0])
    for shape, find in (
        ((6, 3, 7), lambda x: x.transpose(1, 0, 2)),
        ((6, 7, 3), lambda x: x.transpose(2, 0, 1)),
        ((3, 12, 7), lambda x: x[:, ::2]),
        ((5, 6, 7), lambda x: x[4:1:-1]),
    ):
        host = np.full(shape, np.nan, np.float32)
        base = DeviceTensor.from_numpy(host, queue=queue)
        funlib.gemm(a[1], b[1], out=find(base))
        assert reference.problem(find(base).to_host(), *wanted) is None
        assert np.isnan(base.to_host()).sum() == host.size - wanted[0].size


def test_wrong_out(queue):
    a, b = DeviceTensor((2, 3, 4), queue=queue), DeviceTensor((4, 5), queue=queue)
    for shape in ((3, 5), (1, 3, 5), (6, 5), (2, 3, 5, 1)):
        with pytest.raises(ValueError, match="2x3x5"):
            funlib.gemm(a, b, out=DeviceTensor(shape, queue=queue))
    square, out = DeviceTensor((2, 4, 4), queue=queue), DeviceTensor((2, 4, 4), queue=queue)
    for operands in ((square, out), (out[:1], square)):
        with pytest.raises(ValueError, match="overlap"):
            funlib.gemm(*operands, out=out)


def test_rows_of_one_product(queue):
    """Matrices that share B and follow each other are one product of many rows."""
    x, w = random(queue, (6, 50, 40)), random(queue, (40, 30), seed=1)
    flat = x[1].reshape(300, 40)
    assert funlib.explain(x[1], w[1]) == funlib.explain(flat, w[1])
    product = (flat @ w[1]).to_host().reshape(6, 50, 30)
    assert (x[1] @ w[1]).to_host().tobytes() == product.tobytes()

    # Not with rows left out between the matrices.
    def groups(a):
        return funlib.explain(a, w[1], kernel="gemm_tiled").work_groups

    assert groups(x[1][:, :49]) == 6 * groups(x[1][0, :49])
    wanted = reference.gemm(x[0][:, :49], w[0])
    assert reference.problem((x[1][:, :49] @ w[1]).to_host(), *wanted) is None
    for options in ({"bias": True, "beta": 0.5, "out": "c"}, {"out": "block"}, {"a": "f"}):
        Case(None, "float32", 5, 12, 33, batch_a=(7, 3), **options, queue="tests").check()


@pytest.mark.parametrize("kernel", [None, *KERNELS])
def test_many_products(queue, kernel):
    """More products than a 16-bit launch dimension can count."""
    for batch_b in ((70_000,), (1,)):
        Case(kernel, "float32", 2, 2, 2, batch_a=(70_000,), batch_b=batch_b, queue="tests").check()


def test_split_k(queue):
    """Slices of each matrix of a batch are added up apart."""
    options = {"batch_a": (2,), "batch_b": (1,), "queue": "tests"}
    a, b = DeviceTensor((2, 5, 3000), queue=queue), DeviceTensor((2, 3000, 9), queue=queue)
    assert funlib.explain(a, b, kernel="gemm_split_k").slices > 1
    for more in ({}, {"alpha": 1.5, "beta": -0.5, "out": "f"}, {"transpose_a": True}):
        for batch_b in ((2,), (1,), ()):
            case = options | more | {"batch_b": batch_b}
            Case("gemm_split_k", "float32", 5, 3000, 9, **case).check()


def test_bias_of_narrow_products(queue):
    """Few columns: the transposed product is formed, and the bias is a column there."""
    for n in (1, 2, 3, 4, 5):
        for out in (None, "c", "f", "columns"):
            common = {"bias": True, "out": out, "queue": "tests"}
            Case(None, "float32", 40, 9, n, batch_a=(3,), **common).check()
            Case(None, "float32", 40, 9, n, batch_a=(3,), batch_b=(3,), **common).check()


@pytest.mark.parametrize("kernel", ["gemv", "gemv_vector"])
def test_few_rows_each(queue, kernel):
    """A kernel of few rows takes a batch whose products together have many."""
    (a, device_a), (b, device_b) = random(queue, (8, 2, 64)), random(queue, (64, 48), seed=1)
    operands = device_a, device_b
    if not supports(*operands, kernel=kernel):
        pytest.skip(f"{kernel} is not for this device")
    found = funlib.gemm(*operands, kernel=kernel).to_host()
    assert reference.problem(found, *matmul(a, b)) is None


def test_out_beside_an_input_in_one_allocation(queue):
    """Parts of one buffer that share no element, as the projections of attention are kept."""
    (a, _), (w, weights) = random(queue, (2, 3, 64)), random(queue, (64, 64), seed=1)
    buffer = DeviceTensor.full((2, 3, 128), 0, queue=queue)
    buffer[:, :, :64].copy_from(a)
    funlib.gemm(buffer[:, :, :64], weights, out=buffer[:, :, 64:])
    assert reference.problem(buffer[:, :, 64:].to_host(), *matmul(a, w)) is None
    with pytest.raises(ValueError, match="overlaps A"):
        funlib.gemm(buffer[:, :, :64], weights, out=buffer[:, :, 63:127])
