"""gemm_wgmma and gemm_mma_float64 on a Hopper GPU: layouts, edges, the epilogue, batches, tiles.

Rows of its operands begin at multiples of 16 bytes, which the shapes of test_gemm.py seldom give.
"""

import numpy as np
import pytest
from reference import Case, supports

import funlib
from funlib import DeviceTensor

DTYPES = ("bfloat16", "float16", "int8", "float64")
TRANSPOSES = ((False, False), (False, True), (True, False), (True, True))
# (M, K, N), of which those that lie along rows are multiples of 16.
SHAPES = [
    (16, 16, 16),
    (128, 128, 256),
    (272, 144, 528),
    (64, 4096, 64),
    (2064, 80, 1040),
    (1040, 16, 2064),
]


def kernel_for(dtype):
    return "gemm_mma_float64" if dtype == "float64" else "gemm_wgmma"


@pytest.fixture(autouse=True)
def needs_hopper(queue):
    operand = DeviceTensor((16, 16), "float16", queue=queue)
    if not supports(operand, operand, kernel="gemm_wgmma"):
        pytest.skip(f"{queue.device.name} is no Hopper GPU")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposes", TRANSPOSES)
def test_layouts(dtype, transposes):
    for shape in SHAPES:
        Case(kernel_for(dtype), dtype, *shape, *transposes, queue="tests").check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_edges(dtype):
    """Extents that do not lie along rows of A or B can be anything; so can what C lies in."""
    options = {"out": "block", "queue": "tests"}
    for extent in (1, 5, 65, 127, 129, 257):
        Case(kernel_for(dtype), dtype, extent, 64, 48, False, False, 2, -1, **options).check()
        Case(kernel_for(dtype), dtype, extent, 64, 33, False, True, **options).check()
        Case(kernel_for(dtype), dtype, 48, extent, 80, True, False, **options).check()
        Case(kernel_for(dtype), dtype, 32, 16, extent, True, True, 1, 1, **options).check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_epilogue(dtype):
    options = {"bias": True, "activation": "relu", "queue": "tests"}
    for transposes in TRANSPOSES:
        Case(kernel_for(dtype), dtype, 144, 96, 272, *transposes, 3, 2, out="c", **options).check()
    if dtype in ("bfloat16", "float16"):
        for out_dtype, activation in (("float32", "gelu"), ("bfloat16", "silu")):
            options = {"bias": True, "activation": activation, "queue": "tests"}
            Case(kernel_for(dtype), dtype, 96, 64, 80, out_dtype=out_dtype, **options).check()


def test_nothing_to_sum():
    for dtype in DTYPES:
        Case(kernel_for(dtype), dtype, 48, 0, 33, queue="tests").check()
        Case(kernel_for(dtype), dtype, 48, 32, 48, alpha=0, beta=1, out="c", queue="tests").check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposes", TRANSPOSES)
def test_batches(dtype, transposes):
    for batch_a, batch_b in (((5,), (5,)), ((2, 3), (3,)), ((3, 1), (2,))):
        options = {"batch_a": batch_a, "batch_b": batch_b, "queue": "tests"}
        Case(kernel_for(dtype), dtype, 48, 64, 272, *transposes, **options).check()


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("columns", [64, 128, 256])
def test_tiles(rows, columns):
    if rows * columns > 128 * 128:
        pytest.skip("more sums than there are registers")
    for warp_groups in (1, 2):
        for transposes in TRANSPOSES[::3]:
            names = ("WARP_GROUPS", "ROWS", "COLUMNS", "STAGES", "BAND")
            parameters = dict(zip(names, (warp_groups, rows, columns, 3, 4), strict=True))
            options = {"parameters": parameters, "queue": "tests"}
            Case("gemm_wgmma", "bfloat16", 1200, 272, 400, *transposes, **options).check()


@pytest.mark.parametrize("transposes", TRANSPOSES)
def test_tf32(queue, transposes):
    """float32 rounded to nearest, and refused where that is not allowed."""
    rng = np.random.default_rng(0)
    for m, k, n, slices in (
        (272, 144, 528, 1),
        (64, 4, 64, 1),
        (1040, 36, 300, 1),
        (8, 528, 80, 3),
    ):
        a = rng.standard_normal((k, m) if transposes[0] else (m, k), np.float32)
        b = rng.standard_normal((n, k) if transposes[1] else (k, n), np.float32)
        operands = [DeviceTensor.from_numpy(x, queue=queue) for x in (a, b)]
        options = dict(zip(("transpose_a", "transpose_b"), transposes, strict=True))
        with pytest.raises(funlib.UnsupportedError, match="precision"):
            funlib.gemm_wgmma(*operands, **options)
        options |= {"precision": "tf32", "parameters": {"SLICES": slices}}
        result = funlib.gemm_wgmma(*operands, **options).to_host()
        a, b = (x.astype(np.float64) for x in (a, b))
        exact = (a.T if transposes[0] else a) @ (b.T if transposes[1] else b)
        error = np.linalg.norm(result - exact) / np.linalg.norm(exact)
        # Cut off instead of rounded, numbers are wrong by twice as much.
        assert error < 4e-4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposes", TRANSPOSES)
def test_slices(dtype, transposes):
    """More slices than K has steps, a last one that is shorter, tiles that are partly outside."""
    options = {"bias": True, "activation": "relu", "queue": "tests"}
    shapes = {
        2: (80, 16, 144),
        3: (16, 528, 48),
        4: (208, 1040, 272),
        6: (144, 4096, 80),
        8: (1040, 2064, 1040),
    }
    for slices, (m, k, n) in shapes.items():
        own = options | {"parameters": {"SLICES": slices}}
        Case(kernel_for(dtype), dtype, m, k, n, *transposes, **own).check()
        Case(kernel_for(dtype), dtype, m, k, n, *transposes, 2, -1, out="block", **own).check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_slices_of_one_step(dtype):
    """No slices are left, and more tiles than there are compute units."""
    options = {"parameters": {"SLICES": 2}, "queue": "tests"}
    Case(kernel_for(dtype), dtype, 2048, 16, 4096, **options).check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposes", TRANSPOSES)
def test_slices_of_batches(dtype, transposes):
    options = {"batch_a": (3, 1), "batch_b": (2,), "parameters": {"SLICES": 4}, "queue": "tests"}
    Case(kernel_for(dtype), dtype, 48, 528, 144, *transposes, **options).check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_room_for_slices(queue, dtype):
    """Their sums meet in the memory of the stages: two have no room for those of a large tile."""
    a = DeviceTensor((256, 512), dtype, queue=queue)
    b = DeviceTensor((512, 256), dtype, queue=queue)
    parameters = {"SLICES": 2, "STAGES": 2}
    with pytest.raises(funlib.UnsupportedError, match="sums of slices"):
        funlib.gemm(a, b, kernel=kernel_for(dtype), parameters=parameters)


@pytest.mark.parametrize("dtype", DTYPES)
def test_few_rows(dtype):
    """Boxes of fewer lines than a tile; rows outside, with a bias along rows and along columns."""
    options = {"bias": True, "activation": "relu", "queue": "tests"}
    for rows in (1, 3, 8, 17):
        for columns in (64, 80):
            for transposes in TRANSPOSES:
                Case(kernel_for(dtype), dtype, rows, 144, columns, *transposes, **options).check()
            # C by columns: the kernel's own C is its transpose.
            own = {"transpose_b": True, "out": "f"}
            Case(kernel_for(dtype), dtype, columns, 144, rows, **own, **options).check()


@pytest.mark.parametrize("columns", [64, 128])
def test_tiles_of_float64(columns):
    for warp_groups, rows in ((1, 32), (1, 64), (2, 32), (2, 64)):
        for transposes in TRANSPOSES[:2]:
            names = ("WARP_GROUPS", "ROWS", "COLUMNS", "STAGES", "BAND")
            parameters = dict(zip(names, (warp_groups, rows, columns, 3, 4), strict=True))
            options = {"parameters": parameters, "queue": "tests"}
            Case("gemm_mma_float64", "float64", 1200, 270, 400, *transposes, **options).check()


def test_rows_that_are_not_aligned(queue):
    """They are refused by name, and done by another kernel without."""
    a = DeviceTensor.full((64, 65), 1, "float16", queue=queue)
    with pytest.raises(funlib.UnsupportedError, match="16 bytes"):
        funlib.gemm_wgmma(a, a, transpose_b=True)
    assert (funlib.gemm(a, a, transpose_b=True).to_host() == 65).all()
