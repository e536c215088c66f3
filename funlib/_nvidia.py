"""NVIDIA's driver as its own interface shows it, whatever SYCL makes of it; for `doctor`."""

import ctypes
import dataclasses

LIBRARY = "libcuda.so.1"


@dataclasses.dataclass(frozen=True)
class Driver:
    """What libcuda.so.1 says of itself. version: of the CUDA interface that it offers, "13.0".
    error: why it can't be used, with the name that it gives the error."""

    found: bool
    version: str = ""
    devices: int = 0
    error: str = ""

    def __str__(self) -> str:
        if not self.found:
            return f"none ({self.error})" if self.error else f"none ({LIBRARY} was not found)"
        if self.error:
            return f"CUDA {self.version}, which does not start: {self.error}"
        return f"CUDA {self.version}, {self.devices} device{'s' if self.devices != 1 else ''}"


def find_driver() -> Driver:
    """Loads the driver's library, which is none of funlib's requirements, and starts it."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        # There, but not to be loaded: of another architecture, say.
        missing = "No such file" in str(error)
        return Driver(found=False, error="" if missing else str(error))

    def failure(call: str, status: int) -> str:
        name = ctypes.c_char_p()
        library.cuGetErrorName(status, ctypes.byref(name))
        return f"{call}: {name.value.decode() if name.value else 'error'} ({status})"

    number = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(number))
    version = f"{number.value // 1000}.{number.value % 1000 // 10}"
    if status := library.cuInit(0):
        return Driver(found=True, version=version, error=failure("cuInit", status))
    if status := library.cuDeviceGetCount(ctypes.byref(number)):
        return Driver(found=True, version=version, error=failure("cuDeviceGetCount", status))
    return Driver(found=True, version=version, devices=number.value)
