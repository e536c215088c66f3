from ._native cimport funlib_queue, int64_t


cdef class Queue:
    cdef funlib_queue* _queue


# Takes over the caller's reference.
cdef Queue wrap_queue(funlib_queue* queue)
# None, a Queue or the name of one, as a Queue or None.
cdef Queue as_queue(object queue)
# The same, with the default queue for None.
cdef Queue queue_or_default(object queue)
# What the library calls it; NULL (the library's default) for None.
cdef inline funlib_queue* queue_pointer(Queue queue) noexcept:
    return queue._queue if queue is not None else NULL

cdef object device_at(int64_t index)
