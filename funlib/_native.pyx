"""What concerns the library as a whole: status codes, data types, logging, runtime and cache."""

import atexit
import logging
from collections import namedtuple

import numpy

from .errors import (
    CompileError,
    DeviceError,
    DeviceNotFoundError,
    ForkError,
    FunlibError,
    UnsupportedError,
)

cdef dict EXCEPTIONS = {
    FUNLIB_ERROR_INVALID_ARGUMENT: ValueError,
    FUNLIB_ERROR_TYPE: TypeError,
    FUNLIB_ERROR_NOT_FOUND: LookupError,
    FUNLIB_ERROR_NO_DEVICE: DeviceNotFoundError,
    FUNLIB_ERROR_OUT_OF_MEMORY: MemoryError,
    FUNLIB_ERROR_UNSUPPORTED: UnsupportedError,
    FUNLIB_ERROR_COMPILE: CompileError,
    FUNLIB_ERROR_RUNTIME: DeviceError,
    FUNLIB_ERROR_BUSY: BufferError,
    FUNLIB_ERROR_FORKED: ForkError,
}


cdef int raise_status(funlib_status status) except -1:
    raise EXCEPTIONS.get(status, FunlibError)(text(funlib_last_error()))


cdef str text(const char* string):
    # Driver names and compiler logs may hold anything.
    return string.decode("utf-8", "replace") if string is not NULL else ""


cdef list load_dtype_names():
    cdef int64_t count = 0
    cdef funlib_dtype_info info
    cdef int64_t code
    check(funlib_dtype_count(&count))
    names = []
    for code in range(count):
        check(funlib_dtype_get_info(<funlib_dtype>code, &info))
        names.append(text(info.name))
    return names


cdef list DTYPE_NAMES = load_dtype_names()
# By name, scalar type and dtype object, so that the usual spellings need no numpy.dtype call.
cdef dict DTYPE_CODES = {name: code for code, name in enumerate(DTYPE_NAMES)}
# None: a type that NumPy lacks, to be had from ml_dtypes.
cdef list DTYPES = [
    numpy.dtype(name) if hasattr(numpy, name) else None for name in DTYPE_NAMES
]
DTYPE_CODES.update(
    (spelling, code)
    for code, dtype in enumerate(DTYPES)
    if dtype is not None
    for spelling in (dtype.type, dtype)
)


cdef int dtype_code(object dtype) except -1:
    try:
        return DTYPE_CODES[dtype]
    except (KeyError, TypeError):
        pass
    # numpy.dtype(None) is float64: too surprising here. The name is the same in each byte order.
    found = numpy.dtype(dtype) if dtype is not None else None
    code = DTYPE_CODES.get(found.name) if found is not None else None
    if code is None:
        names = ", ".join(DTYPE_NAMES)
        raise TypeError(f"dtype {found} is not supported; funlib has {names}")
    return code


cdef object dtype_object(int code):
    if DTYPES[code] is None:
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError(
                f"{DTYPE_NAMES[code]} on the host needs the package ml_dtypes: "
                "pip install ml_dtypes"
            ) from None
        DTYPES[code] = numpy.dtype(getattr(ml_dtypes, DTYPE_NAMES[code]))
    return DTYPES[code]


cdef str dtype_name(int code):
    return DTYPE_NAMES[code]


RuntimeInfo = namedtuple(
    "RuntimeInfo",
    "library sycl_library compiler opencl_cpu kernel_sources cuda_adapter cuda_toolkit",
    module="funlib",
)
CacheInfo = namedtuple(
    "CacheInfo", "directory mode max_bytes compilations disk_hits rejected", module="funlib"
)


def version():
    """Version of libfunlib, "major.minor.patch"."""
    return text(funlib_version())


def runtime_info():
    """Paths of the pieces of the runtime: `library` (libfunlib), `sycl_library`, `compiler`
    (program), `opencl_cpu` (Intel's OpenCL CPU runtime), `cuda_adapter` (by which NVIDIA's GPUs are
    found) and `cuda_toolkit` (the folder with nvvm/libdevice, NVIDIA's mathematical functions),
    each "" where it was not found; and `kernel_sources`: "embedded" or the directory that
    FUNLIB_KERNEL_DIR names."""
    cdef funlib_runtime_info info
    cdef funlib_status status
    with nogil:
        status = funlib_runtime_get_info(&info)
    check(status)
    return RuntimeInfo(
        text(info.library),
        text(info.sycl_library),
        text(info.compiler),
        text(info.opencl_cpu),
        text(info.kernel_sources),
        text(info.cuda_adapter),
        text(info.cuda_toolkit),
    )


def cache_info():
    """State of the kernel cache: `directory` ("" if there is none), `mode` ("on", "readonly" or
    "off"), `max_bytes`, and what this process did: `compilations`, `disk_hits` (images loaded from
    the directory), `rejected` (damaged or foreign files that were ignored)."""
    cdef funlib_cache_info info
    cdef funlib_status status
    with nogil:
        status = funlib_cache_get_info(&info)
    check(status)
    return CacheInfo(
        text(info.directory),
        text(info.mode),
        info.max_bytes,
        info.compilations,
        info.disk_hits,
        info.rejected,
    )


cdef object LOGGER = logging.getLogger("funlib")
LOGGER.addHandler(logging.NullHandler())


cdef void log_message(
    funlib_log_level level, const char* message, void* user
) noexcept with gil:
    LOGGER.log(<int>level, "%s", text(message))


def stop_logging():
    # A message from another thread must not look for an interpreter that is gone.
    funlib_log_set_callback(NULL, NULL)


check(funlib_log_set_callback(log_message, NULL))
atexit.register(stop_logging)
