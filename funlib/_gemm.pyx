"""General matrix multiplication."""

from collections import namedtuple

from ._native cimport (
    check,
    dtype_object,
    funlib_gemm,
    funlib_gemm_kernel_count,
    funlib_gemm_kernel_get_info,
    funlib_gemm_options,
    funlib_gemm_options_init,
    funlib_gemm_select,
    funlib_kernel_info,
    funlib_kernel_parameter,
    funlib_status,
    funlib_tensor,
    int64_t,
    text,
)
from ._queue cimport Queue, as_queue, queue_pointer
from ._tensor cimport operand, wrap_tensor

cdef extern from "Python.h":
    # Borrowed from the str, so that naming a kernel costs no object.
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL


KernelInfo = namedtuple(
    "KernelInfo", "name idea source dtypes parameters work_group tile", module="funlib"
)


cdef const char* kernel_name(object kernel) except NULL:
    if not isinstance(kernel, str):
        raise TypeError(f"kernel must be a str or None, not {type(kernel).__name__}")
    if "\0" in kernel:
        raise LookupError(f"no GEMM kernel is called {kernel!r}")
    return PyUnicode_AsUTF8AndSize(kernel, NULL)


cdef object run(
    object a,
    object b,
    double alpha,
    double beta,
    object out,
    bint transpose_a,
    bint transpose_b,
    object kernel,
    object queue,
):
    cdef funlib_tensor* left = operand(a, "a")
    cdef funlib_tensor* right = operand(b, "b")
    cdef funlib_tensor* result = operand(out, "out") if out is not None else NULL
    cdef Queue held = as_queue(queue)
    cdef funlib_gemm_options options
    cdef funlib_status status
    check(funlib_gemm_options_init(&options))
    options.alpha = alpha
    options.beta = beta
    options.transpose_a = transpose_a
    options.transpose_b = transpose_b
    options.queue = queue_pointer(held)
    if kernel is not None:
        options.kernel = kernel_name(kernel)
    with nogil:
        status = funlib_gemm(left, right, &options, &result, NULL)
    check(status)
    return out if out is not None else wrap_tensor(result)


def gemm(
    a,
    b,
    *,
    double alpha=1.0,
    double beta=0.0,
    out=None,
    bint transpose_a=False,
    bint transpose_b=False,
    kernel=None,
    queue=None,
):
    """alpha * op(A) @ op(B) + beta * C.

    a, b: DeviceTensors of one data type and two dimensions, any strides: op(A) is M x K, op(B)
    K x N, op being the transpose where transpose_a or transpose_b says so. out: the M x N
    DeviceTensor C, written in place; it may not overlap a or b. Without it, C is made on the queue
    and beta must be 0. kernel: a name from kernels(); None chooses by device and shape. queue: None
    is the queue of a.

    With beta == 0, C is not read; with K == 0 or alpha == 0, A and B are not read. int32 wraps and
    takes whole alpha and beta only.

    Returns C at once; its `event` belongs to the product. Raises ValueError for shapes that don't
    fit, an overlap or a queue that can't reach the operands, TypeError for data types that don't
    fit, LookupError for an unknown kernel, UnsupportedError where kernel or device can't do it,
    CompileError if the kernel doesn't compile, MemoryError, and BufferError while a host view is
    in the way.
    """
    return run(a, b, alpha, beta, out, transpose_a, transpose_b, kernel, queue)


def matmul(a, b):
    """A @ B for two DeviceTensors of one data type, M x K and K x N: an M x N DeviceTensor. Returns
    and raises as gemm() does."""
    return run(a, b, 1.0, 0.0, None, False, False, None, None)


cdef object forced(str name, str idea):
    # gemm() bound to one row of the registry.
    def kernel(
        a,
        b,
        *,
        double alpha=1.0,
        double beta=0.0,
        out=None,
        bint transpose_a=False,
        bint transpose_b=False,
        queue=None,
    ):
        return run(a, b, alpha, beta, out, transpose_a, transpose_b, name, queue)

    kernel.__name__ = kernel.__qualname__ = name
    kernel.__doc__ = f"gemm() by the kernel {name}: {idea}. Arguments and errors as there."
    return kernel


def select_kernel(
    a,
    b,
    *,
    double alpha=1.0,
    double beta=0.0,
    bint transpose_a=False,
    bint transpose_b=False,
    kernel=None,
    queue=None,
):
    """The name of the kernel that gemm() would use for these arguments. Raises what gemm() would
    raise for them: with `kernel`, UnsupportedError where it can't do this product."""
    cdef funlib_tensor* left = operand(a, "a")
    cdef funlib_tensor* right = operand(b, "b")
    cdef Queue held = as_queue(queue)
    cdef funlib_gemm_options options
    cdef funlib_status status
    cdef const char* name = NULL
    check(funlib_gemm_options_init(&options))
    options.alpha = alpha
    options.beta = beta
    options.transpose_a = transpose_a
    options.transpose_b = transpose_b
    options.queue = queue_pointer(held)
    if kernel is not None:
        options.kernel = kernel_name(kernel)
    with nogil:
        status = funlib_gemm_select(left, right, &options, &name)
    check(status)
    return text(name)


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
        tuple([dtype_object(info.dtypes[i]).name for i in range(info.dtype_count)]),
        parameters,
        (info.work_group_rows, info.work_group_columns),
        (info.tile_rows, info.tile_columns),
    )


def kernels():
    """The rows of the GEMM registry, as a list of KernelInfo: `name`, `idea` (one line), `source`
    (file under lib/kernels), `dtypes` (names), `parameters` ({name: (default, legal values)}),
    `work_group` and `tile` (rows and columns of work-items, and of outputs, of one work-group)."""
    cdef int64_t count = 0
    check(funlib_gemm_kernel_count(&count))
    return [kernel_info(index) for index in range(count)]


# One function for each row; the row named "gemm" is reached as gemm(kernel="gemm").
KERNEL_FUNCTIONS = {
    info.name: forced(info.name, info.idea) for info in kernels() if info.name != "gemm"
}
