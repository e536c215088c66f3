"""What the tests need of the C interface and Python does not offer, through ctypes."""

import ctypes

import numpy as np

import funlib

# funlib_roof
ROOFS = {"roof_copy": 0, "roof_multiply_add": 1}

_int64 = ctypes.c_int64
_pointer = ctypes.c_void_p


class Options(ctypes.Structure):
    """funlib_gemm_options"""

    _fields_ = (
        ("alpha", ctypes.c_double),
        ("beta", ctypes.c_double),
        ("transpose_a", ctypes.c_int32),
        ("transpose_b", ctypes.c_int32),
        ("bias", _pointer),
        ("activation", ctypes.c_int32),
        ("out_dtype", ctypes.c_int32),
        ("precision", ctypes.c_int32),
        ("kernel", ctypes.c_char_p),
        ("parameters", ctypes.c_char_p),
        ("weights", _pointer),
        ("queue", _pointer),
    )


class DtypeInfo(ctypes.Structure):
    """funlib_dtype_info"""

    _fields_ = (("name", ctypes.c_char_p), ("itemsize", _int64))


class Library:
    def __init__(self):
        self.library = ctypes.CDLL(funlib.runtime_info().library)
        self.library.funlib_last_error.restype = ctypes.c_char_p
        self.library.funlib_tensor_release.restype = None
        self.library.funlib_queue_release.restype = None
        self.library.funlib_free.restype = None

    def call(self, name, *arguments):
        status = getattr(self.library, f"funlib_{name}")(*arguments)
        if status:
            text = self.library.funlib_last_error().decode()
            raise RuntimeError(f"funlib_{name}: status {status}: {text}")

    def dtype_code(self, name):
        """The funlib_dtype of a NumPy data type."""
        count, info = _int64(), DtypeInfo()
        self.call("dtype_count", ctypes.byref(count))
        for code in range(count.value):
            self.call("dtype_get_info", code, ctypes.byref(info))
            if info.name.decode() == name:
                return code
        raise LookupError(name)

    def kernel_object(self, kernel, dtype, transpose_a, transpose_b, parameters="", queue="tests"):
        """An object-state SYCLBIN image of a kernel: bytes. parameters: over its defaults."""
        options = (self.dtype_code(dtype), int(transpose_a), int(transpose_b), parameters.encode())
        return self._image(queue, "gemm_kernel_object", kernel.encode(), *options)

    def roof_kernel_object(self, roof, dtype, queue="tests"):
        """An object-state SYCLBIN image of the kernel of a roof, a number of ROOFS: bytes."""
        return self._image(queue, "roof_kernel_object", roof, self.dtype_code(dtype))

    def _image(self, queue, name, *arguments):
        made_on, data, size = _pointer(), _pointer(), _int64()
        self.call("queue_get", queue.encode(), ctypes.byref(made_on))
        self.call(name, made_on, *arguments, ctypes.byref(data), ctypes.byref(size))
        image = ctypes.string_at(data, size.value)
        self.library.funlib_free(data)
        self.library.funlib_queue_release(made_on)
        return image

    def gemm_of_broadcast(self, row, rows, kernel, queue="tests"):
        """X @ X.T, where X is the float32 row repeated by a row stride of 0."""
        columns = len(row)
        made_on, base, view, c = _pointer(), _pointer(), _pointer(), _pointer()
        shape = (_int64 * 2)(rows, columns)
        self.call("queue_get", queue.encode(), ctypes.byref(made_on))
        self.call("tensor_create", made_on, 0, _int64(1), (_int64 * 1)(columns), ctypes.byref(base))
        data = row.ctypes.data_as(_pointer)
        self.call("tensor_copy_from_host", base, data, _int64(row.nbytes), None)
        strides = (_int64 * 2)(0, 1)
        self.call("tensor_view", base, _int64(2), shape, strides, _int64(0), ctypes.byref(view))
        options = Options()
        self.call("gemm_options_init", ctypes.byref(options))
        options.transpose_b = 1
        options.kernel = kernel.encode()
        self.call("gemm", view, view, ctypes.byref(options), ctypes.byref(c), None)
        result = np.empty((rows, rows), np.float32)
        data = result.ctypes.data_as(_pointer)
        self.call("tensor_copy_to_host", c, data, _int64(result.nbytes), None)
        self.call("queue_wait", made_on)
        for tensor in (c, view, base):
            self.library.funlib_tensor_release(tensor)
        self.library.funlib_queue_release(made_on)
        return result
