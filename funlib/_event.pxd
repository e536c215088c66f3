from ._native cimport funlib_event


cdef class Event:
    cdef funlib_event* _event
    # The host memory of a copy in flight, if `_holds`.
    cdef Py_buffer _host
    cdef bint _holds
    cdef int hold(self, object host, int flags) except -1
    cdef int drop(self) except -1


# Takes over the caller's reference.
cdef Event wrap_event(funlib_event* event)
