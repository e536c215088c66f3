"""DeviceTensor, and HostView, its explicit door to the host."""

cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS,
    PyBUF_C_CONTIGUOUS,
    PyBUF_F_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_IsContiguous,
)

import operator

import numpy

from ._event cimport Event, wrap_event
from ._native cimport (
    FUNLIB_ERROR_FORKED,
    FUNLIB_MAP_READ,
    FUNLIB_MAP_READ_WRITE,
    FUNLIB_MAP_WRITE,
    FUNLIB_MAX_DIMS,
    check,
    dtype_code,
    dtype_name,
    dtype_object,
    funlib_dtype,
    funlib_event,
    funlib_gemm,
    funlib_map_mode,
    funlib_mapping,
    funlib_queue,
    funlib_status,
    funlib_tensor_copy,
    funlib_tensor_copy_from_host,
    funlib_tensor_copy_to_host,
    funlib_tensor_create,
    funlib_tensor_fill,
    funlib_tensor_get_event,
    funlib_tensor_get_info,
    funlib_tensor_get_queue,
    funlib_tensor_map,
    funlib_tensor_release,
    funlib_tensor_reshape,
    funlib_tensor_retain,
    funlib_tensor_transpose,
    funlib_tensor_unmap,
    funlib_tensor_view,
    int64_t,
)
from ._queue cimport Queue, device_at, queue_or_default, queue_pointer, wrap_queue


cdef int64_t read_shape(object shape, int64_t* sizes) except -1:
    # An int or a sequence of ints; returns their number.
    try:
        entries = tuple([operator.index(entry) for entry in shape])
    except TypeError:
        try:
            entries = (operator.index(shape),)
        except TypeError:
            raise TypeError(f"expected an int or a sequence of ints, not {shape!r}") from None
    if len(entries) > FUNLIB_MAX_DIMS:
        raise ValueError(
            f"shape {entries} has {len(entries)} dimensions; at most {FUNLIB_MAX_DIMS} are possible"
        )
    cdef int64_t i = 0
    for entry in entries:
        sizes[i] = entry
        i += 1
    return i


cdef tuple as_tuple(const int64_t* values, int64_t count):
    cdef int64_t i
    return tuple([values[i] for i in range(count)])


cdef DeviceTensor wrap_tensor(funlib_tensor* tensor):
    cdef DeviceTensor wrapped = DeviceTensor.__new__(DeviceTensor)
    wrapped._tensor = tensor
    check(funlib_tensor_get_info(tensor, &wrapped._info))
    return wrapped


cdef DeviceTensor create(object shape, int dtype, object queue):
    cdef int64_t sizes[FUNLIB_MAX_DIMS]
    cdef int64_t ndim = read_shape(shape, sizes)
    cdef Queue held = queue_or_default(queue)
    cdef funlib_queue* pointer = queue_pointer(held)
    cdef funlib_tensor* tensor = NULL
    cdef funlib_status status
    with nogil:
        status = funlib_tensor_create(pointer, <funlib_dtype>dtype, ndim, sizes, &tensor)
    check(status)
    return wrap_tensor(tensor)


cdef object element_of(object value, object dtype):
    # One element, as bytes of the tensor's type; never a silently changed integer.
    if isinstance(value, int) and not -(2**63) <= value < 2**64:  # NumPy has no type for it
        if dtype.kind == "i":
            raise ValueError(f"value {value!r} can't be represented in {dtype}")
        value = float(value)
    array = numpy.asarray(value)
    if array.ndim != 0 or (array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16"):
        raise TypeError(f"value must be a real number, not {value!r}")
    with numpy.errstate(all="ignore"):
        element = array.astype(dtype)
    if dtype.kind == "i" and element != array:
        raise ValueError(f"value {value!r} can't be represented in {dtype}")
    return element.tobytes()


cdef object exportable(object array):
    # The buffer protocol has no name for bfloat16: NumPy refuses to export such arrays.
    return array.view(numpy.uint16) if array.dtype.name == "bfloat16" else array


@cython.final
cdef class DeviceTensor:
    """DeviceTensor(shape, dtype="float32", queue=None)

    A strided array in the memory of a queue's device, with undefined contents at first.

    shape: an int or up to 8 ints. dtype: "float32", "float64", "int32", "float16", "bfloat16"
    (NumPy gets it from ml_dtypes) or "int8". queue: a Queue, the name of one, or None for the
    default queue. Raises TypeError for other data types, MemoryError when the device has no room,
    DeviceNotFoundError without a device.

    Views (slices, transposes, reshapes) share the memory. Data reaches the host by copy_to(),
    to_host() or host_view() only.
    """

    __array_ufunc__ = None

    def __init__(self, shape, dtype="float32", queue=None):
        if self._tensor is not NULL:
            raise RuntimeError("a DeviceTensor is initialised once")
        cdef DeviceTensor made = create(shape, dtype_code(dtype), queue)
        self._tensor, made._tensor = made._tensor, NULL
        self._info = made._info

    def __dealloc__(self):
        # The last reference may wait for the device.
        with nogil:
            funlib_tensor_release(self._tensor)

    @staticmethod
    def from_numpy(array, queue=None):
        """A tensor with the shape, data type and contents of a NumPy array (or of what
        numpy.asarray takes), in C order. The array may have any strides and byte order. Returns
        when the copy is done."""
        array = numpy.asarray(array)
        cdef DeviceTensor tensor = create(array.shape, dtype_code(array.dtype), queue)
        tensor.copy_from(array).wait()
        return tensor

    @staticmethod
    def zeros(shape, dtype="float32", queue=None):
        """A tensor of zeros."""
        return DeviceTensor.full(shape, 0, dtype, queue)

    @staticmethod
    def full(shape, value, dtype="float32", queue=None):
        """A tensor whose elements all are `value`. Raises ValueError if an integer type can't hold
        it."""
        cdef DeviceTensor tensor = create(shape, dtype_code(dtype), queue)
        tensor.fill(value)
        return tensor

    def fill(self, value):
        """Sets each element to `value`, a real number. Returns the Event. Raises ValueError if an
        integer type can't hold it."""
        cdef bytes element = element_of(value, self.dtype)
        cdef const char* pointer = element
        cdef funlib_event* event = NULL
        cdef funlib_status status
        with nogil:
            status = funlib_tensor_fill(self._tensor, pointer, &event)
        check(status)
        return wrap_event(event)

    def copy_from(self, source):
        """Copies a NumPy array (or what numpy.asarray takes), or another DeviceTensor, into the
        tensor. Returns the Event.

        Shape and data type must be the tensor's; strides and byte order may be any. Until the event
        is complete, don't write to the array: a C-contiguous one is read in place. Raises
        ValueError for another shape, TypeError for another data type.
        """
        cdef funlib_event* event = NULL
        cdef funlib_status status
        cdef funlib_tensor* other
        if isinstance(source, DeviceTensor):
            other = (<DeviceTensor>source)._tensor
            with nogil:
                status = funlib_tensor_copy(self._tensor, other, &event)
            check(status)
            return wrap_event(event)
        array = numpy.asarray(source)
        self._check_host(array, "source")
        cdef Event copy = Event.__new__(Event)
        copy.hold(exportable(numpy.asarray(array, self.dtype, order="C")), PyBUF_C_CONTIGUOUS)
        with nogil:
            status = funlib_tensor_copy_from_host(
                self._tensor, copy._host.buf, copy._host.len, &copy._event
            )
        if copy._event is NULL:
            copy.drop()
        check(status)
        return copy

    def copy_to(self, host):
        """Copies the tensor into a writable NumPy array of its shape and data type. Returns the
        Event; the array holds the data when it is complete.

        The copy is asynchronous if the array is C-contiguous and in native byte order, else done on
        return. Raises ValueError for another shape or a read-only array, TypeError for another data
        type or anything but an array.
        """
        if not isinstance(host, numpy.ndarray):
            raise TypeError(f"host must be a numpy.ndarray, not {type(host).__name__}")
        self._check_host(host, "host")
        if not host.flags.writeable:
            raise ValueError("host is read-only")
        direct = host.flags.c_contiguous and host.dtype == self.dtype
        target = host if direct else numpy.empty(self.shape, self.dtype)
        cdef Event copy = Event.__new__(Event)
        cdef funlib_status status
        copy.hold(exportable(target), PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        with nogil:
            status = funlib_tensor_copy_to_host(
                self._tensor, copy._host.buf, copy._host.len, &copy._event
            )
        if copy._event is NULL:
            copy.drop()
        check(status)
        if not direct:
            copy.wait()
            host[...] = target
        return copy

    def _check_host(self, array, argument):
        if array.shape != self.shape:
            raise ValueError(
                f"{argument} has shape {array.shape}, but the tensor has shape {self.shape}"
            )
        if array.dtype.name != dtype_name(self._info.dtype):
            raise TypeError(
                f"{argument} has dtype {array.dtype}, but the tensor has dtype {self.dtype}; "
                f"convert it with {argument}.astype({dtype_name(self._info.dtype)!r})"
            )

    def to_host(self):
        """A new NumPy array, C-ordered, with the tensor's contents. Waits for them."""
        array = numpy.empty(self.shape, self.dtype)
        self.copy_to(array).wait()
        return array

    def host_view(self, mode="r"):
        """Opens the tensor to the host, after waiting for its operations: a HostView, which
        numpy.asarray() and memoryview() take.

        mode: "r" (read), "w" (write; contents undefined at first) or "rw". Zero-copy where the
        device shares memory with the host, else through a pinned buffer that is written back on
        release. While a view that writes is open, no operation may use the tensor, while one that
        reads is open, none may write it: BufferError.
        """
        return open_view(self, mode)

    def reshape(self, *shape):
        """A view with another shape of as many elements; one entry may be -1. Raises ValueError
        for a tensor that is not C-contiguous: call contiguous() first."""
        cdef int64_t sizes[FUNLIB_MAX_DIMS]
        cdef int64_t ndim = read_shape(shape[0] if len(shape) == 1 else shape, sizes)
        cdef int64_t i, free = -1, known = 1
        for i in range(ndim):
            if sizes[i] != -1:
                known *= sizes[i]
            elif free >= 0:
                raise ValueError(f"shape {as_tuple(sizes, ndim)} has more than one -1")
            else:
                free = i
        if free >= 0:
            if known <= 0 or self._info.size % known != 0:
                raise ValueError(
                    f"a tensor of shape {self.shape} can't take the shape {as_tuple(sizes, ndim)}"
                )
            sizes[free] = self._info.size // known
        cdef funlib_tensor* view = NULL
        check(funlib_tensor_reshape(self._tensor, ndim, sizes, &view))
        return wrap_tensor(view)

    @property
    def T(self):
        """A view with its dimensions reversed."""
        return self.transpose()

    def transpose(self, *axes):
        """A view with permuted dimensions; without arguments, reversed. Raises ValueError if `axes`
        is not a permutation."""
        cdef int64_t order[FUNLIB_MAX_DIMS]
        cdef funlib_tensor* view = NULL
        cdef int64_t i, count
        if len(axes) == 1 and axes[0] is None:
            axes = ()
        if not axes:
            check(funlib_tensor_transpose(self._tensor, NULL, &view))
            return wrap_tensor(view)
        count = read_shape(axes[0] if len(axes) == 1 else axes, order)
        if count != self._info.ndim:
            raise ValueError(
                f"axes {as_tuple(order, count)} don't fit a tensor of {self._info.ndim} dimensions"
            )
        for i in range(count):
            if -count <= order[i] < 0:
                order[i] += count
        check(funlib_tensor_transpose(self._tensor, order, &view))
        return wrap_tensor(view)

    def __getitem__(self, key):
        """A view by ints, slices, Ellipsis and None, as in NumPy."""
        cdef list keys = list(key) if isinstance(key, tuple) else [key]
        cdef int64_t shape[FUNLIB_MAX_DIMS]
        cdef int64_t strides[FUNLIB_MAX_DIMS]
        cdef int64_t ndim = 0, axis = 0, offset = 0, position, size, step
        cdef int64_t taken = 0, ellipses = 0, missing
        for entry in keys:
            if entry is Ellipsis:
                ellipses += 1
            elif entry is not None:
                taken += 1
        if ellipses > 1:
            raise IndexError("an index can have only one Ellipsis")
        if taken > self._info.ndim:
            raise IndexError(
                f"too many indices: the tensor has {self._info.ndim} dimensions, "
                f"but {taken} were indexed"
            )
        missing = self._info.ndim - taken
        if not ellipses:
            keys.append(Ellipsis)
        expanded = []
        for entry in keys:
            if entry is Ellipsis:
                expanded.extend([slice(None)] * missing)
            else:
                expanded.append(entry)
        for entry in expanded:
            if entry is None:
                size, step = 1, 0
            else:
                size, step = self._info.shape[axis], self._info.strides[axis]
                axis += 1
                if isinstance(entry, slice):
                    begin, end, stride = entry.indices(size)
                    size = len(range(begin, end, stride))
                    # An empty slice may begin one past the end: that offset is never used.
                    offset += begin * step if size else 0
                    step *= stride
                else:
                    position = as_position(entry)
                    if not -size <= position < size:
                        raise IndexError(
                            f"index {position} is out of range for axis {axis - 1} of size {size}"
                        )
                    offset += (position + size if position < 0 else position) * step
                    continue
            if ndim == FUNLIB_MAX_DIMS:
                raise IndexError(f"the view would have more than {FUNLIB_MAX_DIMS} dimensions")
            shape[ndim], strides[ndim] = size, step
            ndim += 1
        cdef funlib_tensor* view = NULL
        check(funlib_tensor_view(self._tensor, ndim, shape, strides, offset, &view))
        return wrap_tensor(view)

    def contiguous(self):
        """The tensor itself if it is C-contiguous, else a C-ordered copy on its device."""
        if self._info.contiguous:
            return self
        cdef DeviceTensor copy = create(self.shape, self._info.dtype, self.queue)
        copy.copy_from(self)
        return copy

    @property
    def shape(self):
        """Sizes of the dimensions, a tuple of ints."""
        return as_tuple(self._info.shape, self._info.ndim)

    @property
    def dtype(self):
        """The numpy.dtype of the elements."""
        return dtype_object(self._info.dtype)

    @property
    def strides(self):
        """Bytes from one element to the next in each dimension, as in NumPy."""
        cdef int64_t i, itemsize = self.dtype.itemsize
        return tuple([self._info.strides[i] * itemsize for i in range(self._info.ndim)])

    @property
    def ndim(self):
        """Number of dimensions."""
        return self._info.ndim

    @property
    def size(self):
        """Number of elements."""
        return self._info.size

    @property
    def nbytes(self):
        """Size of the elements in bytes."""
        return self._info.nbytes

    @property
    def is_contiguous(self):
        """True if the elements lie in C order without gaps."""
        return self._info.contiguous != 0

    @property
    def queue(self):
        """The Queue that the tensor was made on."""
        cdef funlib_queue* queue = NULL
        check(funlib_tensor_get_queue(self._tensor, &queue))
        return wrap_queue(queue)

    @property
    def device(self):
        """The Device that holds the memory."""
        return device_at(self._info.device)

    @property
    def event(self):
        """The Event of the last operation that wrote the tensor's memory, None if there was none.
        """
        cdef funlib_event* event = NULL
        check(funlib_tensor_get_event(self._tensor, &event))
        return wrap_event(event) if event is not NULL else None

    def wait(self):
        """Waits for the last operation that wrote the tensor's memory; raises its errors."""
        event = self.event
        if event is not None:
            event.wait()

    def __matmul__(self, other):
        if not isinstance(other, DeviceTensor) and hasattr(type(other), "__rmatmul__"):
            return NotImplemented
        cdef funlib_tensor* left = operand(self, "left operand of @")
        cdef funlib_tensor* right = operand(other, "right operand of @")
        cdef funlib_tensor* product = NULL
        cdef funlib_status status
        with nogil:
            status = funlib_gemm(left, right, NULL, &product, NULL)
        check(status)
        return wrap_tensor(product)

    def __rmatmul__(self, other):
        operand(other, "left operand of @")

    def __len__(self):
        if self._info.ndim == 0:
            raise TypeError("a tensor without dimensions has no len()")
        return self._info.shape[0]

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __bool__(self):
        raise TypeError("a DeviceTensor has no truth value; compare to_host() instead")

    def __array__(self, dtype=None, copy=None):
        raise TypeError(
            "a DeviceTensor is not copied to the host implicitly: call to_host() for an array, or "
            "host_view() for access in place"
        )

    def __reduce__(self):
        raise TypeError(
            "a DeviceTensor can't be pickled or copied: device memory belongs to its process. "
            "Use to_host() there and DeviceTensor.from_numpy() here"
        )

    def __repr__(self):
        return (
            f"DeviceTensor(shape={self.shape}, dtype={self.dtype.name}, "
            f"queue={self.queue.name!r}, device={self.device.name!r})"
        )


cdef int64_t as_position(object entry) except? -1:
    # True and False would be masks in NumPy.
    if not isinstance(entry, (bool, numpy.bool_)):
        try:
            return operator.index(entry)
        except TypeError:
            pass
    raise TypeError(
        "a DeviceTensor is indexed by ints, slices, Ellipsis and None, "
        f"not {type(entry).__name__}"
    )


cdef funlib_tensor* operand(object value, str argument) except NULL:
    if isinstance(value, DeviceTensor):
        if (<DeviceTensor>value)._tensor is NULL:
            raise ValueError(f"{argument} was never initialised")
        return (<DeviceTensor>value)._tensor
    raise TypeError(
        f"{argument} must be a DeviceTensor, not {type(value).__name__}; "
        "DeviceTensor.from_numpy() makes one"
    )


@cython.final
cdef class HostView:
    """The host's access to a tensor, made by DeviceTensor.host_view(). Exports the buffer protocol:
    numpy.asarray(view), memoryview(view). A context manager that releases on exit."""

    cdef readonly DeviceTensor tensor
    # Own reference: the collector may clear `tensor` before the mapping is ended. NULL: released.
    cdef funlib_tensor* _tensor
    cdef funlib_mapping _mapping
    cdef funlib_map_mode _mode
    cdef Py_ssize_t _shape[FUNLIB_MAX_DIMS]
    cdef Py_ssize_t _strides[FUNLIB_MAX_DIMS]
    cdef bytes _format
    cdef Py_ssize_t _itemsize
    cdef Py_ssize_t _exports

    def __init__(self):
        raise TypeError("host views are made by DeviceTensor.host_view()")

    def __dealloc__(self):
        cdef funlib_status status
        if self._tensor is not NULL:
            status = self._end()
            # In a forked child, the mapping is the parent's affair. Other errors are reported as
            # unraisable: nobody is left to catch them.
            if status != FUNLIB_ERROR_FORKED:
                check(status)

    cdef funlib_status _end(self) noexcept:
        cdef funlib_tensor* tensor = self._tensor
        cdef void* data = self._mapping.data
        cdef funlib_status status
        self._tensor = NULL
        with nogil:
            status = funlib_tensor_unmap(tensor, data)
            funlib_tensor_release(tensor)
        return status

    def _check_open(self):
        if self._tensor is NULL:
            raise ValueError("the host view was released")

    def release(self):
        """Ends the access; what was written reaches the device before this returns. Raises
        BufferError while arrays or memoryviews made from the view are alive. A second call does
        nothing."""
        if self._tensor is NULL:
            return
        if self._exports:
            raise BufferError(
                f"the host view can't be released: {self._exports} arrays or memoryviews still "
                "use it"
            )
        check(self._end())

    def __enter__(self):
        self._check_open()
        return self

    def __exit__(self, exception_type, exception, traceback):
        # Frames of the traceback may hold arrays of this view: then the last one's end releases it.
        if exception_type is None or not self._exports:
            self.release()

    @property
    def mode(self):
        """"r", "w" or "rw"."""
        return {FUNLIB_MAP_READ: "r", FUNLIB_MAP_WRITE: "w"}.get(self._mode, "rw")

    @property
    def released(self):
        """True after release()."""
        return self._tensor is NULL

    @property
    def zero_copy(self):
        """True if the host works on the device's allocation itself."""
        return self._mapping.zero_copy != 0

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        self._check_open()
        if flags & PyBUF_WRITABLE and self._mode == FUNLIB_MAP_READ:
            raise BufferError("the host view is read-only; use host_view('rw')")
        cdef int ndim = <int>self.tensor._info.ndim
        buffer.buf = self._mapping.data
        buffer.len = self.tensor._info.nbytes
        buffer.itemsize = self._itemsize
        buffer.readonly = self._mode == FUNLIB_MAP_READ
        buffer.ndim = ndim
        buffer.format = <char*>self._format
        buffer.shape = self._shape
        buffer.strides = self._strides
        buffer.suboffsets = NULL
        buffer.internal = NULL
        # A consumer that does not ask for strides takes C order for granted.
        cdef bint strided = flags & PyBUF_STRIDES == PyBUF_STRIDES
        for order, wanted in (
            (b"C", not strided or flags & PyBUF_C_CONTIGUOUS == PyBUF_C_CONTIGUOUS),
            (b"F", flags & PyBUF_F_CONTIGUOUS == PyBUF_F_CONTIGUOUS),
            (b"A", flags & PyBUF_ANY_CONTIGUOUS == PyBUF_ANY_CONTIGUOUS),
        ):
            if wanted and not PyBuffer_IsContiguous(buffer, ord(order)):
                raise BufferError(f"the host view is not contiguous in order {order.decode()}")
        if not strided:
            buffer.strides = NULL
        if flags & PyBUF_ND != PyBUF_ND:
            buffer.shape = NULL
        if flags & PyBUF_FORMAT != PyBUF_FORMAT:
            buffer.format = NULL
        buffer.obj = self
        self._exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self._exports -= 1

    def __array__(self, dtype=None, copy=None):
        # numpy comes here only when the buffer protocol failed, whose error it drops.
        self._check_open()
        raise BufferError("the host view could not be exported to NumPy")

    def __reduce__(self):
        raise TypeError("a HostView can't be pickled; copy it into an array with numpy.array()")

    def __repr__(self):
        state = "released" if self._tensor is NULL else repr(self.mode)
        return f"<funlib.HostView of {self.tensor!r}, {state}>"


cdef HostView open_view(DeviceTensor tensor, object mode):
    cdef HostView view = HostView.__new__(HostView)
    cdef funlib_status status
    cdef int64_t i
    modes = {"r": FUNLIB_MAP_READ, "w": FUNLIB_MAP_WRITE, "rw": FUNLIB_MAP_READ_WRITE}
    if mode not in modes:
        raise ValueError(f'mode must be "r", "w" or "rw", not {mode!r}')
    dtype = tensor.dtype
    view.tensor = tensor
    view._mode = modes[mode]
    # The buffer protocol has no name for bfloat16: its bits are shown.
    view._format = b"H" if dtype.name == "bfloat16" else dtype.char.encode()
    view._itemsize = dtype.itemsize
    with nogil:
        status = funlib_tensor_map(tensor._tensor, view._mode, &view._mapping)
    check(status)
    check(funlib_tensor_retain(tensor._tensor))
    view._tensor = tensor._tensor
    for i in range(tensor._info.ndim):
        view._shape[i] = tensor._info.shape[i]
        view._strides[i] = view._mapping.strides[i] * view._itemsize
    return view
