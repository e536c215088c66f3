from ._native cimport funlib_tensor, funlib_tensor_info


cdef class DeviceTensor:
    cdef funlib_tensor* _tensor
    # Read once: neither shape nor strides of a tensor ever change.
    cdef funlib_tensor_info _info


# Takes over the caller's reference.
cdef DeviceTensor wrap_tensor(funlib_tensor* tensor)
# The handle of an argument; TypeError unless it is a DeviceTensor.
cdef funlib_tensor* operand(object value, str argument) except NULL
