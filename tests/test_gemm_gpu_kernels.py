"""Kernels that are made for GPUs, as far as a device without their hardware can run them.

gemv runs everywhere. gemm_matrix_engine is run with its engine replaced by plain code
(emulated_matrix.hpp): what is tested is all that lies around the engine, its tiles, layouts, edges
and epilogue. The emulation takes the place of gemm_subgroup, whose launch it shares.
"""

import json
import shutil

import numpy as np
import pytest
from helpers import SOURCE
from reference import Case

import funlib
from funlib import DeviceTensor

DTYPES = ("float32", "float64", "int32", "float16", "bfloat16", "int8")
# (M, K, N)
FEW_ROWS = [(1, 1, 1), (4, 33, 31), (2, 7, 100), (3, 1000, 65), (1, 5000, 20), (4, 3, 1000)]
TRANSPOSES = ((False, False), (False, True), (True, False), (True, True))


def ones(queue, shape, dtype="float32"):
    return DeviceTensor.full(shape, 1, dtype, queue=queue)


# ---- gemv ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposes", TRANSPOSES)
def test_gemv(queue, dtype, transposes):
    """Runs of columns and their edges; K that one, and that several slices share."""
    if dtype == "float64" and not queue.device.fp64:
        pytest.skip(f"{queue.device.name} has no float64")
    for shape in FEW_ROWS:
        Case("gemv", dtype, *shape, *transposes, queue="tests").check()
    Case("gemv", dtype, 3, 2000, 40, *transposes, 2, -1, out="block", queue="tests").check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_gemv_epilogue(queue, dtype):
    if dtype == "float64" and not queue.device.fp64:
        pytest.skip(f"{queue.device.name} has no float64")
    integer = dtype.startswith("int")
    activations = ("relu",) if integer else ("gelu", "silu")
    for activation in activations:
        for k in (50, 3000):
            options = {"bias": True, "activation": activation, "out": "c", "queue": "tests"}
            Case("gemv", dtype, 2, k, 70, alpha=2, beta=1, **options).check()
    if not integer and dtype != "float64":
        for out_dtype in ("float32", "float16", "bfloat16"):
            Case("gemv", dtype, 4, 300, 70, out_dtype=out_dtype, queue="tests").check()


@pytest.mark.parametrize("transposes", TRANSPOSES)
def test_gemv_batches(queue, transposes):
    for k in (40, 3000):
        for batch_a, batch_b in (((5,), (5,)), ((2, 3), (3,)), ((3, 1), (2,))):
            options = {"batch_a": batch_a, "batch_b": batch_b, "queue": "tests"}
            Case("gemv", "float32", 3, k, 50, *transposes, **options).check()


def test_gemv_parameters(queue):
    lanes = [size for size in queue.device.sub_group_sizes if size in (8, 16, 32, 64)]
    for parameters in (
        {"SUB_GROUP": min(lanes), "COLUMNS": 1, "SUB_GROUPS": 16},
        {"SUB_GROUP": max(lanes), "COLUMNS": 4, "SUB_GROUPS": 4},
    ):
        for transpose_b in (False, True):
            options = {"parameters": parameters, "queue": "tests"}
            Case("gemv", "float32", 4, 1500, 77, False, transpose_b, **options).check()


def test_gemv_slices(queue):
    """A long K with few columns is cut; every slice has work."""
    a, b = ones(queue, (1, 6000)), ones(queue, (6000, 8))
    choice = funlib.explain(a, b, kernel="gemv")
    assert 1 <= choice.slices <= 6000 // choice.parameters["DEPTH"]
    assert choice.work_groups == choice.slices
    assert choice.workspace_bytes == (0 if choice.slices == 1 else 4 * choice.slices * 8)
    first = funlib.gemv(a, b).to_host()
    assert (first == 6000).all()


def test_gemv_takes_few_rows(queue):
    with pytest.raises(funlib.UnsupportedError, match="4 rows"):
        funlib.gemv(ones(queue, (5, 8)), ones(queue, (8, 8)))


# ---- gemm_pipelined, gemv_strips -----------------------------------------------------------------

CUTS = (
    {"TILE_N": 64, "TILE_K": 16, "BLOCK_M": 8, "LANES_M": 8, "TEAMS_K": 2, "PARTS": 2},
    {"TILE_M": 32, "TILE_N": 64, "TILE_K": 32, "BLOCK_M": 8, "TEAMS_K": 4, "STAGES": 2},
    {"TILE_M": 32, "TILE_N": 32, "TILE_K": 32, "BLOCK_M": 8, "BLOCK_N": 4, "TEAMS_K": 4},
    {"TILE_M": 128, "BLOCK_M": 8, "BLOCK_N": 16, "LANES_M": 8, "STAGES": 4, "PARTS": 4},
)
# Rows that are whole vectors of 16 bytes, and others; the second has more than one band of tiles.
WIDE = [(68, 37, 132), (600, 9, 40), (67, 40, 131), (5, 1, 3)]


@pytest.mark.parametrize(
    ("dtype", "transposes"),
    [("float32", each) for each in TRANSPOSES]
    + [(dtype, TRANSPOSES[2]) for dtype in ("float64", "int32")],
)
def test_pipelined(queue, dtype, transposes):
    """Fewer steps along K than the ring holds, as many, and more; edges on both sides."""
    if dtype == "float64" and not queue.device.fp64:
        pytest.skip(f"{queue.device.name} has no float64")
    for shape in WIDE:
        Case("gemm_pipelined", dtype, *shape, *transposes, queue="tests").check()
    options = {"b": "block", "out": "block", "bias": True, "activation": "relu", "queue": "tests"}
    Case("gemm_pipelined", dtype, 70, 90, 140, *transposes, 2, -1, **options).check()


@pytest.mark.parametrize(("parameters", "transposes"), list(zip(CUTS, TRANSPOSES, strict=True)))
def test_pipelined_cuts(queue, parameters, transposes):
    options = {"bias": True, "parameters": parameters, "queue": "tests"}
    for shape in WIDE:
        Case("gemm_pipelined", "float32", *shape, *transposes, **options).check()


def test_pipelined_slices(queue):
    """Slices of K for each product of a batch; the last one is thinner, none is empty."""
    for k, slices in ((100, 4), (1000, 3), (10, 8)):
        parameters = CUTS[0] | {"SLICES": slices}
        options = {"batch_a": (2, 3), "batch_b": (3,), "parameters": parameters, "queue": "tests"}
        Case("gemm_pipelined", "float32", 67, k, 131, alpha=2, beta=1, out="c", **options).check()
    choice = funlib.explain(
        ones(queue, (10, 40)),
        ones(queue, (40, 10)),
        kernel="gemm_pipelined",
        parameters={"TILE_K": 16, "SLICES": 8},
    )
    assert choice.slices == 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_strips(queue, dtype):
    """All numbers of rows, of one tile and of more; strips whose last one is narrow, and more of
    them than a GPU has compute units."""
    if dtype == "float64" and not queue.device.fp64:
        pytest.skip(f"{queue.device.name} has no float64")
    shapes = ((1, 77, 144), (3, 1000, 16), (8, 300, 1040), (13, 5, 64), (16, 1, 16), (5, 64, 17040))
    for m, k, n in shapes:
        Case("gemv_strips", dtype, m, k, n, queue="tests").check()
    options = {"alpha": 2, "beta": -1, "out": "block", "bias": True, "queue": "tests"}
    Case("gemv_strips", dtype, 7, 100, 48, True, **options).check()
    Case("gemv_strips", dtype, 2, 100, 48, batch_a=(3,), batch_b=(2, 1), queue="tests").check()


def test_strips_parameters(queue):
    names = ("ROWS", "WIDTH", "SUB_GROUPS", "STEPS")
    for dtype, *values in (
        ("float32", 1, 8, 32, 8),
        ("float32", 2, 2, 8, 2),
        ("float32", 4, 4, 16, 8),
        ("float32", 8, 8, 16, 8),
        ("int8", 8, 8, 8, 2),
    ):
        parameters = dict(zip(names, values, strict=True))
        for m, k in ((1, 2100), (5, 2100), (8, 2112), (8, 4)):
            options = {"parameters": parameters, "queue": "tests"}
            Case("gemv_strips", dtype, m, k, 64, **options).check()


@pytest.mark.parametrize(
    ("dtype", "shape"), [("float32", (8, 1028, 4256)), ("float64", (8, 514, 2128))]
)
def test_runs_of_strips(queue, dtype, shape):
    """More strips than a GPU has compute units, with several blocks of K and less than one left."""
    if dtype == "float64" and not queue.device.fp64:
        pytest.skip(f"{queue.device.name} has no float64")
    parameters = {"WIDTH": 8, "SUB_GROUPS": 16, "STEPS": 8 if dtype == "float32" else 4}
    Case("gemv_strips", dtype, *shape, parameters=parameters, queue="tests").check()


@pytest.fixture
def far_rows(queue):
    """A tensor of 5 rows of 16, the last more than 2**32 elements from the first, and its values.
    Only pages that are touched take memory."""
    rows, stride = 5, 2**30 + 16
    if queue.device.max_allocation < rows * stride:
        pytest.skip(f"the device allocates at most {queue.device.max_allocation} bytes at once")
    far = DeviceTensor((rows, stride), "int8", queue=queue)[:, :16]
    values = np.arange(-40, 40, dtype=np.int8).reshape(rows, 16)
    far.copy_from(values)
    yield far, values
    del far
    funlib.trim(queue)


def test_strips_of_rows_far_apart(queue, far_rows):
    a, rows = far_rows
    b = np.arange(16 * 16).astype(np.int8).reshape(16, 16)
    result = funlib.gemm(a, DeviceTensor.from_numpy(b, queue=queue), kernel="gemv_strips").to_host()
    assert np.array_equal(result, rows.astype(int) @ b.astype(int))


def test_strips_of_few_columns(queue):
    """C^T instead of C, as for other narrow products, would want B transposed."""
    for columns in (4, 8):
        a, b = ones(queue, (8, 16)), ones(queue, (16, columns))
        c = ones(queue, (columns, 8)).T
        for out in (None, c):
            result = funlib.gemm(a, b, out=out, kernel="gemv_strips")
            assert (result.to_host() == 16).all()


def test_strips_want_vectors(queue):
    a = ones(queue, (2, 8))
    for b, options in ((ones(queue, (8, 7)), {}), (ones(queue, (8, 8)), {"transpose_b": True})):
        with pytest.raises(funlib.UnsupportedError, match="reads B"):
            funlib.gemm(a, b, kernel="gemv_strips", **options)


# ---- gemv_dots -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_dots(queue, dtype):
    """All numbers of rows, of one tile and of more; the last columns; lines of one vector, and of
    several blocks and less than one."""
    if dtype == "float64" and not queue.device.fp64:
        pytest.skip(f"{queue.device.name} has no float64")
    for m, k, n in ((1, 16, 1), (3, 4112, 7), (8, 1040, 130), (13, 64, 33), (16, 2064, 20)):
        Case("gemv_dots", dtype, m, k, n, False, True, queue="tests").check()
    options = {"alpha": 2, "beta": -1, "out": "block", "bias": True, "queue": "tests"}
    Case("gemv_dots", dtype, 7, 96, 45, True, True, **options).check()
    Case("gemv_dots", dtype, 7, 96, 45, False, True, a="block", queue="tests").check()
    batches = {"batch_a": (3,), "batch_b": (2, 1), "queue": "tests"}
    Case("gemv_dots", dtype, 9, 96, 45, False, True, **batches).check()
    nothing = {"alpha": 0, "beta": 2, "out": "c", "queue": "tests"}
    Case("gemv_dots", dtype, 7, 96, 45, False, True, **nothing).check()


def test_dots_parameters(queue):
    names = ("ROWS", "COLUMNS", "SUB_GROUPS", "STEPS")
    for dtype, *values in (
        ("float32", 1, 1, 16, 8),
        ("float32", 2, 2, 1, 1),
        ("float32", 8, 4, 2, 2),
        ("float32", 16, 4, 8, 4),
        ("int8", 8, 2, 4, 4),
    ):
        parameters = dict(zip(names, values, strict=True))
        for m, k in ((1, 2064), (5, 4128), (16, 16)):
            options = {"parameters": parameters, "queue": "tests"}
            Case("gemv_dots", dtype, m, k, 50, False, True, **options).check()


def test_dots_of_rows_far_apart(queue, far_rows):
    a, rows = far_rows
    lines = np.arange(-24, 24, dtype=np.int8).reshape(3, 16)
    b = DeviceTensor.from_numpy(lines, queue=queue)
    result = funlib.gemm(a, b, transpose_b=True, kernel="gemv_dots").to_host()
    assert np.array_equal(result, rows.astype(int) @ lines.astype(int).T)


def test_dots_want_lines(queue):
    a = ones(queue, (2, 8))
    with pytest.raises(funlib.UnsupportedError, match="not transposed"):
        funlib.gemm(a, ones(queue, (8, 8)), kernel="gemv_dots")
    with pytest.raises(funlib.UnsupportedError, match="16 bytes"):
        funlib.gemm(ones(queue, (2, 7)), ones(queue, (8, 7)), transpose_b=True, kernel="gemv_dots")
    if not queue.device.fp64:
        pytest.skip(f"{queue.device.name} has no float64")
    wide, parameters = ones(queue, (8, 8), "float64"), {"ROWS": 16, "COLUMNS": 4}
    with pytest.raises(funlib.UnsupportedError, match="bytes of sums"):
        funlib.gemm(wide, wide, transpose_b=True, kernel="gemv_dots", parameters=parameters)


# ---- precision -----------------------------------------------------------------------------------


def test_precision(queue):
    a, b = ones(queue, (20, 30)), ones(queue, (30, 10))
    expected = np.full((20, 10), 30, np.float32)
    for precision in (None, "float32", "tf32"):
        assert np.array_equal(funlib.gemm(a, b, precision=precision).to_host(), expected)
        assert funlib.explain(a, b, precision=precision).kernel
    for precision in ("bfloat16", "TF32", 32, ["tf32"]):
        with pytest.raises(ValueError, match=r"precision.*'tf32'"):
            funlib.gemm(a, b, precision=precision)
        with pytest.raises(ValueError, match="precision"):
            funlib.explain(a, b, precision=precision)


@pytest.mark.parametrize("dtype", ["float64", "int32", "float16", "int8"])
def test_precision_is_for_float32(queue, dtype):
    if dtype == "float64" and not queue.device.fp64:
        pytest.skip(f"{queue.device.name} has no float64")
    a = ones(queue, (3, 3), dtype)
    for precision in ("float32", "tf32"):
        with pytest.raises(ValueError, match=f"float32.*{dtype}"):
            funlib.gemm(a, a, precision=precision)


def test_float32_needs_permission(queue):
    """The engine rounds float32: without permission it is refused; without one, by its name."""
    a = ones(queue, (64, 64))
    has_engine = "tf32" in queue.device.matrix_types
    with pytest.raises(funlib.UnsupportedError, match="precision" if has_engine else "tf32"):
        funlib.gemm_matrix_engine(a, a)
    if not has_engine:
        with pytest.raises(funlib.UnsupportedError, match="tf32"):
            funlib.gemm_matrix_engine(a, a, precision="tf32")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "float64"])
def test_engines_are_queried(queue, dtype):
    name = {"bfloat16": "bf16", "float16": "fp16", "int8": "int8", "float64": "fp64"}[dtype]
    if name in queue.device.matrix_types:
        pytest.skip(f"{queue.device.name} has engines for {dtype}")
    if dtype == "float64" and not queue.device.fp64:
        pytest.skip(f"{queue.device.name} has no float64")
    a = ones(queue, (64, 64), dtype)
    with pytest.raises(funlib.UnsupportedError, match=name):
        funlib.gemm_matrix_engine(a, a)
    assert funlib.explain(a, a).kernel != "gemm_matrix_engine"


# ---- gemm_matrix_engine where there are engines -------------------------------------------------

NAMES = ("SUB_M", "SUB_N", "TILE_M", "TILE_N", "TILE_K", "STAGES", "TEAMS_K")
TILES = [
    {"STAGES": 1},
    *(
        dict(zip(NAMES, values, strict=True))
        for values in (
            (32, 32, 64, 64, 32, 3, 1),
            (32, 32, 32, 32, 64, 2, 4),
            (16, 32, 16, 32, 128, 4, 8),
            (8, 32, 8, 64, 256, 3, 8),
        )
    ),
]
TILES[-1] |= {"ENGINE_M": 8, "ENGINE_N": 32}  # for two bytes and less


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "float32", "float64"])
@pytest.mark.parametrize("parameters", TILES, ids=str)
def test_engine(queue, dtype, parameters):
    """Less K than stages hold, and more; operands of whole vectors and others; numbers of TF32."""
    options = {"kernel": "gemm_matrix_engine", "parameters": parameters}
    if dtype == "float32":
        options["precision"] = "tf32"
    operand = DeviceTensor((1, 1), dtype, queue=queue)
    try:
        funlib.explain(operand, operand, **options)
    except funlib.UnsupportedError as error:
        pytest.skip(str(error))
    rng = np.random.default_rng(0)
    for m, k, n in ((8, 1, 8), (64, 64, 64), (130, 333, 70), (16, 2064, 96), (5, 528, 33)):
        a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n)))
        for transposes in TRANSPOSES:
            lines = [x.T.copy() if t else x for x, t in zip((a, b), transposes, strict=True)]
            operands = [DeviceTensor.from_numpy(x.astype(dtype), queue=queue) for x in lines]
            layout = dict(zip(("transpose_a", "transpose_b"), transposes, strict=True))
            if dtype in ("bfloat16", "float16"):
                layout["out_dtype"] = "float32"
            if dtype == "int8" and transposes[0] and k > 1 and parameters.get("TILE_M") == 8:
                with pytest.raises(funlib.UnsupportedError, match="lines of 8 elements"):
                    funlib.gemm(*operands, **layout, **options)
                continue
            result = funlib.gemm(*operands, **layout, **options)
            assert np.array_equal(result.to_host(), a @ b)


def test_engine_of_rows_far_apart(queue):
    """A whole tile of rows, more than 2**32 elements in all. Only pages that are touched take
    memory."""
    rows, stride = 64, 2**26 + 2**21
    if queue.device.max_allocation < rows * stride:
        pytest.skip(f"the device allocates at most {queue.device.max_allocation} bytes at once")
    options = {"kernel": "gemm_matrix_engine", "parameters": TILES[1], "transpose_b": True}
    operand = DeviceTensor((1, 1), "int8", queue=queue)
    try:
        funlib.explain(operand, operand, **options)
    except funlib.UnsupportedError as error:
        pytest.skip(str(error))
    far = DeviceTensor((rows, stride), "int8", queue=queue)[:, :64]
    values = np.random.default_rng(0).integers(-128, 128, (rows, 64)).astype(np.int8)
    far.copy_from(values)
    near = DeviceTensor.from_numpy(values, queue=queue)
    exact = values.astype(int) @ values.astype(int).T
    for a, b in ((far, near), (near, far)):
        assert np.array_equal(funlib.gemm(a, b, **options).to_host(), exact)
    del far
    funlib.trim(queue)


# ---- gemm_matrix_engine, with its engine emulated ------------------------------------------------

# Data type: shape of the engine, of a sub-group's outputs, TILE_K, INTERLEAVED, STAGES, TEAMS_K;
# parameters of gemm_subgroup, whose tile is SUB_GROUPS * ROWS x SUB_GROUP * COLUMNS. Engines are
# those of DG2, PVC and NVIDIA GPUs.
ENGINES = {
    "bfloat16_8x8x16": ((8, 8, 16, 16, 16, 32, 1, 1, 1), (8, 4, 8, 4)),
    "bfloat16_8x16x16": ((8, 16, 16, 16, 32, 32, 1, 2, 1), (16, 4, 8, 4)),
    "bfloat16_8x32x16": ((8, 32, 16, 8, 32, 64, 0, 4, 2), (32, 2, 4, 1)),
    "float16_16x16x16": ((16, 16, 16, 16, 32, 32, 0, 3, 1), (32, 4, 8, 2)),
    "int8_8x8x32": ((8, 8, 32, 16, 16, 64, 1, 1, 1), (8, 4, 8, 4)),
    "int8_16x16x16": ((16, 16, 16, 16, 32, 64, 0, 2, 4), (32, 4, 4, 1)),
    "float64_8x8x4": ((8, 8, 4, 16, 16, 8, 0, 2, 1), (32, 4, 8, 1)),
    "float32_8x16x8": ((8, 16, 8, 16, 32, 16, 1, 1, 1), (16, 4, 8, 4)),
    "float32_16x16x8": ((16, 16, 8, 32, 32, 16, 0, 1, 1), (32, 2, 16, 2)),
}
ENGINE_NAMES = (
    *("ENGINE_M", "ENGINE_N", "ENGINE_K", "SUB_M", "SUB_N", "TILE_K"),
    *("INTERLEAVED", "STAGES", "TEAMS_K"),
)

SCRIPT = """
import json, sys
folder, dtype, transposes, parameters = json.loads(sys.argv[1])
sys.path.append(folder)
import numpy as np
import funlib, reference
from reference import Case

funlib.register_queue("tests", device="cpu")
if dtype == "float32":
    # Numbers of TF32, whose products the emulation rounds no more than float32 does.
    drawn = reference.random_matrix
    reference.random_matrix = lambda *args: (drawn(*args).view(np.int32) & -8192).view(np.float32)
common = {"parameters": parameters, "queue": "tests"}
run = 0
for transpose_a, transpose_b in transposes:
    layout = (transpose_a, transpose_b)
    for shape in ((1, 1, 1), (64, 64, 64), (70, 33, 150), (129, 100, 65), (31, 17, 3)):
        Case("gemm_subgroup", dtype, *shape, *layout, **common).check()
        run += 1
    scalars = (2, -1)
    Case("gemm_subgroup", dtype, 70, 80, 90, *layout, *scalars, out="block", **common).check()
    Case("gemm_subgroup", dtype, 70, 80, 90, *layout, a="block", b="block", **common).check()
    run += 2
# The steps to a batch's matrices are the same in every layout.
batches = {"batch_a": (2, 3), "batch_b": (3,)}
Case("gemm_subgroup", dtype, 40, 40, 40, *layout, **batches, **common).check()
run += 1
activation = "relu" if dtype == "int8" else "gelu"
Case("gemm_subgroup", dtype, 50, 60, 70, bias=True, activation=activation, **common).check()
queue = funlib.get_queue("tests")
if dtype == "float32":
    values = np.random.default_rng(0).standard_normal((50, 60)).astype(dtype)
    values[0, :4] = np.nan, np.inf, -np.inf, np.frombuffer(b"\\xff\\xff\\xff\\x7f", np.float32)[0]
    eye = np.zeros((60, 60), dtype)
    eye[range(60), range(60)] = 1
    a, b = (funlib.DeviceTensor.from_numpy(x, queue=queue) for x in (values[1:], eye))
    product = funlib.gemm_subgroup(a, b, parameters=parameters).to_host()
    bits = values[1:].view(np.uint32).astype(np.int64)
    nearest = (bits + 0xFFF + (bits >> 13 & 1) & ~0x1FFF).astype(np.uint32).view(np.float32)
    assert (product == nearest).all()
    row = funlib.DeviceTensor.from_numpy(values[:1, :4].T.copy(), queue=queue)
    one = funlib.DeviceTensor.full((1, 1), 1, dtype, queue=queue)
    product = funlib.gemm_subgroup(row, one, parameters=parameters).to_host()[:, 0]
    assert np.isnan(product[[0, 3]]).all() and (product[1:3] == [np.inf, -np.inf]).all()
print(run, "ran")
"""


@pytest.fixture
def emulated_kernels(tmp_path):
    """emulated_kernels(engine): a folder of kernel sources where gemm_subgroup is the engine."""

    def make(engine):
        folder = tmp_path / "kernels"
        shutil.copytree(SOURCE / "lib" / "kernels", folder)
        shutil.copy(SOURCE / "tests" / "emulated_matrix.hpp", folder / "funlib_matrix.hpp")
        kernel = (folder / "gemm_matrix_engine.cpp").read_text()
        assert "gemm_matrix_engine(" in kernel
        defines = dict(zip(ENGINE_NAMES, engine, strict=True)) | {
            "TILE_M": "(FUNLIB_SUB_GROUPS * FUNLIB_ROWS)",
            "TILE_N": "(FUNLIB_SUB_GROUP * FUNLIB_COLUMNS)",
        }
        lines = [f"#define FUNLIB_{name} {value}\n" for name, value in defines.items()]
        kernel = kernel.replace("gemm_matrix_engine(", "gemm_subgroup(")
        (folder / "gemm_subgroup.cpp").write_text("".join(lines) + kernel)
        return folder

    return make


@pytest.mark.parametrize("engine", ENGINES)
def test_emulated_engine(queue, run_python, emulated_kernels, engine):
    if queue.device.type != "cpu":
        pytest.skip("the emulation is for the CPU device")
    dtype = engine.split("_")[0]
    shape, values = ENGINES[engine]
    names = ("SUB_GROUP", "SUB_GROUPS", "ROWS", "COLUMNS")
    parameters = dict(zip(names, values, strict=True))
    if parameters["SUB_GROUP"] not in queue.device.sub_group_sizes:
        pytest.skip(f"{queue.device.name} has no sub-groups of {parameters['SUB_GROUP']}")
    # Two layouts for most: they are read alike whatever the type, turned or as they are stored.
    thorough = engine in ("bfloat16_8x8x16", "float16_16x16x16")
    transposes = TRANSPOSES if thorough else TRANSPOSES[::3]
    result = run_python(
        SCRIPT,
        json.dumps((str(SOURCE / "tests"), dtype, transposes, parameters)),
        timeout=600,
        FUNLIB_KERNEL_DIR=emulated_kernels(shape),
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [str(7 * len(transposes) + 1), "ran"]
