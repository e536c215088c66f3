"""`python -m funlib devices | doctor | kernels | tune`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import funlib
from funlib import _arguments, _nvidia, _runtime

if funlib._load_error is None:
    from funlib import _tuner, _tuning

# Variables that change what the SYCL runtime or funlib finds.
VARIABLES = (
    "CUDA_",
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


def table_line(table: _tuning.Table) -> str:
    return f"ignored: {table.problem}" if table.problem else f"{len(table.entries)} entries"


def adapter_line(runtime: funlib.RuntimeInfo) -> str:
    """Which CUDA adapter the runtime is given, and why."""
    wish = os.environ.get("FUNLIB_CUDA_ADAPTER", "")
    if wish == "off":
        return "off (FUNLIB_CUDA_ADAPTER)"
    if not runtime.cuda_adapter:
        return f"none (FUNLIB_CUDA_ADAPTER is {wish})" if wish else ""
    if wish:
        return f"{runtime.cuda_adapter} (FUNLIB_CUDA_ADAPTER)"
    own = Path(runtime.cuda_adapter).parent.parent == Path(runtime.library).parent
    return f"{runtime.cuda_adapter} ({'funlib' if own else 'the SYCL runtime'}'s)"


def unseen_nvidia(driver: _nvidia.Driver, runtime: funlib.RuntimeInfo) -> list[str]:
    """Advice where NVIDIA's GPU or driver is there and SYCL shows no device of it."""
    node = Path("/dev/nvidia0").exists()
    if not driver.found:
        return [
            f"there is an NVIDIA GPU, but not its driver's library ({_nvidia.LIBRARY}). Type\n"
            "    sudo apt-get install libcuda1\n"
            "or, for a container, start it with `--gpus all` and "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        ] * node
    if driver.error or not driver.devices:
        variable = "CUDA_VISIBLE_DEVICES"
        if variable in os.environ:
            return [f"{variable} may hide NVIDIA's GPUs. Type\n    unset {variable}"]
        reason = driver.error or "it counts no device"
        return [f"there is an NVIDIA GPU that its driver does not offer: {reason}"] * node
    for variable in ("FUNLIB_CUDA_ADAPTER", "ONEAPI_DEVICE_SELECTOR"):
        if variable in os.environ:
            return [f"{variable} hides NVIDIA's GPUs. Type\n    unset {variable}"]
    if not runtime.cuda_adapter:
        return ["NVIDIA's GPUs need funlib's CUDA adapter, which is missing. " + reinstall_advice()]
    return [
        "the SYCL runtime does not show NVIDIA's GPUs. What it loads, and why not, is said by\n"
        f"    SYCL_UR_TRACE=1 UR_LOG_LOADER='level:debug;output:stderr' {sys.executable} -m funlib "
        "devices"
    ]


def missing_libdevice(devices: list[funlib.Device], runtime: funlib.RuntimeInfo) -> list[str]:
    """Advice for NVIDIA's GPUs where their mathematical functions were not found."""
    if runtime.cuda_toolkit or all(device.backend != "cuda" for device in devices):
        return []
    if "FUNLIB_CUDA_TOOLKIT" in os.environ:
        command = "unset FUNLIB_CUDA_TOOLKIT"
    else:
        command = f"{sys.executable} -m pip install 'funlib[cuda]'"
    return [
        "NVIDIA's libdevice was not found, which only some kernels need: float64 activations and "
        f"the like. For them, type\n    {command}"
    ]


def hidden_gpus(devices: list[funlib.Device]) -> list[str]:
    """Advice on Intel GPUs that the kernel shows but SYCL does not."""
    backends = {device.backend for device in devices if device.type == "gpu"}
    advice = []
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


def reinstall_advice() -> str:
    return f"Type\n    {sys.executable} -m pip install --force-reinstall --no-deps funlib"


def report(name: str, value: object) -> None:
    print(f"{name:<16}{value or 'not found'}")


def doctor() -> int:
    """Prints what was found and, for what is missing, what to type. Returns 0 if kernels can be
    compiled and run here, else 1."""
    install = f"Type\n    {_runtime.install_command()}"
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
    driver = _nvidia.find_driver()
    report("NVIDIA driver", driver)
    report("CUDA adapter", adapter_line(runtime))
    report("libdevice", runtime.cuda_toolkit and Path(runtime.cuda_toolkit, "nvvm", "libdevice"))
    report("kernel sources", runtime.kernel_sources)
    report("kernel cache", cache_line(funlib.cache_info()))
    if not _tuning.enabled():
        report("tuning", "off")
    if not os.access(runtime.compiler, os.X_OK):
        named = "FUNLIB_COMPILER" in os.environ
        command = "Type\n    unset FUNLIB_COMPILER" if named else reinstall_advice()
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
    for device in devices:
        if device.architecture:
            report("architecture", f"{device.architecture} ({device.name})")
        for table in _tuning.tables(device):
            report("tuning", f"{table.path} ({table_line(table)}) for {device.name}")
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
    advice = hidden_gpus(devices) + missing_libdevice(devices, runtime)
    if all(device.backend != "cuda" for device in devices):
        advice += unseen_nvidia(driver, runtime)
    return conclude(problems, advice)


def conclude(problems: list[str], advice: list[str]) -> int:
    for number, text in enumerate(problems, 1):
        print(f"\nproblem {number}: {text}")
    for text in advice:
        print(f"\nnote: {text}")
    if not problems:
        print("\neverything that funlib needs is there")
    return 1 if problems else 0


# ---- tune ------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    """The budget of "60", "60s", "5m"."""
    factors = {"s": 1, "m": 60, "h": 3600}
    factor = factors.get(text[-1:], 0)
    value = float(text[:-1] if factor else text) * (factor or 1)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


def add_tune_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    groups = ", ".join(_arguments.GROUPS)
    add(
        "--shapes",
        nargs="+",
        default=["transformer"],
        metavar="SHAPE",
        help=f"MxKxN, BATCHESxMxKxN or a group: {groups} (default: transformer)",
    )
    add("--dtype", nargs="+", default=["float32"], help="data types (default: float32)")
    add(
        "--transposes",
        nargs="+",
        choices=("nn", "nt", "tn", "tt"),
        default=["nn"],
        help="which of A and B are transposed (default: nn, neither)",
    )
    add(
        "--queue",
        default="default",
        metavar="SELECTOR",
        help='"default", or a device type, restricted: "cpu", "gpu,backend=cuda,vendor=nvidia"',
    )
    add(
        "--budget",
        type=seconds,
        default=60.0,
        metavar="TIME",
        help="for all of it: 90, 90s, 5m (default: 60s)",
    )
    add("--kernels", nargs="+", metavar="NAME", help="kernels to try (default: all)")
    action = parser.add_mutually_exclusive_group()
    for option, what in (
        ("--dry-run", "only say what would be tried first"),
        ("--show", "print the entries that are in use, and where they lie"),
        ("--clear", "delete the user's table of the device"),
    ):
        action.add_argument(option, action="store_true", help=what)


def result_rows(results: Iterable[funlib.TuneResult]) -> list[list[str]]:
    rows = []
    for result in results:
        was = result.model_gflops
        parameters = " ".join(f"{name}={value}" for name, value in result.parameters.items())
        rows.append(
            [
                "x".join(map(str, (result.batches, result.m, result.k, result.n))),
                result.dtype,
                "nt"[result.transpose_a] + "nt"[result.transpose_b],
                f"{result.kernel} {parameters}",
                f"{result.gflops:.1f}",
                f"{was:.1f}" if was else "wrong result",
                f"{result.gflops / was:.2f}" if was else "",
                str(result.candidates),
            ]
        )
    return rows


def show_tables(device: funlib.Device) -> None:
    for table in _tuning.tables(device):
        print(f"{table.path}: {table_line(table)}")
    print_table(
        ["batches x M x K x N", "type", "op", "choice", "GFLOP/s", "date"],
        [
            [
                "x".join(str(entry[name]) for name in ("batches", "m", "k", "n")),
                entry["dtype"],
                "nt"[entry["transpose_a"]] + "nt"[entry["transpose_b"]],
                " ".join([entry["kernel"], *(f"{n}={v}" for n, v in entry["parameters"].items())]),
                str(entry.get("gflops", "")),
                str(entry.get("date", "")),
            ]
            for entry in _tuning.in_use(device)
        ],
    )


def tune(arguments: argparse.Namespace) -> int:
    try:
        return show_or_tune(arguments)
    except (LookupError, TypeError, ValueError) as error:
        # Words of the command line that name no shape, data type, kernel or queue.
        print(f"tune: {error}", file=sys.stderr)
        return 2


def show_or_tune(arguments: argparse.Namespace) -> int:
    queue = _arguments.select_queue(arguments.queue, "tune")
    if arguments.show:
        show_tables(queue.device)
        return 0
    if arguments.clear:
        print(_tuning.clear(queue.device) or f"there is no table for {queue.device.name}")
        return 0
    transposes = [(word[0] == "t", word[1] == "t") for word in arguments.transposes]
    if arguments.dry_run:
        for dtype in arguments.dtype:
            tuner = _tuner.Tuner(queue, dtype, arguments.kernels)
            for shape, layout in tuner.products(arguments.shapes, transposes):
                product = _tuner.Product(queue, tuner.dtype, shape, layout)
                print(f"{product}: now {product.choice()}")
                for candidate in tuner.starts(product):
                    print(f"    {candidate}")
        return 0
    results = []
    for dtype in arguments.dtype:
        results += funlib.tune(
            arguments.shapes,
            dtype,
            queue=queue,
            budget=arguments.budget / len(arguments.dtype),
            kernels=arguments.kernels,
            transposes=transposes,
        )
    print_table(
        [
            "batches x M x K x N",
            "type",
            "op",
            "choice",
            "GFLOP/s",
            "untuned",
            "ratio",
            "measured",
        ],
        result_rows(results),
    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m funlib", description=funlib.__doc__)
    subparsers = parser.add_subparsers(dest="command", required=True)
    subparsers.add_parser("devices", help="table of the SYCL devices of this machine")
    subparsers.add_parser("doctor", help="what was found, what is missing, what to type")
    subparsers.add_parser("kernels", help="the registry of GEMM kernels")
    add_tune_options(subparsers.add_parser("tune", help="measure the fastest kernels for shapes"))
    arguments = parser.parse_args()
    command = arguments.command
    if command != "doctor" and funlib._load_error is not None:
        print(funlib._load_error, file=sys.stderr)
        return 1
    try:
        if command == "tune":
            return tune(arguments)
        return {"devices": list_devices, "doctor": doctor, "kernels": list_kernels}[command]()
    except funlib.FunlibError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
