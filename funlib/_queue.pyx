"""Devices, queues and the memory behind them."""

cimport cython
from collections import namedtuple

from ._native cimport (
    check,
    funlib_device_count,
    funlib_device_get_info,
    funlib_device_info,
    funlib_memory_get_info,
    funlib_memory_info,
    funlib_memory_trim,
    funlib_queue_get,
    funlib_queue_get_info,
    funlib_queue_info,
    funlib_queue_options,
    funlib_queue_register,
    funlib_queue_release,
    funlib_queue_unregister,
    funlib_queue_wait,
    funlib_status,
    text,
)

MemoryInfo = namedtuple(
    "MemoryInfo",
    "live_bytes cached_bytes peak_bytes allocations driver_allocations free_bytes",
    module="funlib",
)


@cython.final
@cython.auto_pickle(False)
cdef class Device:
    """What funlib knows of one SYCL device. Read only; made by devices().

    Sizes are in bytes. `type` is "cpu", "gpu" or "accelerator"; `backend` "opencl", "level_zero",
    "cuda", "hip" or "other"; `matrix_types` names what its matrix engines multiply;
    `architecture` is the target of an NVIDIA GPU's code, "sm_90a", and "" for others; `identity`
    tells its kind from others (32 hexadecimal digits; the driver isn't in them); `host_accessible`
    says that host views of its tensors are zero-copy.
    """

    cdef readonly int64_t index
    cdef readonly str name
    cdef readonly str vendor
    cdef readonly str backend
    cdef readonly str driver
    cdef readonly str type
    cdef readonly int64_t compute_units
    cdef readonly int64_t local_memory
    cdef readonly int64_t global_memory
    cdef readonly int64_t max_allocation
    cdef readonly int64_t max_work_group_size
    cdef readonly int64_t vector_bytes
    cdef readonly tuple sub_group_sizes
    cdef readonly bint fp64
    cdef readonly bint fp16
    cdef readonly tuple matrix_types
    cdef readonly str architecture
    cdef readonly str identity
    cdef readonly bint host_accessible

    def __init__(self):
        raise TypeError("devices are listed by funlib.devices()")

    def __eq__(self, other):
        return isinstance(other, Device) and self.index == (<Device>other).index

    def __hash__(self):
        return hash(self.index)

    def __repr__(self):
        return f"<funlib.Device {self.index}: {self.name}, {self.type}, {self.backend}>"


cdef object device_at(int64_t index):
    cdef funlib_device_info info
    cdef funlib_status status
    cdef int64_t i
    with nogil:
        status = funlib_device_get_info(index, &info)
    check(status)
    cdef Device device = Device.__new__(Device)
    device.index = index
    device.name = text(info.name)
    device.vendor = text(info.vendor)
    device.backend = text(info.backend)
    device.driver = text(info.driver)
    device.type = text(info.type)
    device.compute_units = info.compute_units
    device.local_memory = info.local_memory_bytes
    device.global_memory = info.global_memory_bytes
    device.max_allocation = info.max_allocation_bytes
    device.max_work_group_size = info.max_work_group_size
    device.vector_bytes = info.vector_bytes
    device.sub_group_sizes = tuple(
        [info.sub_group_sizes[i] for i in range(info.sub_group_size_count)]
    )
    device.fp64 = info.has_fp64 != 0
    device.fp16 = info.has_fp16 != 0
    device.matrix_types = tuple(text(info.matrix_types).split())
    device.architecture = text(info.architecture)
    device.identity = text(info.identity)
    device.host_accessible = info.host_accessible != 0
    return device


def devices():
    """The SYCL devices of this machine, as a list of Device; empty if there are none."""
    cdef int64_t count = 0
    cdef funlib_status status
    with nogil:
        status = funlib_device_count(&count)
    check(status)
    return [device_at(index) for index in range(count)]


cdef funlib_queue_info queue_info(Queue queue) except *:
    cdef funlib_queue_info info
    check(funlib_queue_get_info(queue._queue, &info))
    return info


@cython.final
cdef class Queue:
    """An in-order queue on one device: its operations run in the order of the calls. Made by
    register_queue() and get_queue()."""

    def __init__(self):
        raise TypeError("queues are made by funlib.register_queue() and funlib.get_queue()")

    def __dealloc__(self):
        # The last reference waits for the queue's work.
        with nogil:
            funlib_queue_release(self._queue)

    @property
    def name(self):
        """The name that the queue was registered under."""
        return text(queue_info(self).name)

    @property
    def device(self):
        """The Device that it feeds."""
        return device_at(queue_info(self).device)

    @property
    def profiling(self):
        """True if its events carry device times."""
        return queue_info(self).profiling != 0

    def wait(self):
        """Waits for all work in the queue. Raises DeviceError if some of it failed."""
        cdef funlib_status status
        with nogil:
            status = funlib_queue_wait(self._queue)
        check(status)

    def __eq__(self, other):
        return isinstance(other, Queue) and self._queue == (<Queue>other)._queue

    def __hash__(self):
        return hash(<size_t>self._queue)

    def __reduce__(self):
        raise TypeError("a Queue can't be pickled; register one in each process")

    def __repr__(self):
        return f"<funlib.Queue {self.name!r} on {self.device.name}>"


cdef Queue wrap_queue(funlib_queue* queue):
    cdef Queue wrapped = Queue.__new__(Queue)
    wrapped._queue = queue
    return wrapped


# Indexes of the devices whose tuning tables were read.
cdef set tuned_devices = set()


cdef Queue made_queue(funlib_queue* queue):
    # The queue as a caller asked for it: the first one of a device brings its tuning tables.
    cdef Queue wrapped = wrap_queue(queue)
    cdef int64_t index = queue_info(wrapped).device
    if index not in tuned_devices:
        tuned_devices.add(index)
        from ._tuning import load

        load(wrapped)
    return wrapped


cdef Queue as_queue(object queue):
    if queue is None or isinstance(queue, Queue):
        return queue
    if isinstance(queue, str):
        return get_queue(queue)
    raise TypeError(f"queue must be a Queue, the name of one or None, not {type(queue).__name__}")


cdef bytes encoded(object string, str argument):
    # None (no wish) stays None.
    if string is None:
        return None
    if not isinstance(string, str):
        raise TypeError(f"{argument} must be a str, not {type(string).__name__}")
    if "\0" in string:
        raise ValueError(f"{argument} must not hold a null character")
    return (<str>string).encode()


cdef inline const char* pointer(bytes string) except? NULL:
    return <const char*>string if string is not None else NULL


def register_queue(name, device="any", vendor=None, backend=None, profiling=True):
    """Makes an in-order queue and files it under a name.

    device: "gpu", "cpu", "accelerator" or "any" (GPUs first, then CPUs), or one of devices(). vendor: a part of the
    vendor's name, case ignored. backend: "opencl", "level_zero", "cuda" or "hip". profiling: events
    carry device times.

    Returns the Queue. Raises ValueError if the name is taken or a selector is unknown, and
    DeviceNotFoundError, with the devices that there are, if none fits.
    """
    if name is None:
        raise TypeError("name must be a str, not None")
    cdef bytes name_bytes = encoded(name, "name")
    cdef int64_t index = device.index if isinstance(device, Device) else -1
    cdef bytes device_bytes = None if isinstance(device, Device) else encoded(device, "device")
    cdef bytes vendor_bytes = encoded(vendor, "vendor")
    cdef bytes backend_bytes = encoded(backend, "backend")
    cdef const char* name_pointer = pointer(name_bytes)
    cdef funlib_queue_options options
    cdef funlib_queue* queue = NULL
    cdef funlib_status status
    options.device = pointer(device_bytes)
    options.vendor = pointer(vendor_bytes)
    options.backend = pointer(backend_bytes)
    options.profiling = bool(profiling)
    options.index = &index if index >= 0 else NULL
    with nogil:
        status = funlib_queue_register(name_pointer, &options, &queue)
    check(status)
    return made_queue(queue)


def unregister_queue(name):
    """Takes a name off the registry. Whoever holds the queue, tensors included, keeps it alive.
    Raises LookupError if there is no such name."""
    if name is None:
        raise TypeError("name must be a str, not None")
    cdef bytes name_bytes = encoded(name, "name")
    cdef const char* name_pointer = pointer(name_bytes)
    cdef funlib_status status
    with nogil:
        status = funlib_queue_unregister(name_pointer)
    check(status)


def get_queue(name=None):
    """The Queue of that name. None: the queue "default", which is made on first use on the first
    device there is. Raises LookupError for an unknown name, DeviceNotFoundError without a device.
    """
    cdef bytes name_bytes = encoded(name, "name")
    cdef const char* name_pointer = pointer(name_bytes)
    cdef funlib_queue* queue = NULL
    cdef funlib_status status
    with nogil:
        status = funlib_queue_get(name_pointer, &queue)
    check(status)
    return made_queue(queue)


cdef Queue queue_or_default(object queue):
    return as_queue(queue if queue is not None else get_queue())


def memory_info(queue=None):
    """Memory of a queue's device as this process uses it, in bytes: `live_bytes` (in tensors),
    `cached_bytes` (held for reuse), `peak_bytes`, `free_bytes` (an upper bound where the driver
    does not tell); and counts of `allocations` and of `driver_allocations` among them."""
    cdef Queue held = queue_or_default(queue)
    cdef funlib_memory_info info
    cdef funlib_status status
    with nogil:
        status = funlib_memory_get_info(held._queue, &info)
    check(status)
    return MemoryInfo(
        info.live_bytes,
        info.cached_bytes,
        info.peak_bytes,
        info.allocations,
        info.driver_allocations,
        info.free_bytes,
    )


def trim(queue=None):
    """Gives the memory that is held for reuse on a queue's device back to the driver. Returns the
    number of bytes."""
    cdef Queue held = queue_or_default(queue)
    cdef int64_t freed = 0
    cdef funlib_status status
    with nogil:
        status = funlib_memory_trim(held._queue, &freed)
    check(status)
    return freed
