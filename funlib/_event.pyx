"""Events: operations in flight."""

cimport cython
from collections import namedtuple

from cpython.buffer cimport PyBuffer_Release, PyObject_GetBuffer

from ._native cimport (
    check,
    funlib_event_get_times,
    funlib_event_is_complete,
    funlib_event_label,
    funlib_event_release,
    funlib_event_times,
    funlib_event_wait,
    funlib_status,
    int32_t,
    text,
)

EventTimes = namedtuple("EventTimes", "submit_ns start_ns end_ns kernel_ns", module="funlib")


# no_gc_clear: the collector must not drop the host memory of a copy that still runs.
@cython.final
@cython.auto_pickle(False)
@cython.no_gc_clear
cdef class Event:
    """An operation in flight: a copy, a fill or a product. Made by funlib, not by calling it.

    An event of a copy keeps the host array alive until the copy is done: dropping such an event
    waits.
    """

    def __init__(self):
        raise TypeError("events are made by operations, such as DeviceTensor.copy_from")

    def __dealloc__(self):
        if self._holds:
            with nogil:
                funlib_event_wait(self._event)
            self.drop()
        with nogil:
            funlib_event_release(self._event)

    cdef int hold(self, object host, int flags) except -1:
        PyObject_GetBuffer(host, &self._host, flags)
        self._holds = True
        return 0

    cdef int drop(self) except -1:
        if self._holds:
            self._holds = False
            PyBuffer_Release(&self._host)
        return 0

    def wait(self):
        """Waits until the operation is done. Raises DeviceError, with the operation's name and
        shape, if it failed."""
        cdef funlib_status status
        with nogil:
            status = funlib_event_wait(self._event)
        self.drop()
        check(status)

    @property
    def is_complete(self):
        """True when the operation is done. Does not wait."""
        cdef int32_t complete = 0
        check(funlib_event_is_complete(self._event, &complete))
        return complete != 0

    @property
    def label(self):
        """What the event stands for, such as "gemm_tiled 128x128x128 float32"."""
        cdef const char* label = NULL
        check(funlib_event_label(self._event, &label))
        return text(label)

    @property
    def times(self):
        """Device times in nanoseconds: `submit_ns`, `start_ns` (of the first command), `end_ns` (of
        the last), `kernel_ns` (sum of what each command took). Waits for the operation. Raises
        UnsupportedError on a queue without profiling."""
        cdef funlib_event_times times
        cdef funlib_status status
        with nogil:
            status = funlib_event_get_times(self._event, &times)
        check(status)
        return EventTimes(times.submit_ns, times.start_ns, times.end_ns, times.kernel_ns)

    @property
    def kernel_time(self):
        """Time that the device spent on the operation, in seconds. Waits, as `times` does."""
        return self.times.kernel_ns * 1e-9

    def __repr__(self):
        state = "complete" if self.is_complete else "in flight"
        return f"<funlib.Event {self.label!r}, {state}>"


cdef Event wrap_event(funlib_event* event):
    cdef Event wrapped = Event.__new__(Event)
    wrapped._event = event
    return wrapped
