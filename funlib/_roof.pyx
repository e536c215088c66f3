"""The roofs of a device: what bounds every kernel on it."""

from collections import namedtuple

from ._native cimport (
    FUNLIB_ROOF_COPY,
    FUNLIB_ROOF_MULTIPLY_ADD,
    check,
    dtype_code,
    funlib_dtype,
    funlib_roof,
    funlib_roof_measure,
    funlib_roof_result,
    funlib_status,
)
from ._queue cimport Queue, as_queue
from ._queue import get_queue

Roofs = namedtuple(
    "Roofs",
    "bytes_per_second operations_per_second copy_seconds multiply_add_seconds",
    module="funlib",
)


cdef funlib_roof_result measured(Queue queue, funlib_roof roof, funlib_dtype dtype) except *:
    cdef funlib_roof_result result
    cdef funlib_status status
    with nogil:
        status = funlib_roof_measure(queue._queue, roof, dtype, &result)
    check(status)
    return result


def measure_roofs(queue=None, dtype="float32"):
    """Measures what bounds every kernel on a queue's device, by kernels that use no matrix engine.

    queue: None is the default one. dtype: the type of the multiply-adds.

    Returns Roofs: `bytes_per_second`, read and written by a copy far larger than the caches;
    `operations_per_second` of independent multiply-adds in registers, two operations each; and the
    seconds of the launches that these come from, the fastest of several: `copy_seconds`,
    `multiply_add_seconds`. They are the device's on a queue with profiling, else the host's.

    Takes one to two seconds, and 256 MiB of device memory or eight times its cache; the machine
    should do nothing else. Raises TypeError for a data type that funlib doesn't have,
    UnsupportedError for one that the device doesn't, MemoryError, CompileError, and DeviceError if
    a kernel's result is wrong.
    """
    cdef Queue held = as_queue(queue if queue is not None else get_queue())
    cdef funlib_dtype code = <funlib_dtype>dtype_code(dtype)
    cdef funlib_roof_result multiply_add = measured(held, FUNLIB_ROOF_MULTIPLY_ADD, code)
    cdef funlib_roof_result copy = measured(held, FUNLIB_ROOF_COPY, code)
    return Roofs(
        copy.per_second,
        multiply_add.per_second,
        copy.time_ns * 1e-9,
        multiply_add.time_ns * 1e-9,
    )
