"""General matrix multiplication."""

cimport cython

from collections import namedtuple
from collections.abc import Mapping

from ._event cimport wrap_event
from ._native cimport (
    check,
    dtype_code,
    dtype_name,
    dtype_object,
    funlib_dtype,
    funlib_event,
    funlib_gemm,
    funlib_gemm_choice,
    funlib_gemm_explain,
    funlib_gemm_kernel_count,
    funlib_gemm_kernel_get_info,
    funlib_gemm_options,
    funlib_gemm_options_init,
    funlib_kernel_info,
    funlib_kernel_parameter,
    funlib_queue,
    funlib_status,
    funlib_tensor,
    funlib_tuning_add,
    funlib_tuning_clear,
    funlib_tuning_count,
    funlib_tuning_entry,
    funlib_weights,
    funlib_weights_get_info,
    funlib_weights_get_queue,
    funlib_weights_info,
    funlib_weights_pack,
    funlib_weights_release,
    int64_t,
    text,
)
from ._queue cimport Queue, as_queue, queue_pointer, wrap_queue
from ._tensor cimport operand, wrap_tensor

cdef extern from "Python.h":
    # Borrowed from the str, so that naming a kernel costs no object.
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL


KernelInfo = namedtuple(
    "KernelInfo",
    "name idea source device_type architecture dtypes parameters work_group tile",
    module="funlib",
)
GemmChoice = namedtuple(
    "GemmChoice",
    "kernel parameters source reason work_group tile work_groups slices workspace_bytes packs_a "
    "packs_b product transposes",
    module="funlib",
)

# In the order of funlib_activation.
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
cdef dict ACTIVATION_CODES = {name: code for code, name in enumerate(ACTIVATIONS)}
ACTIVATION_CODES[None] = 0
# Of funlib_precision.
cdef dict PRECISION_CODES = {"float32": 0, "tf32": 1}


cdef const char* characters(object value, str argument) except NULL:
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str or None, not {type(value).__name__}")
    if "\0" in value:
        raise LookupError(f"{argument} {value!r} can't be found")
    return PyUnicode_AsUTF8AndSize(value, NULL)


def parameter_text(parameters):
    """{"MC": 192, "KC": 256} as the C interface takes it: "MC=192 KC=256"."""
    return " ".join(f"{name}={value}" for name, value in parameters.items())


def parameter_dict(text):
    """The inverse of parameter_text()."""
    return {name: int(value) for name, value in (word.split("=") for word in text.split())}


@cython.final
cdef class PackedWeights:
    """B of later products in the form that the kernels of a device read fastest; made by
    pack_weights(). gemm(), matmul() and @ take it as their second operand."""

    cdef funlib_weights* _weights
    cdef funlib_weights_info _info

    # For NumPy arrays on the left of @: they get __rmatmul__'s TypeError.
    __array_ufunc__ = None

    def __init__(self):
        raise TypeError("packed weights are made by pack_weights()")

    def __dealloc__(self):
        # The last reference may wait for the device.
        with nogil:
            funlib_weights_release(self._weights)

    @property
    def shape(self):
        """(K, N), the shape of op(B)."""
        return self._info.k, self._info.n

    @property
    def dtype(self):
        """The numpy.dtype of the elements."""
        return dtype_object(self._info.dtype)

    @property
    def nbytes(self):
        """Size of the packed form in bytes."""
        return self._info.nbytes

    @property
    def panel_width(self):
        """Columns of a panel, 0 if the packed form is a row-major matrix."""
        return self._info.panel_width

    @property
    def queue(self):
        """The Queue that the weights were packed on."""
        cdef funlib_queue* queue = NULL
        check(funlib_weights_get_queue(self._weights, &queue))
        return wrap_queue(queue)

    def __rmatmul__(self, other):
        return gemm(other, self)

    def __reduce__(self):
        raise TypeError("packed weights can't be pickled or copied: they belong to their process")

    def __repr__(self):
        return f"PackedWeights(shape={self.shape}, dtype={dtype_name(self._info.dtype)})"


def pack_weights(b, *, bint transpose_b=False, queue=None):
    """Packs op(B), K x N, for products that use it again and again: PackedWeights.

    b: a DeviceTensor of two dimensions, any strides; op is the transpose where transpose_b says so.
    It isn't needed afterwards. queue: None is the queue of b; the weights suit its device. Returns
    at once; products wait for the packing. Raises ValueError for another number of dimensions or a
    queue that can't reach b, and MemoryError.
    """
    cdef funlib_tensor* source = operand(b, "b")
    cdef Queue held = as_queue(queue)
    cdef funlib_queue* pointer = queue_pointer(held)
    cdef PackedWeights packed = PackedWeights.__new__(PackedWeights)
    cdef funlib_status status
    with nogil:
        status = funlib_weights_pack(source, transpose_b, pointer, &packed._weights, NULL)
    check(status)
    check(funlib_weights_get_info(packed._weights, &packed._info))
    return packed


@cython.final
@cython.internal
@cython.auto_pickle(False)
cdef class Arguments:
    # The arguments of a product as the C interface takes them, and what they borrow from.
    cdef funlib_tensor* a
    cdef funlib_tensor* b
    cdef funlib_gemm_options options
    cdef Queue queue
    cdef object text


cdef Arguments arguments_of(
    object a,
    object b,
    double alpha,
    double beta,
    object bias,
    object activation,
    object out_dtype,
    object precision,
    bint transpose_a,
    bint transpose_b,
    object kernel,
    object parameters,
    object queue,
):
    cdef Arguments found = Arguments.__new__(Arguments)
    cdef funlib_gemm_options* options = &found.options
    check(funlib_gemm_options_init(options))
    found.a = operand(a, "a")
    if isinstance(b, PackedWeights):
        options.weights = (<PackedWeights>b)._weights
    else:
        found.b = operand(b, "b")
    options.alpha = alpha
    options.beta = beta
    options.transpose_a = transpose_a
    options.transpose_b = transpose_b
    if bias is not None:
        options.bias = operand(bias, "bias")
    if activation is not None:
        try:
            options.activation = ACTIVATION_CODES[activation]
        except (KeyError, TypeError):
            names = ", ".join(map(repr, ACTIVATIONS))
            raise ValueError(f"activation must be None or one of {names}, not {activation!r}") from None
    if out_dtype is not None:
        options.out_dtype = dtype_code(out_dtype)
    if precision is not None:
        try:
            options.precision = PRECISION_CODES[precision]
        except (KeyError, TypeError):
            names = ", ".join(map(repr, PRECISION_CODES))
            raise ValueError(f"precision must be None or one of {names}, not {precision!r}") from None
        if a.dtype.name != "float32":
            raise ValueError(f"precision is for products of float32; a is {a.dtype.name}")
    if kernel is not None:
        options.kernel = characters(kernel, "kernel")
    if parameters is not None:
        if not isinstance(parameters, Mapping):
            raise TypeError(
                f"parameters must be a mapping or None, not {type(parameters).__name__}"
            )
        found.text = parameter_text(parameters)
        options.parameters = characters(found.text, "parameters")
    found.queue = as_queue(queue)
    options.queue = queue_pointer(found.queue)
    return found


cdef object run(Arguments arguments, object out):
    cdef funlib_tensor* result = operand(out, "out") if out is not None else NULL
    cdef funlib_status status
    with nogil:
        status = funlib_gemm(arguments.a, arguments.b, &arguments.options, &result, NULL)
    check(status)
    return out if out is not None else wrap_tensor(result)


def gemm(
    a,
    b,
    *,
    double alpha=1.0,
    double beta=0.0,
    out=None,
    bias=None,
    activation=None,
    out_dtype=None,
    precision=None,
    bint transpose_a=False,
    bint transpose_b=False,
    kernel=None,
    parameters=None,
    queue=None,
):
    """act(alpha * op(A) @ op(B) + beta * C + bias).

    a, b: DeviceTensors of one data type, any strides: op(A) is M x K, op(B) K x N, op being the
    transpose of the last two dimensions where transpose_a or transpose_b says so. Dimensions before
    them are a batch, broadcast as numpy.matmul does it; an a of one dimension is a row, such a b a
    column, and C lacks that dimension. b may be PackedWeights, which are op(B). out: the
    DeviceTensor C, written in place; it may not overlap an input. Without it, C is made on the
    queue and beta must be 0. bias: N elements of C's data type, added to each row. activation:
    None, "relu", "gelu", "gelu_tanh" (the approximation by tanh) or "silu". out_dtype: data type of
    C; None is that of a and b, int32 for int8. float32, float16 and bfloat16 can be stored as each
    other. precision: "tf32" allows products of float32 to be rounded to TF32 (10 bits of mantissa),
    where a kernel gains by it; None and "float32" don't. kernel: a name from kernels(); None
    chooses by device and shape (see explain()). parameters: {name: value} for that kernel, over
    what the library would take. queue: None is the queue of a.

    Sums are kept in float32 for float16 and bfloat16, in int32, which wraps, for int8 and int32,
    else in the data type itself. Integers take whole alpha and beta, and no activation but "relu".
    With beta == 0, C is not read; with K == 0 or alpha == 0, A and B are not read.

    Returns C at once; its `event` belongs to the product. Raises ValueError for shapes that don't
    fit, an overlap, an unknown activation, a precision that the data type has not, parameters that
    are not legal or a queue that can't reach the operands, TypeError for data types that don't fit,
    LookupError for an unknown kernel, UnsupportedError where kernel or device can't do it,
    CompileError if the kernel doesn't compile, MemoryError, and BufferError while a host view is in
    the way.
    """
    return run(
        arguments_of(
            a,
            b,
            alpha,
            beta,
            bias,
            activation,
            out_dtype,
            precision,
            transpose_a,
            transpose_b,
            kernel,
            parameters,
            queue,
        ),
        out,
    )


def matmul(a, b):
    """A @ B for two DeviceTensors of one data type, shapes as numpy.matmul takes them; b may be
    PackedWeights. Returns and raises as gemm() does."""
    return gemm(a, b)


cdef object forced(str name, str idea):
    # gemm() bound to one row of the registry.
    def kernel(a, b, **options):
        return gemm(a, b, kernel=name, **options)

    kernel.__name__ = kernel.__qualname__ = name
    kernel.__doc__ = f"gemm() by the kernel {name}: {idea}. Arguments and errors as there."
    return kernel


def explain(
    a,
    b,
    *,
    double alpha=1.0,
    double beta=0.0,
    bias=None,
    activation=None,
    out_dtype=None,
    precision=None,
    bint transpose_a=False,
    bint transpose_b=False,
    kernel=None,
    parameters=None,
    queue=None,
):
    """What gemm() would do with the same arguments, and why: a GemmChoice. Nothing is compiled.

    Its fields: `kernel` (name), `parameters` ({name: value}), `source` ("forced", "tuned" or
    "model"), `reason` (one sentence), `work_group` and `tile` (rows and columns of work-items, and
    of outputs, of one work-group), `work_groups` (their number), `slices` (parts of K that a second
    kernel adds up, 1: none), `workspace_bytes` (beyond operands and C), `packs_a`, `packs_b` (True
    if the operand's strides suit no kernel, so that it is copied first), `product` (batches, M, K,
    N) and `transposes` (of A, of B) as kernels and tuned entries see them: of the transposed
    operands where C is narrow, with a batch that shares B as rows of one matrix. Raises what gemm()
    would.
    """
    cdef Arguments arguments = arguments_of(
        a,
        b,
        alpha,
        beta,
        bias,
        activation,
        out_dtype,
        precision,
        transpose_a,
        transpose_b,
        kernel,
        parameters,
        queue,
    )
    cdef funlib_gemm_choice choice
    # The texts are the thread's: read before anything else can run on it.
    check(funlib_gemm_explain(arguments.a, arguments.b, &arguments.options, &choice))
    return GemmChoice(
        text(choice.kernel),
        parameter_dict(text(choice.parameters)),
        text(choice.source),
        text(choice.reason),
        (choice.work_group_rows, choice.work_group_columns),
        (choice.tile_rows, choice.tile_columns),
        choice.work_groups,
        choice.slices,
        choice.workspace_bytes,
        choice.packs_a != 0,
        choice.packs_b != 0,
        (choice.batches, choice.m, choice.k, choice.n),
        (choice.transpose_a != 0, choice.transpose_b != 0),
    )


def tuning_add(queue, dtype, shape, transposes, kernel, parameters):
    """Makes `kernel` with `parameters` ({name: value}) the choice for products like this one on the
    queue's device: shape (batches, M, K, N), transposes (of A, of B). Raises LookupError for an
    unknown kernel, ValueError for parameters that are not legal or extents below 1."""
    cdef Queue held = as_queue(queue)
    cdef funlib_tuning_entry entry
    words = parameter_text(parameters)
    entry.dtype = <funlib_dtype>dtype_code(dtype)
    entry.batches, entry.m, entry.k, entry.n = shape
    entry.transpose_a, entry.transpose_b = transposes
    entry.kernel = characters(kernel, "kernel")
    entry.parameters = characters(words, "parameters")
    check(funlib_tuning_add(queue_pointer(held), &entry))


def tuning_count(queue):
    """Number of tuned shapes that the choice of kernels on the queue's device goes by."""
    cdef Queue held = as_queue(queue)
    cdef int64_t count = 0
    check(funlib_tuning_count(queue_pointer(held), &count))
    return count


def tuning_clear(queue):
    """Forgets the tuned shapes of the queue's device, in this process."""
    cdef Queue held = as_queue(queue)
    check(funlib_tuning_clear(queue_pointer(held)))


cdef object kernel_info(int64_t index):
    cdef funlib_kernel_info info
    cdef const funlib_kernel_parameter* parameter
    cdef int64_t i, j
    check(funlib_gemm_kernel_get_info(index, &info))
    parameters = {}
    for i in range(info.parameter_count):
        parameter = &info.parameters[i]
        legal = tuple([parameter.legal[j] for j in range(parameter.legal_count)])
        parameters[text(parameter.name)] = (parameter.value, legal)
    return KernelInfo(
        text(info.name),
        text(info.idea),
        text(info.source),
        text(info.device_type),
        text(info.architecture),
        tuple([dtype_name(info.dtypes[i]) for i in range(info.dtype_count)]),
        parameters,
        (info.work_group_rows, info.work_group_columns),
        (info.tile_rows, info.tile_columns),
    )


def kernels():
    """The rows of the GEMM registry, as a list of KernelInfo: `name`, `idea` (one line), `source`
    (file under lib/kernels), `device_type` and `architecture` (the only ones that it is for,
    as Device has them, "" for all), `dtypes` (names), `parameters` ({name: (default, legal values)}), `work_group` and `tile` (rows and
    columns of work-items, and of outputs, of one work-group, with the defaults)."""
    cdef int64_t count = 0
    check(funlib_gemm_kernel_count(&count))
    return [kernel_info(index) for index in range(count)]


# One function for each row; the row named "gemm" is reached as gemm(kernel="gemm").
KERNEL_FUNCTIONS = {
    info.name: forced(info.name, info.idea) for info in kernels() if info.name != "gemm"
}
