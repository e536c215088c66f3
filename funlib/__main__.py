"""`python -m funlib devices | doctor | kernels`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from pathlib import Path

import funlib
from funlib import _runtime

# Variables that change what the SYCL runtime or funlib finds.
VARIABLES = (
    "FUNLIB_",
    "OCL_ICD_",
    "ONEAPI_DEVICE_SELECTOR",
    "SYCL_",
    "UR_",
)


def mebibytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Prints rows of strings under a header, in columns of equal width."""
    rows = [header, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    rows.insert(1, ["-" * width for width in widths])
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def print_devices(devices: list[funlib.Device]) -> None:
    print_table(
        [
            "index",
            "device",
            "type",
            "vendor",
            "backend",
            "driver",
            "compute units",
            "local memory",
            "memory",
            "sub-groups",
            "fp64",
            "fp16",
            "matrix engines",
        ],
        [
            [
                str(device.index),
                device.name,
                device.type,
                device.vendor,
                device.backend,
                device.driver,
                str(device.compute_units),
                f"{device.local_memory // 1024} KiB",
                mebibytes(device.global_memory),
                " ".join(map(str, device.sub_group_sizes)),
                "yes" if device.fp64 else "no",
                "yes" if device.fp16 else "no",
                " ".join(device.matrix_types) or "none",
            ]
            for device in devices
        ],
    )


def list_devices() -> int:
    devices = funlib.devices()
    if not devices:
        print(
            f"no SYCL device was found; `{sys.executable} -m funlib doctor` says what is missing",
            file=sys.stderr,
        )
        return 1
    print_devices(devices)
    return 0


def list_kernels() -> int:
    for kernel in funlib.kernels():
        print(f"{kernel.name}: {kernel.idea}")
        print(f"    source      lib/kernels/{kernel.source}")
        print(f"    data types  {', '.join(kernel.dtypes)}")
        print("    work-group  {} x {} work-items".format(*kernel.work_group))
        print("    tile        {} x {} outputs".format(*kernel.tile))
        for name, (default, legal) in kernel.parameters.items():
            print(f"    {name} = {default} (of {', '.join(map(str, legal))})")
    return 0


def loaded_libraries() -> set[Path]:
    """Paths of the shared objects in this process."""
    with open("/proc/self/maps") as maps:
        fields = (line.split(maxsplit=5) for line in maps)
        return {Path(line[5].strip()) for line in fields if len(line) == 6 and ".so" in line[5]}


def adapters(sycl_folder: Path) -> list[str]:
    """Lines that name the Unified Runtime's loader and adapters: loaded, or found beside it (where
    the wheels store each under several names)."""
    folders = [sycl_folder]
    folders += map(Path, filter(None, os.environ.get("UR_ADAPTERS_SEARCH_PATH", "").split(":")))
    loaded = {path for path in loaded_libraries() if path.name.startswith("libur_")}
    names = {path.name.split(".")[0] for path in loaded}
    found = {
        file
        for folder in folders
        for file in folder.glob("libur_adapter_*.so")
        if file.name.split(".")[0] not in names
    }
    lines = [f"{path} (loaded)" for path in sorted(loaded)]
    lines += [f"{path} (found, not loaded)" for path in sorted(found)]
    return lines or ["none"]


def cache_line(cache: funlib.CacheInfo) -> str:
    if not cache.directory:
        return f"none (mode {cache.mode})"
    files = [file for file in Path(cache.directory).rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    return (
        f"{cache.directory} (mode {cache.mode}, {len(files)} files, {mebibytes(size)} of "
        f"{mebibytes(cache.max_bytes)})"
    )


def hidden_gpus(devices: list[funlib.Device]) -> list[str]:
    """Advice on GPUs that the kernel shows but SYCL does not."""
    backends = {device.backend for device in devices if device.type == "gpu"}
    advice = []
    if Path("/dev/nvidia0").exists() and "cuda" not in backends:
        advice.append(
            "there is an NVIDIA GPU, but no CUDA adapter (libur_adapter_cuda.so.0), which no "
            "package on PyPI brings. If you have one:\n"
            "    export UR_ADAPTERS_SEARCH_PATH=<its folder>"
        )
    nodes = list(Path("/dev/dri").glob("renderD*"))
    vendors = [Path("/sys/class/drm", node.name, "device/vendor") for node in nodes]
    intel = [
        node
        for node, vendor in zip(nodes, vendors, strict=True)
        if vendor.exists() and vendor.read_text().strip() == "0x8086"
    ]
    if intel and not backends & {"level_zero", "opencl"}:
        if any(os.access(node, os.R_OK | os.W_OK) for node in intel):
            command = "sudo apt-get install intel-opencl-icd libze-intel-gpu1"
        else:
            command = "sudo usermod -aG render $USER    # then log in again"
        advice.append(f"there is an Intel GPU that SYCL does not see. Type\n    {command}")
    return advice


def try_product() -> str:
    """Multiplies two small matrices on the default queue, which compiles a kernel if the cache has
    none. Raises FunlibError if that fails or the result is wrong."""
    start = time.perf_counter()
    ones = funlib.DeviceTensor.full((8, 8), 1.0)
    right = bool((funlib.matmul(ones, ones).to_host() == 8.0).all())
    seconds = time.perf_counter() - start
    if not right:
        raise funlib.DeviceError(f"the result on {ones.device.name} is wrong")
    return f"8 x 8 by 8 x 8 on {ones.device.name}: right, {seconds:.1f} s"


def report(name: str, value: object) -> None:
    print(f"{name:<16}{value or 'not found'}")


def doctor() -> int:
    """Prints what was found and, for what is missing, what to type. Returns 0 if kernels can be
    compiled and run here, else 1."""
    install = f"Type\n    {_runtime.install_command()}"
    reinstall = f"Type\n    {sys.executable} -m pip install --force-reinstall --no-deps funlib"
    problems = []
    report("Python", f"{platform.python_version()} ({sys.executable})")
    report("system", platform.platform())
    for name in sorted(os.environ):
        if name.startswith(VARIABLES):
            report("environment", f"{name}={os.environ[name]}")
    if funlib._load_error is not None:
        report("funlib", f"can't be used ({Path(funlib.__file__).parent})")
        report("libsycl", _runtime.find(_runtime.SYCL_LIBRARY))
        report("OpenCL CPU", _runtime.find(_runtime.OPENCL_LIBRARY))
        problems.append(str(funlib._load_error))
        return conclude(problems, [])

    report("funlib", f"{funlib.__version__} ({Path(funlib.__file__).parent})")
    runtime = funlib.runtime_info()
    report("libfunlib", runtime.library)
    report("libsycl", runtime.sycl_library)
    report("compiler", runtime.compiler)
    report("OpenCL CPU", runtime.opencl_cpu)
    report("kernel sources", runtime.kernel_sources)
    report("kernel cache", cache_line(funlib.cache_info()))
    if not os.access(runtime.compiler, os.X_OK):
        named = "FUNLIB_COMPILER" in os.environ
        command = "Type\n    unset FUNLIB_COMPILER" if named else reinstall
        problems.append(
            f"the compiler program ({runtime.compiler or 'funlib-compiler'}) was not found. "
            f"{command}"
        )
    if not runtime.opencl_cpu:
        problems.append(f"Intel's OpenCL CPU runtime was not found. {install}")
    devices: list[funlib.Device] = []
    try:
        devices = funlib.devices()
    except funlib.FunlibError as error:
        problems.append(f"the SYCL runtime can't list devices: {error}")
    for line in adapters(Path(runtime.sycl_library).parent):
        report("UR library", line)
    if devices:
        try:
            report("product", try_product())
        except (funlib.FunlibError, MemoryError) as error:
            problems.append(f"a product of two small matrices failed: {error}")
        print()
        print_devices(devices)
    elif os.environ.get("ONEAPI_DEVICE_SELECTOR"):
        problems.append(
            "ONEAPI_DEVICE_SELECTOR leaves no device. Type\n    unset ONEAPI_DEVICE_SELECTOR"
        )
    else:
        problems.append(f"no SYCL device was found. {install}")
    return conclude(problems, hidden_gpus(devices))


def conclude(problems: list[str], advice: list[str]) -> int:
    for number, text in enumerate(problems, 1):
        print(f"\nproblem {number}: {text}")
    for text in advice:
        print(f"\nnote: {text}")
    if not problems:
        print("\neverything that funlib needs is there")
    return 1 if problems else 0


def main() -> int:
    commands = {"devices": list_devices, "doctor": doctor, "kernels": list_kernels}
    parser = argparse.ArgumentParser(prog="python -m funlib", description=funlib.__doc__)
    subparsers = parser.add_subparsers(dest="command", required=True)
    subparsers.add_parser("devices", help="table of the SYCL devices of this machine")
    subparsers.add_parser("doctor", help="what was found, what is missing, what to type")
    subparsers.add_parser("kernels", help="the registry of GEMM kernels")
    command = parser.parse_args().command
    if command != "doctor" and funlib._load_error is not None:
        print(funlib._load_error, file=sys.stderr)
        return 1
    try:
        return commands[command]()
    except funlib.FunlibError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
