"""Every kernel compiles for Intel GPUs.

Intel's offline compiler (ocloc) takes the SPIR-V of the kernel objects that funlib makes: the
nearest to a run that a machine without such a GPU allows. Registers and spills are reported below
the results of the tests.
"""

import re
import shutil
import struct
import subprocess

import pytest
from c_interface import ROOFS
from helpers import SOURCE
from reference import expected

import funlib

GPUS = ("dg2", "pvc")
# gemm_matrix_engine has parameters for each of them (ENGINES below).
GPU_KERNELS = [
    k
    for k in funlib.kernels()
    if k.device_type in ("", "gpu") and k.architecture == "" and k.name != "gemm_matrix_engine"
]
KERNEL_DTYPES = [(k.name, dtype) for k in GPU_KERNELS for dtype in k.dtypes]
SPIRV_MAGIC = struct.pack("<I", 0x07230203)
SPIRV_HEADER_BYTES = 20


def spirv_modules(image):
    """The SPIR-V modules inside a SYCLBIN image.

    A module is a header and instructions that begin with their own length, so its end is where no
    instruction begins.
    """
    modules = []
    begin = image.find(SPIRV_MAGIC)
    while begin >= 0:
        end = begin + SPIRV_HEADER_BYTES
        while end + 4 <= len(image):
            words = struct.unpack_from("<I", image, end)[0] >> 16
            if words == 0:
                break
            end += 4 * words
        modules.append(image[begin:end])
        begin = image.find(SPIRV_MAGIC, end)
    return modules


@pytest.fixture(scope="module")
def ocloc():
    """ocloc(spirv, gpu, folder) -> its figures, a dictionary; asserts success."""
    program = shutil.which("ocloc")
    if program is None:
        pytest.skip("ocloc is not installed (Debian: apt-get install intel-opencl-icd)")

    def compile_(spirv, gpu, folder):
        (folder / "kernel.spv").write_bytes(spirv)
        result = subprocess.run(
            [
                *(program, "compile", "-spirv_input", "-file", "kernel.spv", "-device", gpu),
                *("-output", "kernel.bin", "-output_no_suffix"),
                # The ELF format describes the kernel in text.
                *("-internal_options", "-cl-intel-allow-zebin"),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        log = result.stdout + result.stderr
        if "does not support the following opcode" in log:
            pytest.skip("this ocloc is older than the SPIR-V of matrix engines")
        assert result.returncode == 0, log
        assert "Build succeeded" in log, log
        # Newer versions add a suffix all the same.
        (binary,) = folder.glob("kernel.bin*")
        description = binary.read_bytes().decode("latin-1")
        binary.unlink()

        def number(pattern, text):
            found = re.search(pattern, text)
            return int(found[1]) if found else 0

        figures = {
            "registers": number(r"grf_count: +(\d+)", description),
            "simd": number(r"simd_size: +(\d+)", description),
            "local_bytes": number(r"slm_size: +(\d+)", description),
            # As ocloc counts them: "allocated 128 regs and spilled around 6".
            "spilled": number(r"spilled around (\d+)", log),
            "scratch_bytes": number(r"type: +scratch\s+usage: +\w+\s+size: +(\d+)", description),
        }
        assert figures["registers"] > 0, "no description of the kernel in ocloc's output"
        return figures

    return compile_


@pytest.fixture(scope="module")
def report(summary_section):
    form = "{:<24} {:<8} {:<6} {:<5}" + " {:>13}" * 5
    names = ("registers", "spilled", "scratch_bytes", "simd", "local_bytes")
    add_line = summary_section(
        "Intel GPUs: registers and spills by ocloc",
        form.format("kernel", "type", "layout", "GPU", *names),
    )

    def add(kernel, dtype, layout, gpu, figures):
        add_line(form.format(kernel, dtype, layout, gpu, *(figures[name] for name in names)))

    return add


def gpus_for(dtype):
    """DG2 has no float64: the host refuses it there. Types that are converted on loading and
    storing are no harder on registers, so one GPU will do."""
    return GPUS if dtype != "float64" and expected.sums_of(dtype) == dtype else ("pvc",)


# Both operands as they are for each type; the other layouts, which differ in indexing only, once.
CASES = [(kernel, dtype, False, False, gpus_for(dtype)) for kernel, dtype in KERNEL_DTYPES] + [
    (kernel, "float32", a, b, GPUS)
    for kernel, dtype in KERNEL_DTYPES
    if dtype == "float32"
    for a, b in ((False, True), (True, False), (True, True))
]


@pytest.fixture
def compile_image(queue, ocloc, report, tmp_path):
    """compile_image(image, kernel, dtype, layout, gpus): compiles a kernel object for GPUs; the
    figures of each."""
    if queue.device.backend not in ("opencl", "level_zero"):
        pytest.skip(f"kernel objects of {queue.device.backend} hold no SPIR-V")

    def compile_(image, kernel, dtype, layout, gpus):
        modules = spirv_modules(image)
        assert len(modules) == 1, f"{len(modules)} SPIR-V modules in an image of {len(image)} bytes"
        found = {gpu: ocloc(modules[0], gpu, tmp_path) for gpu in gpus}
        for gpu, figures in found.items():
            report(kernel, dtype, layout, gpu, figures)
        return found

    return compile_


@pytest.mark.parametrize(("kernel", "dtype", "transpose_a", "transpose_b", "gpus"), CASES)
def test_compiles(c_library, compile_image, kernel, dtype, transpose_a, transpose_b, gpus):
    layout = "nt"[transpose_a] + "nt"[transpose_b]
    image = c_library.kernel_object(kernel, dtype, transpose_a, transpose_b)
    compile_image(image, kernel, dtype, layout, gpus)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sub_groups_of_the_device_spill_nothing(c_library, compile_image, dtype):
    """64 sums a work-item fit into the registers of the smallest sub-groups that a GPU has."""
    kernel, gpu, size = "gemm_register_blocked", "pvc", 16
    image = c_library.kernel_object(kernel, dtype, False, False, f"SUB_GROUP={size}")
    figures = compile_image(image, kernel, dtype, "nn", (gpu,))[gpu]
    assert figures["simd"] == size
    assert figures["spilled"] == 0


# What gemm_matrix_engine takes for each GPU: the shape of its engine, the sub-groups, their outputs
# and the tile of a work-group; ENGINE_K by data type. float32 is TF32, which DG2 lacks.
ENGINES = {
    "dg2": "ENGINE_M=8 ENGINE_N=8 SUB_GROUP=8 SUB_M=16 SUB_N=32 TILE_M=64 TILE_N=128",
    "pvc": "ENGINE_M=8 ENGINE_N=16 SUB_GROUP=16 SUB_M=32 SUB_N=32 TILE_M=128 TILE_N=128",
}
ENGINE_DEPTHS = {"bfloat16": 16, "float16": 16, "int8": 32, "float32": 8}
ENGINE_CASES = [
    (gpu, dtype, transpose_a, transpose_b)
    for gpu in ENGINES
    for dtype in ENGINE_DEPTHS
    for transpose_a in (False, True)
    for transpose_b in (False, True)
    if (gpu, dtype) != ("dg2", "float32")
]


@pytest.fixture
def kernels_for_any_device(monkeypatch, tmp_path):
    """Kernel sources that don't tell the runtime which matrix engines they use: it would leave them
    out of an image that is compiled on a device without."""
    folder = tmp_path / "kernels"
    shutil.copytree(SOURCE / "lib" / "kernels", folder)
    header = folder / "funlib_matrix.hpp"
    include = "#include <sycl/ext/oneapi/matrix/matrix-unified.hpp>\n"
    source = header.read_text()
    assert include in source
    # Other headers mark their functions in the same way, and are included before.
    off = "#define add_ir_attributes_function(...) left_out\n"
    header.write_text(
        source.replace(
            include,
            f'#include "funlib_sub_group.hpp"\n{off}{include}#undef add_ir_attributes_function\n',
        )
    )
    monkeypatch.setenv("FUNLIB_KERNEL_DIR", str(folder))


@pytest.mark.usefixtures("kernels_for_any_device")
@pytest.mark.parametrize(("gpu", "dtype", "transpose_a", "transpose_b"), ENGINE_CASES)
def test_matrix_engine_compiles(c_library, compile_image, gpu, dtype, transpose_a, transpose_b):
    layout = "nt"[transpose_a] + "nt"[transpose_b]
    depth = ENGINE_DEPTHS[dtype]
    parameters = f"{ENGINES[gpu]} ENGINE_K={depth} TILE_K={2 * depth} INTERLEAVED=1 STAGES=1"
    image = c_library.kernel_object(
        "gemm_matrix_engine", dtype, transpose_a, transpose_b, parameters
    )
    figures = compile_image(image, "gemm_matrix_engine", dtype, layout, (gpu,))[gpu]
    assert figures["spilled"] == 0


@pytest.mark.parametrize(
    ("roof", "dtype"),
    [("roof_copy", "int32")] + [("roof_multiply_add", t) for t in ("float32", "float64", "int32")],
)
def test_roofs_compile(c_library, compile_image, roof, dtype):
    image = c_library.roof_kernel_object(ROOFS[roof], dtype)
    compile_image(image, roof, dtype, "-", gpus_for(dtype))
