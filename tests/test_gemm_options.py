"""What GEMM takes beside operands: epilogue, output type, packed weights, parameters, tuning."""

import pickle

import numpy as np
import pytest
import reference
from reference import LAYOUTS, Case, expected, random, tensors

import funlib
from funlib import DeviceTensor, _gemm

KERNELS = {kernel.name: kernel for kernel in funlib.kernels()}
DTYPES = expected.DTYPES
FLOATS = ("float32", "float16", "bfloat16")
ACTIVATIONS = [name for name in _gemm.ACTIVATIONS if name != "none"]

# (kernel, data type, bias, activation). Every specialisation takes seconds to compile. Kernels that
# store outputs one by one share the code, so "gemm" stands for them; gemm_vector has its own, and
# gemm_split_k a second kernel.
EPILOGUES = [
    *(("gemm", "float32", True, activation) for activation in (None, *ACTIVATIONS)),
    ("gemm", "bfloat16", True, "gelu"),
    ("gemm", "float64", True, "gelu"),
    ("gemm", "int32", True, "relu"),
    *(("gemm_vector", "float32", True, activation) for activation in (None, *ACTIVATIONS)),
    ("gemm_vector", "float32", False, "silu"),
    *(("gemm_vector", "bfloat16", True, activation) for activation in ACTIVATIONS),
    *(("gemm_vector", "float64", True, activation) for activation in ACTIVATIONS[1:]),
    ("gemm_vector", "float16", True, "gelu_tanh"),
    ("gemm_vector", "int32", True, "relu"),
    ("gemm_vector", "int8", True, "relu"),
    ("gemm_register_blocked", "float32", True, "gelu"),
    ("gemm_register_blocked", "bfloat16", True, "silu"),
    ("gemm_split_k", "float32", True, "gelu_tanh"),
    ("gemm_split_k", "bfloat16", True, "relu"),
    ("gemv_vector", "float32", True, "silu"),
    ("gemv_vector", "bfloat16", True, "gelu"),
    *(
        (kernel, "float32", True, "relu")
        for kernel in KERNELS
        if kernel
        not in ("gemm", "gemm_vector", "gemm_register_blocked", "gemm_split_k", "gemv_vector")
    ),
]

# (kernel, data type, data type of C). What differs is the store, as above.
CONVERSIONS = [
    *(("gemm_vector", dtype, out) for dtype in FLOATS for out in FLOATS if dtype != out),
    ("gemm", "float32", "bfloat16"),
    ("gemm", "float16", "float32"),
    ("gemm_register_blocked", "float32", "float16"),
    ("gemm_register_blocked", "bfloat16", "float32"),
    ("gemm_split_k", "bfloat16", "float16"),
    ("gemm_split_k", "float16", "float32"),
    ("gemv_vector", "float32", "bfloat16"),
    ("gemv_vector", "float16", "float32"),
]


@pytest.fixture(autouse=True)
def needs_fp64(request, queue):
    """Devices without float64 refuse it (test_gemm.py)."""
    parameters = getattr(request.node, "callspec", None)
    if parameters and "float64" in parameters.params.values() and not queue.device.fp64:
        pytest.skip(f"{queue.device.name} has no float64")


# ---- epilogue ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "dtype", "bias", "activation"), EPILOGUES)
def test_epilogue(queue, kernel, dtype, bias, activation):
    common = {"bias": bias, "activation": activation, "queue": "tests"}
    scalars = (2.0, -1.0) if expected.is_integer(dtype) else (1.3, -0.5)
    for m, k, n in ((3, 33, 70), (1, 700, 19), (37, 300, 50), (4, 0, 9), (0, 3, 4)):
        Case(kernel, dtype, m, k, n, **common).check()
        Case(kernel, dtype, m, k, n, False, False, *scalars, out="block", **common).check()
        Case(kernel, dtype, m, k, n, alpha=0.0, beta=scalars[1], out="c", **common).check()


@pytest.mark.parametrize(("kernel", "dtype", "bias", "activation"), EPILOGUES)
def test_values_of_activations(queue, kernel, dtype, bias, activation):
    """The function itself, over its range, at its ends and where the input is no number."""
    special = (
        [0, 1e-30, 1e-3, 50, 88, 89, 100, 1e4, np.inf]
        if dtype == "float16"
        else [0, 1e-37, 1e-10, 50, 87.3, 88, 89, 90, 103, 105, 200, 1e10, 1e20, 3e38, np.inf]
    )
    if expected.is_integer(dtype):
        values = np.arange(-100, 101).astype(dtype)
    else:
        special = np.array([*special, np.nan])
        values = np.concatenate([np.linspace(-12, 12, 3001), special, -special]).astype(dtype)
    row = values[None]
    one = np.ones((1, 1), dtype)
    options = {"activation": activation}
    wanted = reference.gemm(one, row, **options)
    if bias:
        options["bias"] = DeviceTensor.zeros((row.size,), expected.output_of(dtype), queue=queue)
    if not reference.supports(*tensors(queue, one, row), kernel=kernel, **options):
        pytest.skip(f"{kernel} is not for {queue.device.name}")
    result = funlib.gemm(*tensors(queue, one, row), kernel=kernel, **options).to_host()
    assert reference.problem(result, *wanted) is None
    assert np.isnan(result).any() == (not expected.is_integer(dtype))


def test_no_activation_has_two_names(queue):
    a = random(queue, (5, 5))[1]
    results = [funlib.gemm(a, a, activation=name).to_host() for name in (None, "none")]
    assert results[0].tobytes() == results[1].tobytes()


def test_narrow_and_by_columns(queue):
    """Where the transposed product is formed, the bias is a column."""
    for n in (1, 2, 3, 4, 5):
        for out in (None, "c", "f", "columns"):
            Case(None, "float32", 40, 9, n, bias=True, out=out, queue="tests").check()
    for kernel in (None, "gemm", "gemm_vector", "gemm_register_blocked"):
        for m in (1, 3, 20):
            common = {"bias": True, "out": "f_block", "queue": "tests"}
            Case(kernel, "float32", m, 300, 17, False, False, 2.0, -1.0, **common).check()
    Case(
        None, "bfloat16", 20, 300, 17, bias=True, activation="relu", out="f", queue="tests"
    ).check()


def test_bias_of_any_stride(queue):
    a, b, bias = random(queue, (6, 9)), random(queue, (9, 12)), random(queue, (3, 24), seed=2)
    for find in (
        lambda x: x[0, :12],
        lambda x: x[1, 3:15],
        lambda x: x[2, ::2],
        lambda x: x[2, 22::-2],
        lambda x: x.reshape(72)[::6],
    ):
        wanted = reference.gemm(a[0], b[0], bias=find(bias[0]))
        result = funlib.gemm(a[1], b[1], bias=find(bias[1])).to_host()
        assert reference.problem(result, *wanted) is None


def test_wrong_bias(queue):
    a, b = DeviceTensor((4, 5), queue=queue), DeviceTensor((5, 6), queue=queue)
    for shape in ((5,), (4,), (1, 6), (), (0,)):
        with pytest.raises(ValueError, match="bias has shape"):
            funlib.gemm(a, b, bias=DeviceTensor(shape, queue=queue))
    with pytest.raises(TypeError, match="bias is int32 but the result is float32"):
        funlib.gemm(a, b, bias=DeviceTensor((6,), "int32", queue=queue))
    with pytest.raises(TypeError, match="bias is float32 but the result is bfloat16"):
        funlib.gemm(a, b, bias=DeviceTensor((6,), queue=queue), out_dtype="bfloat16")
    with pytest.raises(TypeError, match="bias"):
        funlib.gemm(a, b, bias=np.zeros(6, np.float32))
    out = DeviceTensor((4, 6), queue=queue)
    with pytest.raises(ValueError, match="out overlaps bias"):
        funlib.gemm(a, b, bias=out[1], out=out)


def test_wrong_activation(queue):
    a = DeviceTensor((3, 3), queue=queue)
    for name in ("tanh", "", 1, [], "RELU"):
        with pytest.raises(ValueError, match="'gelu_tanh'"):
            funlib.gemm(a, a, activation=name)
    for dtype in ("int32", "int8"):
        whole = DeviceTensor((3, 3), dtype, queue=queue)
        for name in ACTIVATIONS[1:]:
            with pytest.raises(TypeError, match="relu"):
                funlib.gemm(whole, whole, activation=name)


# ---- types of the result -------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "dtype", "out_dtype"), CONVERSIONS)
def test_out_dtype(queue, kernel, dtype, out_dtype):
    common = {"out_dtype": out_dtype, "queue": "tests"}
    for m, k, n in ((1, 1, 1), (4, 600, 37), (50, 257, 70), (3, 0, 5), (2, 5, 0)):
        Case(kernel, dtype, m, k, n, **common).check()
        Case(kernel, dtype, m, k, n, out="c", **common).check()  # beta is 0, C is NaN
        Case(kernel, dtype, m, k, n, False, False, 0.5, -1.5, out="block", **common).check()


def test_which_types_go_together(queue):
    for dtype in DTYPES:
        if dtype == "float64" and not queue.device.fp64:
            continue
        a = DeviceTensor((2, 2), dtype, queue=queue)
        for out_dtype in DTYPES:
            legal = out_dtype == expected.output_of(dtype) or {dtype, out_dtype} <= set(FLOATS)
            if legal:
                assert funlib.explain(a, a, out_dtype=out_dtype).kernel in KERNELS
                continue
            with pytest.raises(TypeError, match=f"{dtype} can't be stored as {out_dtype}"):
                funlib.gemm(a, a, out_dtype=out_dtype)
    a = DeviceTensor((2, 2), queue=queue)
    with pytest.raises(TypeError, match="out is float32 but the result is bfloat16"):
        funlib.gemm(a, a, out=DeviceTensor((2, 2), queue=queue), out_dtype="bfloat16")
    with pytest.raises(TypeError, match="complex64"):
        funlib.gemm(a, a, out_dtype="complex64")


def test_overflow_of_the_result(queue):
    """What float16 can't hold is infinite, and is not in float32."""
    a, b = np.full((1, 4), 200, np.float16), np.full((4, 9), 100, np.float16)
    b[:, 0], b[:, 1] = -100, 50
    for out_dtype in (None, "float32"):
        result = funlib.gemm(*tensors(queue, a, b), out_dtype=out_dtype).to_host()
        assert reference.problem(result, *reference.gemm(a, b, out_dtype=out_dtype)) is None
        assert np.isinf(result).sum() == (8 if out_dtype is None else 0)


def test_rounding_to_nearest_even(queue):
    """Results halfway between two bfloat16 numbers, and the largest ones."""
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF808000, 0x7F7F8000, 0x00018000])
    values = bits.astype(np.uint32).view(np.float32)[None]
    wanted = values.astype(np.dtype("bfloat16"))
    one = np.ones((1, 1), np.float32)
    for kernel in ("gemm", "gemm_vector"):
        if not reference.supports(*tensors(queue, one, values), kernel=kernel):
            continue
        wide = np.tile(values, 20)
        result = funlib.gemm(
            *tensors(queue, one, wide), out_dtype="bfloat16", kernel=kernel
        ).to_host()
        assert result[:, :5].tobytes() == wanted[:, :5].tobytes()
        assert result[:, 6:11].tobytes() == wanted[:, :5].tobytes()


# ---- packed weights ------------------------------------------------------------------------------


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_packed_weights(queue, dtype, transpose_b):
    for m, k, n in (
        (1, 300, 50),
        (3, 7, 5),
        (40, 65, 33),
        (130, 513, 100),
        (4, 0, 9),
        (0, 3, 3),
        (5, 3, 0),
        (2, 64, 64),
    ):
        common = {"transpose_b": transpose_b, "packed": True, "queue": "tests"}
        Case(None, dtype, m, k, n, **common).check()
        Case(None, dtype, m, k, n, **common, alpha=3, beta=-2, out="block").check()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_weights_of_any_layout(queue, dtype, layout):
    for transpose_b in (False, True):
        common = {"transpose_b": transpose_b, "packed": True, "queue": "tests"}
        Case(None, dtype, 5, 70, 40, b=layout, **common).check()
        Case(None, dtype, 5, 70, 1, b=layout, **common).check()
        Case(None, dtype, 5, 1, 40, b=layout, **common).check()


def test_weights_and_the_rest(queue):
    """Together with a batch, an epilogue and any out."""
    for dtype in ("float32", "bfloat16"):
        for options in (
            {"batch_a": (3,)},
            {"batch_a": (2, 3), "a": "f"},
            {"batch_a": (0,)},
            {"bias": True, "activation": "gelu", "out": "f"},
            {"bias": True, "activation": "gelu", "out": "columns", "beta": 0.5},
            {"transpose_a": True, "a": "up"},
            {"alpha": 0.0, "beta": 2.0, "out": "c"},
        ):
            Case(None, dtype, 9, 300, 45, packed=True, **options, queue="tests").check()


def test_weights_outlive_b(queue):
    a, b = random(queue, (20, 300)), random(queue, (300, 70), seed=1)
    weights = funlib.pack_weights(b[1])
    b[1].fill(np.nan)  # ordered behind the packing
    wanted = reference.gemm(a[0], b[0])
    del b
    for result in (funlib.gemm(a[1], weights), funlib.matmul(a[1], weights), a[1] @ weights):
        assert reference.problem(result.to_host(), *wanted) is None
    row = a[1][3] @ weights
    assert row.shape == (70,)
    assert reference.problem(row.to_host(), wanted[0][3], wanted[1][3]) is None


def test_attributes_of_weights(queue):
    before = funlib.memory_info(queue).live_bytes
    b = DeviceTensor.zeros((30, 50), "bfloat16", queue=queue)
    weights = funlib.pack_weights(b, transpose_b=True)
    assert weights.shape == (50, 30)
    assert weights.dtype == b.dtype
    assert weights.queue == queue or weights.queue.name == queue.name
    width = weights.panel_width
    columns = -(-30 // width) * width if width else 30
    assert weights.nbytes >= 2 * 50 * columns
    assert repr(weights) == "PackedWeights(shape=(50, 30), dtype=bfloat16)"
    with pytest.raises(TypeError):
        pickle.dumps(weights)
    with pytest.raises(TypeError, match="pack_weights"):
        funlib.PackedWeights()
    queue.wait()
    del b, weights
    assert funlib.memory_info(queue).live_bytes == before


def test_weights_that_do_not_fit(queue):
    b = DeviceTensor.zeros((30, 50), queue=queue)
    weights = funlib.pack_weights(b, queue="tests")
    with pytest.raises(ValueError, match="30x50"):
        funlib.gemm(DeviceTensor((4, 50), queue=queue), weights)
    a = DeviceTensor.zeros((4, 30), queue=queue)
    with pytest.raises(TypeError, match="float16"):
        funlib.gemm(DeviceTensor((4, 30), "float16", queue=queue), weights)
    with pytest.raises(ValueError, match="transpose_b"):
        funlib.gemm(a, weights, transpose_b=True)
    with pytest.raises(ValueError, match="out has shape"):
        funlib.gemm(a, weights, out=DeviceTensor((4, 30), queue=queue))
    for operands in ((weights, a), (a.to_host(), weights)):
        with pytest.raises(TypeError):
            funlib.gemm(*operands)
    with pytest.raises(TypeError):
        a.to_host() @ weights
    if weights.panel_width:
        with pytest.raises(funlib.UnsupportedError, match="packed weights"):
            funlib.gemm(a, weights, kernel="gemm_tiled")
    for shape in ((), (3,), (2, 3, 4)):
        with pytest.raises(ValueError, match="two dimensions"):
            funlib.pack_weights(DeviceTensor(shape, queue=queue))
    with pytest.raises(TypeError):
        funlib.pack_weights(np.zeros((3, 3), np.float32))
    with pytest.raises(LookupError):
        funlib.pack_weights(b, queue="no such queue")


# ---- what explain says ---------------------------------------------------------------------------


def test_explain(queue):
    a, b = random(queue, (70, 300))[1], random(queue, (300, 90), seed=1)[1]
    compilations = funlib.cache_info().compilations
    choice = funlib.explain(a, b)
    assert choice.source == "model"
    assert choice.reason
    assert not choice.packs_a
    assert not choice.packs_b
    assert choice.slices >= 1
    for name in KERNELS:
        if not reference.supports(a, b, kernel=name):
            continue
        choice = funlib.explain(a, b, kernel=name)
        assert (choice.kernel, choice.source) == (name, "forced")
        assert set(choice.parameters) == set(KERNELS[name].parameters)
        for parameter, value in choice.parameters.items():
            assert value in KERNELS[name].parameters[parameter][1]
        rows, columns = choice.tile
        tiles = -(-70 // rows) * -(-90 // columns) * choice.slices
        if KERNELS[name].device_type == "":
            assert choice.work_groups == tiles
            sums = 4 * 70 * 90 * choice.slices if choice.slices > 1 else 0
            assert choice.workspace_bytes == sums
        else:
            assert 1 <= choice.work_groups <= tiles
        # The parameters that it names are those that are taken without them.
        assert funlib.explain(a, b, kernel=name, parameters=choice.parameters) == choice
    assert funlib.cache_info().compilations == compilations
    assert funlib.explain(a[:, ::2], b[::2], kernel="gemm").packs_a
    assert not funlib.explain(a[:, ::2], b[::2], kernel="gemm").packs_b
    assert funlib.explain(b.T, a[:, ::-1].T, kernel="gemm").packs_b
    assert funlib.explain(a[:0], b).work_groups == 0


def test_explain_names_the_product_that_is_done(queue):
    a, b = random(queue, (70, 300))[1], random(queue, (300, 90), seed=1)[1]
    batch = random(queue, (5, 8, 300), seed=2)[1]

    def done(*operands, **options):
        choice = funlib.explain(*operands, **options)
        return choice.product, choice.transposes

    assert done(a, b) == ((1, 70, 300, 90), (False, False))
    assert done(b.T, a, transpose_b=True) == ((1, 90, 300, 70), (True, True))
    assert done(a, b[:, :3].contiguous()) == ((1, 3, 300, 70), (True, True))
    assert done(batch, b) == ((1, 40, 300, 90), (False, False))
    assert done(batch, batch, transpose_b=True) == ((5, 8, 300, 8), (False, True))


def test_explain_raises_what_gemm_would(queue):
    a = DeviceTensor((3, 4), queue=queue)
    for options, error in (
        ({}, ValueError),
        ({"transpose_b": True, "kernel": "gemm_magic"}, LookupError),
        ({"transpose_b": True, "out_dtype": "int32"}, TypeError),
        ({"transpose_b": True, "activation": "sine"}, ValueError),
        ({"transpose_b": True, "parameters": {"EDGE": 8}}, ValueError),
    ):
        for function in (funlib.explain, funlib.gemm):
            with pytest.raises(error):
                function(a, a, **options)


# ---- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "parameters"),
    [
        ("gemm_tiled", {"EDGE": 8}),
        ("gemm_split_k", {"DEPTH": 64, "EDGE": 8}),
        ("gemm_register_blocked", {"TILE_M": 64, "TILE_N": 32, "BLOCK_M": 4, "TILE_K": 16}),
        ("gemm_vector", {"MR": 8, "NV": 1, "NC": 64, "KC": 128}),
        ("gemv_vector", {"COLUMNS": 1024}),
    ],
)
def test_parameters(queue, kernel, parameters):
    for m, k, n in ((4, 700, 300), (4, 3, 5), (70, 260, 90)):
        for out in (None, "block"):
            Case(kernel, "float32", m, k, n, out=out, parameters=parameters, queue="tests").check()
    a, b = DeviceTensor((4, 700), queue=queue), DeviceTensor((700, 300), queue=queue)
    if reference.supports(a, b, kernel=kernel, parameters=parameters):
        taken = funlib.explain(a, b, kernel=kernel, parameters=parameters).parameters
        assert taken == funlib.explain(a, b, kernel=kernel).parameters | parameters


def test_wrong_parameters(queue):
    a = DeviceTensor((30, 30), queue=queue)
    for parameters, match in (
        ({"EDGE": 7}, "8, 16, 32"),
        ({"EDGE": "eight"}, "8, 16, 32"),
        ({"EDGE": ""}, "8, 16, 32"),
        ({"EDG": 8}, "EDGE"),
        ({"EDGE": 8, "PAD": 1}, "PAD"),
        ({"": 8}, "sets no parameter"),
    ):
        with pytest.raises(ValueError, match=match):
            funlib.gemm(a, a, kernel="gemm_tiled", parameters=parameters)
    with pytest.raises(ValueError, match="no kernel is named"):
        funlib.gemm(a, a, parameters={"EDGE": 8})
    with pytest.raises(TypeError, match="parameters"):
        funlib.gemm(a, a, kernel="gemm_tiled", parameters="EDGE=8")
    with pytest.raises(funlib.UnsupportedError, match="128"):
        funlib.gemm(a, a, kernel="gemm_register_blocked", parameters={"BLOCK_M": 16, "BLOCK_N": 16})
    wanted = funlib.gemm(a, a, kernel="gemm_tiled").to_host()
    assert funlib.gemm(a, a, kernel="gemm_tiled", parameters={}).to_host().tobytes() == (
        wanted.tobytes()
    )


# ---- tuned choices -------------------------------------------------------------------------------


@pytest.fixture
def tune(queue):
    """tune(shape, kernel, parameters, ...): an entry that is forgotten after the test."""
    assert _gemm.tuning_count(queue) == 0

    def add(shape, kernel, parameters, dtype="float32", transposes=(False, False)):
        _gemm.tuning_add(queue, dtype, shape, transposes, kernel, parameters)

    yield add
    _gemm.tuning_clear(queue)
    assert _gemm.tuning_count(queue) == 0


def chosen(queue, m, k, n, dtype="float32", batch=(), **options):
    a = DeviceTensor((*batch, m, k), dtype, queue=queue)
    return funlib.explain(a, DeviceTensor((*batch, k, n), dtype, queue=queue), **options)


def test_tuned_choice(queue, tune):
    model = chosen(queue, 64, 64, 64)
    tune((1, 64, 64, 64), "gemm_tiled", {"EDGE": 8})
    assert _gemm.tuning_count(queue) == 1
    for shape in ((64, 64, 64), (33, 127, 64), (128, 50, 70)):
        choice = chosen(queue, *shape)
        assert (choice.kernel, choice.source) == ("gemm_tiled", "tuned")
        assert choice.parameters == {"EDGE": 8}
        assert "64x64x64" in choice.reason
        Case(None, "float32", *shape, bias=True, out="block", queue="tests").check()
    for shape in ((31, 64, 64), (64, 200, 64), (64, 64, 1000), (0, 64, 64)):
        assert chosen(queue, *shape).source == "model"
    assert chosen(queue, 64, 64, 64, "int32").source == "model"
    assert chosen(queue, 64, 64, 64, batch=(9,)).source == "model"
    assert chosen(queue, 64, 64, 64, kernel="gemm").source == "forced"
    tune((1, 64, 64, 64), "gemm_blocked2x2", {})
    assert _gemm.tuning_count(queue) == 1
    assert chosen(queue, 64, 64, 64).kernel == "gemm_blocked2x2"
    tune((1, 128, 64, 64), "gemm_blocked4x4", {})
    assert [chosen(queue, m, 64, 64).kernel for m in (70, 90, 110)] == [
        "gemm_blocked2x2",
        "gemm_blocked2x2",
        "gemm_blocked4x4",
    ]
    _gemm.tuning_clear(queue)
    assert chosen(queue, 64, 64, 64) == model


def test_layout_and_batch_of_tuned_shapes(queue, tune):
    tune((1, 64, 64, 64), "gemm_tiled", {})
    tune((1, 64, 64, 64), "gemm_padded", {}, transposes=(True, False))
    tune((100, 8, 8, 8), "gemm", {"EDGE": 8})
    assert _gemm.tuning_count(queue) == 3
    assert chosen(queue, 64, 64, 64).kernel == "gemm_tiled"
    assert chosen(queue, 64, 64, 64, transpose_a=True).kernel == "gemm_padded"
    assert chosen(queue, 64, 64, 64, transpose_b=True).source == "tuned"
    batched = chosen(queue, 9, 9, 9, batch=(10, 9))
    assert (batched.kernel, batched.parameters) == ("gemm", {"EDGE": 8})
    assert "100 products" in batched.reason


def test_tuned_kernel_that_does_not_fit(queue, tune):
    """Near shapes that the kernel can't do get the next choice."""
    if "gemv_vector" not in KERNELS or queue.device.type != "cpu":
        pytest.skip("no kernel of the device is bound to few rows")
    tune((1, 4, 64, 64), "gemv_vector", {"COLUMNS": 1024})  # not what the model takes
    assert chosen(queue, 3, 64, 64).source == "tuned"
    assert chosen(queue, 6, 64, 64).source == "model"
    tune((1, 9, 64, 64), "gemm_tiled", {})
    assert chosen(queue, 6, 64, 64).kernel == "gemm_tiled"
    Case(None, "float32", 6, 64, 64, queue="tests").check()
    Case(None, "float32", 9, 64, 64, packed=True, queue="tests").check()


def test_wrong_tuning_entries(queue, tune):
    for shape, kernel, parameters, error in (
        ((1, 4, 4, 4), "gemm_magic", {}, LookupError),
        ((1, 4, 4, 4), "gemm", {"EDGE": 9}, ValueError),
        ((1, 0, 4, 4), "gemm", {}, ValueError),
        ((0, 4, 4, 4), "gemm", {}, ValueError),
    ):
        with pytest.raises(error):
            tune(shape, kernel, parameters)
    assert _gemm.tuning_count(queue) == 0


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_workspace_is_bounded(run_python, dtype):
    """Panels, and sums that C can't hold, wait in a workspace of at most 64 MiB."""
    result = run_python(
        """
import sys
import funlib
dtype, most = sys.argv[1], 64 << 20
a = funlib.DeviceTensor.full((5000, 300), 0.5, dtype)
b = funlib.DeviceTensor.full((300, 5000), 0.5, dtype)
assert funlib.explain(a, b).workspace_bytes <= most, funlib.explain(a, b)
c = a @ b
c.wait()
beyond = funlib.memory_info().peak_bytes - a.nbytes - b.nbytes - c.nbytes
assert beyond <= most + (1 << 20), beyond
assert (c.to_host().astype("float32") == 75).all()
""",
        dtype,
    )
    assert result.returncode == 0, result.stdout + result.stderr
