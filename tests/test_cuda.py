"""The NVIDIA side on the stub driver (tests/cuda/stub_driver.cpp), which pretends devices, copies
and fills, but runs no kernels; and every kernel's PTX through NVIDIA's assembler.

All of it in fresh processes: those find the stub by LD_LIBRARY_PATH, before a real driver.
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import textwrap

import pytest
from helpers import COLLECT_LOG, module

import funlib

# The folder of funlib's own adapter.
OWN_ADAPTER = str(pathlib.Path(funlib.runtime_info().library).parent / "cuda_adapter")

QUEUE = """
import numpy as np
import funlib
queue = funlib.register_queue("stub", backend="cuda")
"""


@pytest.fixture(scope="session")
def stub_environment():
    """What makes a process find the stub driver."""
    folder = pathlib.Path(funlib.__file__).parents[1] / "tests" / "cuda"
    if not (folder / "libcuda.so.1").exists():
        pytest.skip("the stub driver is in a build folder; funlib is not used from one")
    path = ":".join(filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH"))))
    others = ("CUDA_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR", "FUNLIB_CUDA_ADAPTER")
    return {"LD_LIBRARY_PATH": path} | dict.fromkeys(others)


@pytest.fixture
def on_stub(run_python, stub_environment):
    """on_stub(code, *arguments, **environment): what a fresh process prints with the stub driver
    and a queue on its first device; nothing may come on standard error."""

    def run(code, *arguments, **environment):
        result = run_python(QUEUE + code, *arguments, **stub_environment | environment)
        assert result.returncode == 0, result.stdout + result.stderr
        assert result.stderr == ""
        return result.stdout

    return run


# ---- devices -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compute", "architecture"), [("9.0", "sm_90a"), ("8.6", "sm_86"), ("12.0", "sm_120a")]
)
def test_device(on_stub, compute, architecture):
    text = on_stub(
        """
(device,) = [d for d in funlib.devices() if d.backend == "cuda"]
assert device == queue.device
assert (device.name, device.vendor, device.type) == ("Stub GPU 0", "NVIDIA Corporation", "gpu")
assert device.driver == "CUDA 13.0"
assert (device.compute_units, device.local_memory) == (132, 232448)
assert (device.global_memory, device.max_work_group_size) == (4 << 30, 1024)
assert device.sub_group_sizes == (32,)
assert device.fp64 and device.fp16 and not device.host_accessible
if device.architecture != "sm_120a":  # which is younger than the runtime's table of engines
    assert {"bf16", "fp16", "int8", "tf32"} <= set(device.matrix_types)
assert all(d.architecture == "" for d in funlib.devices() if d.backend != "cuda")
assert funlib.memory_info(queue).free_bytes == 4 << 30
half = funlib.DeviceTensor((64, 64), "float16", queue=queue)
try:
    assert funlib.explain(half, half, kernel="gemm_wgmma").kernel == "gemm_wgmma"
    assert device.architecture == "sm_90a"
except funlib.UnsupportedError as error:
    assert device.architecture != "sm_90a" and "instructions of sm_90a" in str(error)
print(device.architecture)
""",
        FUNLIB_STUB_COMPUTE=compute,
    )
    assert text.strip() == architecture


NO_GPU = """
import funlib
devices = funlib.devices()
assert devices
assert all(device.backend != "cuda" for device in devices), devices
try:
    funlib.register_queue("stub", backend="cuda")
except funlib.DeviceNotFoundError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "environment",
    [
        {"FUNLIB_STUB_DEVICES": "0"},
        {"FUNLIB_STUB_FAIL": "cuInit=100"},
        {"FUNLIB_STUB_FAIL": "cuInit=999"},
        {"FUNLIB_STUB_FAIL": "cuDeviceGetCount=3"},
        {"FUNLIB_CUDA_ADAPTER": "off"},
        # As a process finds it that funlib has been loaded in, by the one that started it.
        {"FUNLIB_CUDA_ADAPTER": "off", "UR_ADAPTERS_SEARCH_PATH": OWN_ADAPTER},
    ],
    ids=lambda environment: " ".join(
        f"{name}={pathlib.Path(value).name}" for name, value in environment.items()
    ),
)
def test_no_gpu(run_python, stub_environment, environment):
    """Driver or adapter offer none: other devices are there, and nothing is said."""
    result = run_python(NO_GPU, **stub_environment | environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert "no device fits" in result.stdout


@pytest.mark.parametrize("driver", ["missing", "damaged"])
def test_no_driver(run_python, stub_environment, tmp_path, driver):
    environment = stub_environment | {"LD_LIBRARY_PATH": None}
    if driver == "damaged":
        (tmp_path / "libcuda.so.1").write_bytes(b"")
        environment["LD_LIBRARY_PATH"] = str(tmp_path)
    else:
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            pass
        else:
            pytest.skip("this machine has a driver")
    result = run_python(NO_GPU, **environment)
    assert (result.returncode, result.stderr) == (0, "")


def test_adapter_by_path(on_stub, tmp_path):
    """FUNLIB_CUDA_ADAPTER names the adapter that is loaded."""
    adapter = tmp_path / "another folder" / "libur_adapter_cuda.so.0"
    adapter.parent.mkdir()
    shutil.copy(funlib.runtime_info().cuda_adapter, adapter)
    text = on_stub(
        """
print(funlib.runtime_info().cuda_adapter)
with open("/proc/self/maps") as maps:
    print(sorted({line[line.index("/"):] for line in maps if "adapter_cuda" in line}))
""",
        FUNLIB_CUDA_ADAPTER=adapter,
    )
    assert text.count(str(adapter)) == 2
    assert funlib.runtime_info().cuda_adapter not in text


@pytest.mark.parametrize("name", ["missing/libur_adapter_cuda.so.0", "another_name.so", "."])
def test_adapter_at_a_wrong_path(run_python, stub_environment, tmp_path, name):
    """One warning, which says what to do; the other devices are there."""
    path = tmp_path / name
    if name == "another_name.so":
        shutil.copy(funlib.runtime_info().cuda_adapter, path)
    result = run_python(
        f"{COLLECT_LOG}{NO_GPU}print(records)",
        **stub_environment | {"FUNLIB_CUDA_ADAPTER": path},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("WARNING") == 1
    for words in ("FUNLIB_CUDA_ADAPTER", str(path), "libur_adapter_cuda.so.0", "unset"):
        assert words in result.stdout


def test_two_devices(on_stub):
    """Each has queues and memory of its own, and tensors of both can't be mixed."""
    text = on_stub(
        """
first, second = (d for d in funlib.devices() if d.backend == "cuda")
assert (first.name, second.name) == ("Stub GPU 0", "Stub GPU 1")
other = funlib.register_queue("other", device=second)
assert (queue.device, other.device) == (first, second)
for q in (queue, other):
    tensor = funlib.DeviceTensor.full((1000,), q.device.index, "int32", queue=q)
    assert (tensor.to_host() == q.device.index).all()
    assert funlib.memory_info(q).allocations == 1
    assert funlib.gemm(*(funlib.DeviceTensor.zeros((8, 8), queue=q),) * 2).queue == q
cpu = funlib.register_queue("cpu", device="cpu")
a, b, c = (funlib.DeviceTensor.zeros((8, 8), queue=q) for q in (queue, other, cpu))
packed = funlib.pack_weights(c)
assert packed.panel_width > 0
for name, right, options in (
    ("A", b, {"queue": other}),
    ("B", b, {}),
    ("weights", packed, {}),
    ("bias", a, {"bias": b[0]}),
):
    for call in (funlib.gemm, funlib.explain):
        try:
            call(a, right, **options)
        except ValueError as error:
            print(error)
            assert str(error).startswith(f"{name} is on device ")
        else:
            raise AssertionError((call, name))
""",
        FUNLIB_STUB_DEVICES="2",
    )
    for words in ("Stub GPU 0", "Stub GPU 1", '"stub"', '"other"', '"cpu"', "to_host"):
        assert words in text


# ---- memory and time -----------------------------------------------------------------------------


def test_copies(on_stub):
    """Of every data type, whole tensors and views of them, there and back."""
    on_stub(
        """
rng = np.random.default_rng(1)
for dtype in ("float32", "float64", "int32", "float16", "bfloat16", "int8"):
    tensor = funlib.DeviceTensor((37, 53), dtype, queue=queue)
    a = (100 * rng.standard_normal((37, 53))).astype(tensor.dtype)
    tensor.copy_from(a)
    assert tensor.to_host().tobytes() == a.tobytes(), dtype
    assert tensor[5].to_host().tobytes() == a[5].tobytes(), dtype
    out = np.empty_like(a)
    tensor.copy_to(out)
    queue.wait()
    assert out.tobytes() == a.tobytes(), dtype
    with tensor.host_view("rw") as view:
        host = np.asarray(view)
        assert host.tobytes() == a.tobytes(), dtype
        host[3, 4] = host[0, 0]
        del host
    assert tensor.to_host()[3, 4] == a[0, 0]
    full = funlib.DeviceTensor.full((10, 3), 3, dtype, queue=queue)
    assert (full.to_host() == 3).all() and full.to_host().dtype == a.dtype
"""
    )


def test_out_of_device_memory(on_stub):
    """MemoryError with the bytes requested and free, by size or by the driver; the next call
    works."""
    text = on_stub(
        """
import os
held = funlib.DeviceTensor((3 << 28,), "float32", queue=queue)  # 3 GiB of the stub's 4
for size, wish in ((2 << 28, ""), (5 << 28, ""), (256, "cuMemAlloc_v2=2")):
    os.environ["FUNLIB_STUB_FAIL"] = wish
    try:
        funlib.DeviceTensor((size,), "float32", queue=queue)
    except MemoryError as error:
        print(error)
    os.environ["FUNLIB_STUB_FAIL"] = ""
    assert (funlib.DeviceTensor.full((64,), 2, "int32", queue=queue).to_host() == 2).all()
del held
queue.wait()
funlib.trim(queue)
assert funlib.memory_info(queue).cached_bytes == 0
funlib.DeviceTensor((2 << 28,), "float32", queue=queue)
"""
    )
    lines = text.splitlines()
    requested = (2 << 30, 5 << 30, 1024)
    assert len(lines) == len(requested)
    for line, size in zip(lines, requested, strict=True):
        assert "Stub GPU 0" in line
        assert f"requested {size} bytes" in line
        assert 0 < int(re.search(r"free (\d+)", line)[1]) <= 1 << 30


def test_event_times(on_stub):
    on_stub(
        """
a = funlib.DeviceTensor.zeros((64, 64), queue=queue)
c = funlib.gemm_tiled(a, a)
copied = c.to_host()
times = c.event.times
assert times.submit_ns > 0
assert times.submit_ns <= times.start_ns + 1_000_000  # on one clock, as good as it is read
assert times.start_ns <= times.end_ns
assert times.kernel_ns == times.end_ns - times.start_ns
assert c.event.kernel_time == times.kernel_ns * 1e-9
again = funlib.gemm_tiled(a, a).event.times
assert again.start_ns >= times.end_ns
plain = funlib.register_queue("plain", backend="cuda", profiling=False)
b = funlib.DeviceTensor.zeros((64, 64), queue=plain)
try:
    funlib.gemm_tiled(b, b).event.times
except funlib.UnsupportedError as error:
    assert "profiling" in str(error)
else:
    raise AssertionError
"""
    )


def test_event_times_beside_unfinished_work(on_stub):
    """Another queue's work, of which nobody waits for an end, keeps no times from being known."""
    on_stub(
        """
import time
other = funlib.register_queue("other", backend="cuda")
a, b = (funlib.DeviceTensor.zeros((64, 64), queue=each) for each in (queue, other))
first = funlib.gemm_tiled(a, a)
time.sleep(0.15)  # moments that times are measured from are renewed after 0.1 s
second = funlib.gemm_tiled(a, a)
times = funlib.gemm_tiled(b, b).event.times
assert not second.event.is_complete
assert 0 <= times.kernel_ns < 1_000_000_000
""",
        FUNLIB_STUB_LAZY="1",
    )


# ---- launches and their errors -------------------------------------------------------------------


def test_launch_geometry(on_stub, tmp_path):
    """Work-groups, work-items and dynamic local memory, as the driver is told them."""
    log = tmp_path / "log"
    on_stub(
        """
a = funlib.DeviceTensor.zeros((100, 64), queue=queue)
b = funlib.DeviceTensor.zeros((64, 60), queue=queue)
for kernel in ("gemm", "gemm_tiled"):
    funlib.gemm(a, b, kernel=kernel, parameters={"EDGE": 16}).event.wait()
""",
        FUNLIB_STUB_LOG=log,
    )
    launches = [line.split() for line in log.read_text().splitlines() if "gemm" in line]
    # ceil(100 / 16) * ceil(60 / 16) tiles, one a work-group.
    assert launches == [
        ["launch", f"__sycl_kernel_{kernel}", "28x1x1", "16x16x1", "0"]
        for kernel in ("gemm", "gemm_tiled")
    ]


@pytest.mark.parametrize(("slices", "size"), [(2, 2), (4, 4), (8, 6)])
def test_cluster_geometry(on_stub, tmp_path, slices, size):
    """A cluster for each tile, with a work-group for each slice of K, none of which is empty."""
    log = tmp_path / "log"
    text = on_stub(
        """
import sys
a = funlib.DeviceTensor.zeros((64, 64 * 11), "bfloat16", queue=queue)
b = funlib.DeviceTensor.zeros((64 * 11, 192), "bfloat16", queue=queue)
parameters = {"WARP_GROUPS": 1, "COLUMNS": 64, "SLICES": int(sys.argv[1])}
choice = funlib.explain(a, b, kernel="gemm_wgmma", parameters=parameters)
print(choice.work_groups, choice.slices)
funlib.gemm(a, b, kernel="gemm_wgmma", parameters=parameters).event.wait()
""",
        str(slices),
        FUNLIB_STUB_LOG=log,
    )
    assert text.split() == [str(3 * size), "1"]
    kernel = "__sycl_kernel_gemm_wgmma"
    lines = [line.split() for line in log.read_text().splitlines() if kernel in line]
    (launch,) = (line for line in lines if line[0] == "launch")
    assert launch[2] == f"{3 * size}x1x1"
    assert launch[-2:] == ["cluster", f"{size}x1x1"]


def test_slices_of_a_short_k(on_stub):
    """A work-group whose sums meet those of others does one tile, if K has one step alone too."""
    text = on_stub("""
a = funlib.DeviceTensor((4096, 64), "bfloat16", queue=queue)
b = funlib.DeviceTensor((64, 4096), "bfloat16", queue=queue)
for slices in (1, 2):
    choice = funlib.explain(a, b, kernel="gemm_wgmma", parameters={"SLICES": slices})
    print(choice.work_groups)
""")
    whole, sliced = map(int, text.split())
    assert sliced == 4096 * 4096 // (128 * 256) > whole


# What the driver answers, and what of it the caller sees.
ILLEGAL = "CUDA_ERROR_ILLEGAL_ADDRESS"
ERRORS = [
    ("cuLaunchKernel=700", "DeviceError", ("gemm_tiled 8x8x8 float32", ILLEGAL, "cuLaunchKernel")),
    ("cuMemcpyAsync=700", "DeviceError", ("copy_from_host 8x8 float32", ILLEGAL, "cuMemcpyAsync")),
    ("cuMemsetD32Async=700", "DeviceError", ("fill 8x8 float32",)),
    ("cuEventRecord=700", "DeviceError", ("copy_from_host 8x8 float32", ILLEGAL)),
    ("cuEventSynchronize=700", "DeviceError", ("copy_from_host 8x8 float32", ILLEGAL)),
    ("cuModuleLoadDataEx=218", "CompileError", ("gemm_tiled float32 nn", "an error of the stub")),
    ("cuStreamCreateWithPriority=2", "MemoryError", ("copy_from_host 8x8 float32",)),
    ("cuStreamCreateWithPriority=999", "DeviceError", ("cuStreamCreateWithPriority",)),
    ("cuDevicePrimaryCtxRetain=999", "DeviceError", ("cuDevicePrimaryCtxRetain",)),
]


@pytest.mark.parametrize(("wish", "error", "words"), ERRORS, ids=[case[0] for case in ERRORS])
def test_errors_of_the_driver(run_python, stub_environment, wish, error, words):
    """By the right exception, with what failed and the driver's name of the error; none is lost.
    Afterwards it works."""
    result = run_python(
        """
import os, sys
import numpy as np
import funlib
os.environ["FUNLIB_STUB_FAIL"] = sys.argv[1]
def work():
    queue = funlib.register_queue(f"stub {len(sys.argv)}", backend="cuda")
    a = funlib.DeviceTensor.from_numpy(np.ones((8, 8), np.float32), queue=queue)
    b = funlib.DeviceTensor.full((8, 8), 3.0, queue=queue)
    c = funlib.gemm_tiled(a, b)
    c.event.wait()
    c.to_host()
try:
    work()
except Exception as error:
    print(type(error).__name__, error)
os.environ["FUNLIB_STUB_FAIL"] = ""
sys.argv.append("again")
work()
""",
        wish,
        **stub_environment,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    kind, _, text = result.stdout.partition(" ")
    assert kind == error
    for word in words:
        assert word in text


# ---- compiling -----------------------------------------------------------------------------------

PRODUCT = """
import json
a = funlib.DeviceTensor.zeros((64, 64), queue=queue)
funlib.gemm_tiled(a, a).event.wait()
funlib.gemm_tiled(a, a, transpose_b=True).event.wait()
print(json.dumps(funlib.cache_info()._asdict()))
"""


def test_cache_of_images(on_stub, tmp_path):
    """Compiled once, by the first process; for each architecture; damage is mended."""
    cache = tmp_path / "cache"

    def run(**environment):
        answer = json.loads(on_stub(PRODUCT, FUNLIB_CACHE_DIR=cache, **environment))
        return answer["compilations"], answer["disk_hits"], answer["rejected"]

    assert run() == (2, 0, 0)
    assert run() == (0, 2, 0)
    assert run(FUNLIB_STUB_COMPUTE="8.0") == (2, 0, 0)
    assert len(list(cache.iterdir())) == 4
    for image in cache.iterdir():
        content = bytearray(image.read_bytes())
        content[len(content) // 2] ^= 1
        image.write_bytes(content)
    assert run() == (2, 0, 2)
    assert run() == (0, 2, 0)


def test_limit_on_the_size_of_files(on_stub):
    """The compiler needs no room for the library of built-in functions that it has embedded."""
    on_stub(
        """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
a = funlib.DeviceTensor((64, 64), queue=queue)
funlib.gemm(a, a, kernel="gemm_tiled")
""",
        FUNLIB_CACHE="off",
    )


def test_image_that_does_not_load(run_python, stub_environment, tmp_path):
    """A whole image that the driver refuses, as a new driver may: it is compiled anew, and what
    then fails is the error."""
    environment = stub_environment | {"FUNLIB_CACHE_DIR": tmp_path / "cache"}
    code = COLLECT_LOG + QUEUE + PRODUCT + "print(records)"
    assert run_python(code, **environment).returncode == 0
    failing = f"try:\n{textwrap.indent(code, '    ')}\nexcept funlib.CompileError as error:\n"
    failing += "    print(records, error)"
    result = run_python(failing, **environment, FUNLIB_STUB_FAIL="cuModuleLoadDataEx=222")
    assert (result.returncode, result.stderr) == (0, "")
    assert "does not load and is compiled anew" in result.stdout
    assert "compiling gemm_tiled float32 nn (gemm_tiled.cpp) failed" in result.stdout
    assert '"disk_hits": 2' in run_python(code, **environment).stdout


def test_missing_libdevice(run_python, stub_environment):
    """float64 activations need it, and the error says what to type; float32 works without."""
    result = run_python(
        QUEUE
        + """
for dtype in ("float64", "float32"):
    a = funlib.DeviceTensor.zeros((8, 8), dtype, queue=queue)
    for activation in ("gelu", "relu"):
        try:
            funlib.gemm_tiled(a, a, activation=activation).event.wait()
        except funlib.CompileError as error:
            print(dtype, activation, error)
assert funlib.runtime_info().cuda_toolkit == ""
""",
        **stub_environment | {"FUNLIB_CUDA_TOOLKIT": "/nonexistent", "FUNLIB_CACHE": "off"},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("float64 gelu")
    assert "float64 relu" not in result.stdout
    assert "float32" not in result.stdout
    for words in ("libdevice", "__nv_", 'pip install "funlib[cuda]"', "CUDA_HOME"):
        assert words in result.stdout


# ---- doctor --------------------------------------------------------------------------------------

DOCTOR = {
    "as it is": ({}, ["NVIDIA driver   CUDA 13.0, 1 device", "sm_90a (Stub GPU 0)", "funlib's)"]),
    "two devices": ({"FUNLIB_STUB_DEVICES": "2"}, ["CUDA 13.0, 2 devices", "sm_90a (Stub GPU 1)"]),
    "no device": ({"FUNLIB_STUB_DEVICES": "0"}, ["CUDA 13.0, 0 devices"]),
    "driver that fails": (
        {"FUNLIB_STUB_FAIL": "cuInit=999"},
        ["does not start: cuInit: CUDA_ERROR_OF_THE_STUB (999)"],
    ),
    "adapter off": (
        {"FUNLIB_CUDA_ADAPTER": "off"},
        ["off (FUNLIB_CUDA_ADAPTER)", "note: ", "unset FUNLIB_CUDA_ADAPTER"],
    ),
    "adapter missing": (
        {"FUNLIB_CUDA_ADAPTER": "/nowhere/libur_adapter_cuda.so.0"},
        ["none (FUNLIB_CUDA_ADAPTER is /nowhere", "note: ", "unset FUNLIB_CUDA_ADAPTER"],
    ),
    "selector": (
        {"ONEAPI_DEVICE_SELECTOR": "opencl:*"},
        ["note: ", "unset ONEAPI_DEVICE_SELECTOR"],
    ),
    "hidden": (
        {"FUNLIB_STUB_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""},
        ["note: ", "unset CUDA_VISIBLE_DEVICES"],
    ),
    "no libdevice": (
        {"FUNLIB_CUDA_TOOLKIT": "/nowhere"},
        ["libdevice       not found", "note: ", "unset FUNLIB_CUDA_TOOLKIT"],
    ),
}


@pytest.mark.parametrize(("environment", "words"), DOCTOR.values(), ids=DOCTOR)
def test_doctor(stub_environment, environment, words):
    result = module("doctor", **stub_environment | environment)
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stdout


def test_doctor_without_nvidia(stub_environment):
    """Its absence is no problem and nothing to advise on."""
    absent = {"FUNLIB_STUB_DEVICES": "0", "FUNLIB_CUDA_TOOLKIT": "/nowhere"}
    result = module("doctor", **stub_environment | absent)
    assert result.returncode == 0, result.stdout
    assert "everything that funlib needs is there" in result.stdout
    if not pathlib.Path("/dev/nvidia0").exists():
        assert "note: " not in result.stdout


def test_tiles_of_one_type(on_stub):
    """Tiles of A and B whose extents, and so whose types, are the same."""
    on_stub(
        """
a = funlib.DeviceTensor((64, 64), "int8", queue=queue)
parameters = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 64}
funlib.gemm(a, a, kernel="gemm_matrix_engine", parameters=parameters).event.wait()
"""
    )


# M, N, K, data type, transposes, kernel, and by what K is shared out.
FEW = """1 4096 4096 float32 nn gemv_strips
16 4096 4096 float32 nn gemv_strips
1 4096 4096 float32 nt gemv_dots
16 4096 4096 float32 nt gemv_dots
1 4095 4095 float32 nt gemv
17 4096 4096 float32 nt gemm_pipelined TEAMS_K
8 4096 4096 float64 nt gemv_dots
16 4096 4096 float64 nt gemm_mma_float64 SLICES
1 4096 4096 bfloat16 nn gemm_wgmma SLICES
16 4096 4096 bfloat16 nt gemm_wgmma SLICES
16 2048 2048 bfloat16 nt gemm_matrix_engine TEAMS_K
7 4096 4096 int8 nt gemm_matrix_engine TEAMS_K
8 4096 4096 int8 nt gemm_wgmma SLICES
8 64 4096 bfloat16 nn gemv_strips
17 4096 4096 bfloat16 nn gemm_wgmma SLICES
64 11008 4096 bfloat16 nn gemm_wgmma
4 64 131072 bfloat16 nt gemv_dots
512 512 1024 bfloat16 nn gemm_wgmma
128 128 16384 float16 nt gemm_wgmma SLICES
64 64 4095 float16 nt gemm_split_k
6 4096 64 float64 nn gemv_strips
12 6 4096 float64 nt gemv_dots
"""


def test_few_rows_and_few_tiles(on_stub):
    """What the model takes where a product is not large enough to fill a GPU by its tiles."""
    text = on_stub(
        """
import sys
for line in sys.argv[1].splitlines():
    m, n, k, dtype, layout, *_ = line.split()
    m, n, k = int(m), int(n), int(k)
    a = funlib.DeviceTensor((m, k), dtype, queue=queue)
    b = funlib.DeviceTensor((n, k) if layout == "nt" else (k, n), dtype, queue=queue)
    choice = funlib.explain(a, b, transpose_b=layout == "nt")
    sharing = [name for name in ("TEAMS_K", "SLICES") if choice.parameters.get(name, 1) > 1]
    print(m, n, k, dtype, layout, choice.kernel, *sharing)
""",
        FEW,
    )
    assert text.split("\n") == FEW.split("\n")


def test_named_kernel_for_few_columns(on_stub):
    """gemv_strips refuses the transposes of these products (results: test_gemm_gpu_kernels.py)."""
    on_stub(
        """
a = funlib.DeviceTensor((8, 16), queue=queue)
for columns in (4, 8):
    b = funlib.DeviceTensor((16, columns), queue=queue)
    for out in (None, funlib.DeviceTensor((columns, 8), queue=queue).T):
        funlib.gemm(a, b, out=out, kernel="gemv_strips").event.wait()
"""
    )


def test_refusals(on_stub):
    """What a kernel takes it takes into every layout of C, and it refuses what explain refuses.
    Nothing is computed: the error of a compiler that always fails says that it was accepted."""
    text = on_stub(
        """
import itertools, sys
sys.path.append(sys.argv[1])
from reference import Case

taken = 0
shapes = ((8, 16, 8), (8, 16, 4), (32, 12, 16), (3, 5, 7))
layouts = list(itertools.product(("c", "f", "left"), ("c", "f", "left"), ("f", "left")))
for kernel, shape, (a, b, out) in itertools.product(funlib.kernels(), shapes, layouts):
    for dtype in kernel.dtypes:
        case = Case(kernel.name, np.dtype(dtype).name, *shape, a=a, b=b, out=out, queue="stub")
        try:
            assert case.run() is None, case  # refused by explain as well
        except funlib.CompileError:
            taken += 1
        except funlib.UnsupportedError as error:
            raise AssertionError(case) from error
print(taken)
""",
        str(pathlib.Path(__file__).parent),
        FUNLIB_COMPILER="/bin/false",
        FUNLIB_CACHE="off",
    )
    assert int(text) > 1000


# ---- NVIDIA's assembler --------------------------------------------------------------------------

# argv: a kernel, the folder for PTX, transposes ("nt"), data types. The kernel in each of them is
# compiled, all at once, or, where the cache has them, loaded, which leaves the PTX in a folder for
# each data type.
ALL_TYPES = """
import os, pathlib, sys
from concurrent.futures import ThreadPoolExecutor

kernel, folder, transposes, *dtypes = sys.argv[1:]
transpose_a, transpose_b = (letter == "t" for letter in transposes)
options = {"kernel": kernel, "transpose_a": transpose_a, "transpose_b": transpose_b}

def product(dtype):
    if folder:
        os.environ["FUNLIB_STUB_PTX"] = f"{folder}/{dtype}"
        os.mkdir(os.environ["FUNLIB_STUB_PTX"])
    for rows in (128, 4):  # some kernels take few
        shape = (128, rows) if transpose_a else (rows, 128)
        a = funlib.DeviceTensor(shape, dtype, queue=queue)
        b = funlib.DeviceTensor((128, 128), dtype, queue=queue)
        for precision in ("float32", "tf32") if dtype == "float32" else (None,):
            try:
                funlib.explain(a, b, precision=precision, **options)
            except funlib.UnsupportedError as error:
                reason = error
                continue
            funlib.gemm(a, b, precision=precision, **options).event.wait()
            return None
    return f"{dtype}: {reason}"

with ThreadPoolExecutor(1 if folder else os.cpu_count()) as pool:
    print(*filter(None, pool.map(product, dtypes)), sep="\\n", end="")
assert funlib.cache_info().compilations == 0 or not folder
"""

# {architecture: (compute capability, transposes)}
ARCHITECTURES = {"sm_90a": ("9.0", "nn"), "sm_80": ("8.0", "tt")}
GPU_KERNELS = [k for k in funlib.kernels() if k.device_type in ("", "gpu")]
# Those that may spill: (kernel, data type, layout, architecture).
SPILLING = {
    # B does not lie along K: its bytes are turned in registers, beside the sums.
    ("gemm_wgmma", "int8", "nn", "sm_90a"),
    # A transposed A is read by elements, many of which wait in registers.
    ("gemv_strips", "float32", "tn", "sm_80"),
    ("gemv_strips", "int32", "tn", "sm_80"),
    ("gemv_strips", "int8", "tn", "sm_80"),
}


@pytest.fixture(scope="module")
def assemble():
    """assemble(path, architecture) -> {kernel function: figures} by ptxas; asserts success."""
    toolkit = funlib.runtime_info().cuda_toolkit
    places = [pathlib.Path(folder, "bin") for folder in (toolkit, "/usr/local/cuda") if folder]
    program = shutil.which("ptxas", path=":".join(map(str, places))) or shutil.which("ptxas")
    if program is None:
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")

    def run(path, architecture):
        result = subprocess.run(
            [program, "-v", f"-arch={architecture}", path, "-o", os.devnull],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert result.returncode == 0, f"{path}: {result.stdout}{result.stderr}"
        figures = {}
        parts = re.split(r"Compiling entry function '(\w+)'", result.stderr)
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            patterns = {
                "registers": r"Used (\d+) registers",
                "spilled": r"(\d+) bytes spill stores",
                "stack": r"(\d+) bytes stack frame",
                "local_bytes": r"(\d+) bytes smem",
            }
            found = {key: re.search(pattern, text) for key, pattern in patterns.items()}
            figures[name] = {key: int(match[1]) if match else 0 for key, match in found.items()}
            assert figures[name]["registers"] > 0, text
        assert figures, result.stderr
        return figures

    return run


@pytest.fixture(scope="module")
def report(summary_section):
    form = "{:<24} {:<8} {:<6} {:<7}" + " {:>11}" * 4
    names = ("registers", "spilled", "stack", "local_bytes")
    add_line = summary_section(
        "NVIDIA GPUs: registers and bytes of spills, stack and static local memory by ptxas",
        form.format("kernel", "type", "layout", "GPU", *names),
    )

    def add(kernel, dtype, layout, architecture, figures):
        values = (figures[name] for name in names)
        add_line(form.format(kernel, dtype, layout, architecture, *values))

    return add


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kernel", GPU_KERNELS, ids=lambda kernel: kernel.name)
def test_ptx(on_stub, assemble, report, tmp_path, kernel, architecture):
    compute, layout = ARCHITECTURES[architecture]
    dtypes = kernel.dtypes
    # None of them needs libdevice.
    environment = {"FUNLIB_STUB_COMPUTE": compute, "FUNLIB_CUDA_TOOLKIT": "/nonexistent"}
    # Some kernels take B in one order only.
    for order_b in (layout[1], "t" if layout[1] == "n" else "n"):
        layout = layout[0] + order_b
        refused = on_stub(ALL_TYPES, kernel.name, "", layout, *dtypes, **environment)
        if len(refused.splitlines()) < len(dtypes):
            break
    on_stub(ALL_TYPES, kernel.name, tmp_path, layout, *dtypes, **environment)
    if architecture == "sm_90a":
        assert refused == ""
    elif len(refused.splitlines()) == len(dtypes):
        pytest.skip(refused)
    spilling = set()
    for dtype in dtypes:
        for path in (tmp_path / dtype).iterdir():
            # Registers are given out by it, which the adapter adds.
            assert ".maxntid" in path.read_text()
            for function, figures in assemble(path, architecture).items():
                name = function.removeprefix("__sycl_kernel_")
                if name.endswith("_with_offset"):
                    continue
                report(name, dtype, layout, architecture, figures)
                if figures["spilled"]:
                    spilling.add((name, dtype, layout, architecture))
    assert spilling <= SPILLING
