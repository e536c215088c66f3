# The C interface (lib/include/funlib/funlib.h), and what every extension module shares.
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from "funlib/funlib.h" nogil:
    ctypedef enum funlib_status:
        FUNLIB_SUCCESS
        FUNLIB_ERROR_INVALID_ARGUMENT
        FUNLIB_ERROR_TYPE
        FUNLIB_ERROR_NOT_FOUND
        FUNLIB_ERROR_NO_DEVICE
        FUNLIB_ERROR_OUT_OF_MEMORY
        FUNLIB_ERROR_UNSUPPORTED
        FUNLIB_ERROR_COMPILE
        FUNLIB_ERROR_RUNTIME
        FUNLIB_ERROR_BUSY
        FUNLIB_ERROR_FORKED

    const char* funlib_last_error()
    const char* funlib_version()

    ctypedef enum funlib_log_level:
        pass
    ctypedef void (*funlib_log_callback)(funlib_log_level, const char*, void*) noexcept
    funlib_status funlib_log_set_callback(funlib_log_callback, void*)

    ctypedef struct funlib_runtime_info:
        const char* library
        const char* sycl_library
        const char* compiler
        const char* opencl_cpu
        const char* kernel_sources
        const char* cuda_adapter
        const char* cuda_toolkit
    funlib_status funlib_runtime_get_info(funlib_runtime_info*)

    ctypedef struct funlib_cache_info:
        const char* directory
        const char* mode
        int64_t max_bytes
        int64_t compilations
        int64_t disk_hits
        int64_t rejected
    funlib_status funlib_cache_get_info(funlib_cache_info*)

    ctypedef enum funlib_dtype:
        pass
    enum:
        FUNLIB_MAX_DIMS
    ctypedef struct funlib_dtype_info:
        const char* name
        int64_t itemsize
    funlib_status funlib_dtype_count(int64_t*)
    funlib_status funlib_dtype_get_info(funlib_dtype, funlib_dtype_info*)

    ctypedef struct funlib_device_info:
        const char* name
        const char* vendor
        const char* backend
        const char* driver
        const char* type
        const char* matrix_types
        const char* architecture
        const char* identity
        int64_t compute_units
        int64_t local_memory_bytes
        int64_t global_memory_bytes
        int64_t max_allocation_bytes
        int64_t max_work_group_size
        int64_t vector_bytes
        int64_t sub_group_size_count
        int64_t sub_group_sizes[16]
        int32_t has_fp64
        int32_t has_fp16
        int32_t host_accessible
    funlib_status funlib_device_count(int64_t*)
    funlib_status funlib_device_get_info(int64_t, funlib_device_info*)

    ctypedef struct funlib_queue:
        pass
    ctypedef struct funlib_queue_options:
        const char* device
        const char* vendor
        const char* backend
        int32_t profiling
        const int64_t* index
    funlib_status funlib_queue_register(const char*, const funlib_queue_options*, funlib_queue**)
    funlib_status funlib_queue_unregister(const char*)
    funlib_status funlib_queue_get(const char*, funlib_queue**)
    void funlib_queue_release(funlib_queue*)
    funlib_status funlib_queue_wait(funlib_queue*)
    ctypedef struct funlib_queue_info:
        const char* name
        int64_t device
        int32_t profiling
    funlib_status funlib_queue_get_info(funlib_queue*, funlib_queue_info*)

    ctypedef struct funlib_memory_info:
        int64_t live_bytes
        int64_t cached_bytes
        int64_t peak_bytes
        int64_t allocations
        int64_t driver_allocations
        int64_t free_bytes
    funlib_status funlib_memory_get_info(funlib_queue*, funlib_memory_info*)
    funlib_status funlib_memory_trim(funlib_queue*, int64_t*)

    ctypedef struct funlib_event:
        pass
    void funlib_event_release(funlib_event*)
    funlib_status funlib_event_wait(funlib_event*)
    funlib_status funlib_event_is_complete(funlib_event*, int32_t*)
    funlib_status funlib_event_label(funlib_event*, const char**)
    ctypedef struct funlib_event_times:
        uint64_t submit_ns
        uint64_t start_ns
        uint64_t end_ns
        uint64_t kernel_ns
    funlib_status funlib_event_get_times(funlib_event*, funlib_event_times*)

    ctypedef struct funlib_tensor:
        pass
    funlib_status funlib_tensor_create(
        funlib_queue*, funlib_dtype, int64_t, const int64_t*, funlib_tensor**)
    funlib_status funlib_tensor_view(
        funlib_tensor*, int64_t, const int64_t*, const int64_t*, int64_t, funlib_tensor**)
    funlib_status funlib_tensor_reshape(funlib_tensor*, int64_t, const int64_t*, funlib_tensor**)
    funlib_status funlib_tensor_transpose(funlib_tensor*, const int64_t*, funlib_tensor**)
    funlib_status funlib_tensor_retain(funlib_tensor*)
    void funlib_tensor_release(funlib_tensor*)
    ctypedef struct funlib_tensor_info:
        funlib_dtype dtype
        int64_t ndim
        const int64_t* shape
        const int64_t* strides
        int64_t size
        int64_t nbytes
        int32_t contiguous
        int64_t device
    funlib_status funlib_tensor_get_info(funlib_tensor*, funlib_tensor_info*)
    funlib_status funlib_tensor_get_queue(funlib_tensor*, funlib_queue**)
    funlib_status funlib_tensor_get_event(funlib_tensor*, funlib_event**)
    funlib_status funlib_tensor_fill(funlib_tensor*, const void*, funlib_event**)
    funlib_status funlib_tensor_copy_from_host(
        funlib_tensor*, const void*, int64_t, funlib_event**)
    funlib_status funlib_tensor_copy_to_host(funlib_tensor*, void*, int64_t, funlib_event**)
    funlib_status funlib_tensor_copy(funlib_tensor*, funlib_tensor*, funlib_event**)
    ctypedef enum funlib_map_mode:
        FUNLIB_MAP_READ
        FUNLIB_MAP_WRITE
        FUNLIB_MAP_READ_WRITE
    ctypedef struct funlib_mapping:
        void* data
        int64_t strides[8]
        int32_t zero_copy
    funlib_status funlib_tensor_map(funlib_tensor*, funlib_map_mode, funlib_mapping*)
    funlib_status funlib_tensor_unmap(funlib_tensor*, void*)

    ctypedef struct funlib_weights:
        pass
    ctypedef struct funlib_gemm_options:
        double alpha
        double beta
        int32_t transpose_a
        int32_t transpose_b
        funlib_tensor* bias
        int32_t activation
        int32_t out_dtype
        int32_t precision
        const char* kernel
        const char* parameters
        funlib_weights* weights
        funlib_queue* queue
    funlib_status funlib_gemm_options_init(funlib_gemm_options*)
    funlib_status funlib_gemm(
        funlib_tensor*, funlib_tensor*, const funlib_gemm_options*, funlib_tensor**, funlib_event**)
    funlib_status funlib_weights_pack(
        funlib_tensor*, int32_t, funlib_queue*, funlib_weights**, funlib_event**)
    void funlib_weights_release(funlib_weights*)
    ctypedef struct funlib_weights_info:
        funlib_dtype dtype
        int64_t k
        int64_t n
        int64_t nbytes
        int64_t panel_width
    funlib_status funlib_weights_get_info(funlib_weights*, funlib_weights_info*)
    funlib_status funlib_weights_get_queue(funlib_weights*, funlib_queue**)
    ctypedef struct funlib_kernel_parameter:
        const char* name
        int64_t value
        int64_t legal_count
        const int64_t* legal
    ctypedef struct funlib_kernel_info:
        const char* name
        const char* idea
        const char* source
        const char* device_type
        const char* architecture
        int64_t dtype_count
        const funlib_dtype* dtypes
        int64_t parameter_count
        const funlib_kernel_parameter* parameters
        int64_t work_group_rows
        int64_t work_group_columns
        int64_t tile_rows
        int64_t tile_columns
    funlib_status funlib_gemm_kernel_count(int64_t*)
    funlib_status funlib_gemm_kernel_get_info(int64_t, funlib_kernel_info*)
    ctypedef struct funlib_gemm_choice:
        const char* kernel
        const char* parameters
        const char* source
        const char* reason
        int64_t work_group_rows
        int64_t work_group_columns
        int64_t tile_rows
        int64_t tile_columns
        int64_t work_groups
        int64_t slices
        int64_t workspace_bytes
        int32_t packs_a
        int32_t packs_b
        int64_t batches
        int64_t m
        int64_t n
        int64_t k
        int32_t transpose_a
        int32_t transpose_b
    funlib_status funlib_gemm_explain(
        funlib_tensor*, funlib_tensor*, const funlib_gemm_options*, funlib_gemm_choice*)
    ctypedef struct funlib_tuning_entry:
        funlib_dtype dtype
        int32_t transpose_a
        int32_t transpose_b
        int64_t m
        int64_t n
        int64_t k
        int64_t batches
        const char* kernel
        const char* parameters
    funlib_status funlib_tuning_add(funlib_queue*, const funlib_tuning_entry*)
    funlib_status funlib_tuning_count(funlib_queue*, int64_t*)
    funlib_status funlib_tuning_clear(funlib_queue*)
    funlib_status funlib_gemm_kernel_object(
        funlib_queue*, const char*, funlib_dtype, int32_t, int32_t, const char*, void**, int64_t*)
    void funlib_free(void*)

    ctypedef enum funlib_roof:
        FUNLIB_ROOF_COPY
        FUNLIB_ROOF_MULTIPLY_ADD
    ctypedef struct funlib_roof_result:
        double per_second
        double work
        uint64_t time_ns
        int64_t launches
    funlib_status funlib_roof_measure(
        funlib_queue*, funlib_roof, funlib_dtype, funlib_roof_result*)


cdef int raise_status(funlib_status status) except -1

cdef inline int check(funlib_status status) except -1:
    # Raises the exception that belongs to the status, with the library's text.
    if status == FUNLIB_SUCCESS:
        return 0
    return raise_status(status)

cdef str text(const char* string)
# The library's number of a data type (anything that numpy.dtype takes, any byte order).
cdef int dtype_code(object dtype) except -1
# The NumPy data type of that number; that of ml_dtypes for bfloat16.
cdef object dtype_object(int code)
# Its name, for which no package is needed.
cdef str dtype_name(int code)
