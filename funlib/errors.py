"""Exceptions of funlib. Wrong arguments raise the built-in ones: ValueError (shapes, ranges,
overlaps), TypeError (data types), LookupError (names), MemoryError (device memory) and BufferError
(an open host view is in the way)."""

__all__ = [
    "CompileError",
    "DeviceError",
    "DeviceNotFoundError",
    "ForkError",
    "FunlibError",
    "UnsupportedError",
]


class FunlibError(RuntimeError):
    """Base of the errors that no built-in exception describes."""


class CompileError(FunlibError):
    """The run-time compiler failed; the text holds its log."""


class DeviceError(FunlibError):
    """The SYCL runtime or the device failed."""


class DeviceNotFoundError(FunlibError):
    """No device fits the request; the text lists the devices that there are."""


class UnsupportedError(FunlibError):
    """The device, queue or kernel can't do what was asked."""


class ForkError(FunlibError):
    """The process was forked after the SYCL runtime started. Use the start method "spawn"."""
