/* funlib: dense and sparse matrix work on any SYCL device. The C interface.
 *
 * Conventions
 *   - Every function returns a funlib_status. On anything but FUNLIB_SUCCESS, funlib_last_error()
 *     gives the text of the error on the calling thread, and out parameters are untouched.
 *   - Objects are opaque and reference counted. "New reference" means that the caller releases it.
 *     "Borrowed" means that it lives as long as the object that it was read from.
 *   - Passing NULL where an object is required is FUNLIB_ERROR_INVALID_ARGUMENT, never a crash.
 *     Releasing NULL does nothing.
 *   - Sizes, strides and offsets are int64_t and count elements, not bytes, unless the name says so.
 *   - Functions may be called from any thread. No C++ exception leaves the library.
 */
#ifndef FUNLIB_FUNLIB_H
#define FUNLIB_FUNLIB_H

#include <stdint.h>

#if defined(__GNUC__)
#define FUNLIB_API __attribute__((visibility("default")))
#else
#define FUNLIB_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status and library ------------------------------------------------------------------- */

typedef enum funlib_status {
  FUNLIB_SUCCESS = 0,
  FUNLIB_ERROR_INVALID_ARGUMENT = 1, /* a value that can't be right: shape, range, overlap, NULL */
  FUNLIB_ERROR_TYPE = 2,             /* data types that don't fit */
  FUNLIB_ERROR_NOT_FOUND = 3,        /* no queue, kernel or entry of that name */
  FUNLIB_ERROR_NO_DEVICE = 4,        /* no device fits the request */
  FUNLIB_ERROR_OUT_OF_MEMORY = 5,    /* device or host memory; the next call works */
  FUNLIB_ERROR_UNSUPPORTED = 6,      /* this device or kernel can't do it */
  FUNLIB_ERROR_COMPILE = 7,          /* the run-time compiler failed; the text holds its log */
  FUNLIB_ERROR_RUNTIME = 8,          /* the SYCL runtime failed */
  FUNLIB_ERROR_BUSY = 9,             /* the tensor is in use by an open host view */
  FUNLIB_ERROR_FORKED = 10           /* the process was forked after the runtime started */
} funlib_status;

/* Text of the last error on this thread; "" if there was none. Valid until the next funlib call on
 * this thread. */
FUNLIB_API const char* funlib_last_error(void);

/* Version of the library, "major.minor.patch". Static. */
FUNLIB_API const char* funlib_version(void);

/* The values are those of Python's logging. */
typedef enum funlib_log_level { FUNLIB_LOG_INFO = 20, FUNLIB_LOG_WARNING = 30 } funlib_log_level;

/* Receives the library's messages, on the thread that caused them. One callback a process; NULL
 * switches logging off (the default). */
typedef void (*funlib_log_callback)(funlib_log_level level, const char* message, void* user);
FUNLIB_API funlib_status funlib_log_set_callback(funlib_log_callback callback, void* user);

/* Where the pieces of the runtime were found. Strings are borrowed and live as long as the process;
 * "" where a piece was not found. */
typedef struct funlib_runtime_info {
  const char* library;        /* libfunlib.so */
  const char* sycl_library;   /* libsycl.so */
  const char* compiler;       /* the compiler program */
  const char* opencl_cpu;     /* Intel's OpenCL CPU runtime */
  const char* kernel_sources; /* "embedded", or the directory named by FUNLIB_KERNEL_DIR */
  const char* cuda_adapter;   /* libur_adapter_cuda.so.0, by which NVIDIA's GPUs are found */
  const char* cuda_toolkit;   /* the folder with nvvm/libdevice, NVIDIA's mathematical functions */
} funlib_runtime_info;
FUNLIB_API funlib_status funlib_runtime_get_info(funlib_runtime_info* info);

/* State of the kernel cache. Strings are borrowed and live as long as the process. */
typedef struct funlib_cache_info {
  const char* directory; /* "" when there is none */
  const char* mode;      /* "on", "readonly" or "off" */
  int64_t max_bytes;     /* bound on the directory's size */
  int64_t compilations;  /* kernels compiled by this process */
  int64_t disk_hits;     /* images loaded from the directory by this process */
  int64_t rejected;      /* damaged or foreign files met and ignored by this process */
} funlib_cache_info;
FUNLIB_API funlib_status funlib_cache_get_info(funlib_cache_info* info);

/* ---- data types ---------------------------------------------------------------------------- */

typedef enum funlib_dtype {
  FUNLIB_FLOAT32 = 0,
  FUNLIB_FLOAT64 = 1,
  FUNLIB_INT32 = 2,
  FUNLIB_FLOAT16 = 3,
  FUNLIB_BFLOAT16 = 4,
  FUNLIB_INT8 = 5
} funlib_dtype;

#define FUNLIB_MAX_DIMS 8

typedef struct funlib_dtype_info {
  const char* name; /* NumPy's name: "float32"; "bfloat16" is that of ml_dtypes */
  int64_t itemsize; /* bytes */
} funlib_dtype_info;
/* Number of data types; their values are 0 .. count - 1. */
FUNLIB_API funlib_status funlib_dtype_count(int64_t* count);
FUNLIB_API funlib_status funlib_dtype_get_info(funlib_dtype dtype, funlib_dtype_info* info);

/* ---- devices ------------------------------------------------------------------------------- */

/* A shape that the matrix engines of a device multiply at once, m x k by k x n, with sums in float32
 * (int32 for int8, float64 for fp64). */
typedef struct funlib_matrix_shape {
  const char* type; /* of the elements: "bf16", "fp16", "tf32", "fp64" or "int8" */
  int64_t m, n, k;
} funlib_matrix_shape;

#define FUNLIB_MAX_MATRIX_SHAPES 32

/* One SYCL device. Strings are borrowed and live as long as the process. */
typedef struct funlib_device_info {
  const char* name;
  const char* vendor;
  const char* backend; /* "opencl", "level_zero", "cuda", "hip" or "other" */
  const char* driver;  /* driver version */
  const char* type;    /* "cpu", "gpu" or "accelerator" */
  const char*
      matrix_types; /* types that the matrix engines multiply, "bf16 fp16 int8"; "" if none */
  const char* architecture; /* NVIDIA: the target of its code, "sm_90a"; "" for others */
  /* 32 hexadecimal digits that tell its kind from others: of backend, vendor, name, compute units and,
   * for a CPU, instruction sets. The driver isn't in them. */
  const char* identity;
  int64_t compute_units;
  int64_t local_memory_bytes;
  int64_t global_memory_bytes;
  int64_t max_allocation_bytes;
  int64_t max_work_group_size;
  int64_t vector_bytes; /* width of the vector registers that the device prefers for float32 */
  int64_t sub_group_size_count;
  int64_t sub_group_sizes[16];
  int32_t has_fp64;
  int32_t has_fp16;
  int32_t host_accessible; /* 1: host views of its tensors are zero-copy */
  int64_t matrix_shape_count;
  funlib_matrix_shape matrix_shapes[FUNLIB_MAX_MATRIX_SHAPES]; /* in the runtime's order */
} funlib_device_info;
FUNLIB_API funlib_status funlib_device_count(int64_t* count);
FUNLIB_API funlib_status funlib_device_get_info(int64_t index, funlib_device_info* info);

/* ---- queues -------------------------------------------------------------------------------- */

typedef struct funlib_queue funlib_queue;

/* Which device a queue is for. NULL or "any" matches everything. */
typedef struct funlib_queue_options {
  const char* device;   /* "gpu", "cpu", "accelerator", "any" */
  const char* vendor;   /* part of the vendor's name, case ignored */
  const char* backend;  /* "opencl", "level_zero", "cuda", "hip" */
  int32_t profiling;    /* 1: events carry device times */
  const int64_t* index; /* of one device, as funlib_device_get_info counts; NULL leaves it open */
} funlib_queue_options;

/* Makes an in-order queue on the first device that fits (GPUs before CPUs before accelerators where
 * the options leave it open) and files it under `name`. options NULL: any device, with profiling.
 * FUNLIB_ERROR_INVALID_ARGUMENT if the name is taken, FUNLIB_ERROR_NO_DEVICE if nothing fits.
 * *queue: new reference. */
FUNLIB_API funlib_status funlib_queue_register(const char* name,
                                               const funlib_queue_options* options,
                                               funlib_queue** queue);
/* Takes the name off the registry; tensors and callers that hold the queue keep it alive. */
FUNLIB_API funlib_status funlib_queue_unregister(const char* name);
/* The queue filed under `name`. NULL: the queue named "default", which is made on first use on the
 * first device there is. *queue: new reference. */
FUNLIB_API funlib_status funlib_queue_get(const char* name, funlib_queue** queue);
FUNLIB_API funlib_status funlib_queue_retain(funlib_queue* queue);
FUNLIB_API void funlib_queue_release(funlib_queue* queue);
/* Waits for all work in the queue; reports its asynchronous errors. */
FUNLIB_API funlib_status funlib_queue_wait(funlib_queue* queue);

typedef struct funlib_queue_info {
  const char* name; /* borrowed */
  int64_t device;   /* index for funlib_device_get_info */
  int32_t profiling;
} funlib_queue_info;
FUNLIB_API funlib_status funlib_queue_get_info(funlib_queue* queue, funlib_queue_info* info);

/* Memory of the queue's device, as this process uses it. */
typedef struct funlib_memory_info {
  int64_t live_bytes;         /* in tensors and workspaces */
  int64_t cached_bytes;       /* held for reuse */
  int64_t peak_bytes;         /* highest live_bytes + cached_bytes so far */
  int64_t allocations;        /* requests so far */
  int64_t driver_allocations; /* requests that went to the driver */
  int64_t free_bytes; /* free on the device; an upper bound where the driver does not tell */
} funlib_memory_info;
FUNLIB_API funlib_status funlib_memory_get_info(funlib_queue* queue, funlib_memory_info* info);
/* Gives cached blocks of the queue's device back to the driver. freed_bytes may be NULL. */
FUNLIB_API funlib_status funlib_memory_trim(funlib_queue* queue, int64_t* freed_bytes);

/* ---- events -------------------------------------------------------------------------------- */

typedef struct funlib_event funlib_event;

FUNLIB_API funlib_status funlib_event_retain(funlib_event* event);
FUNLIB_API void funlib_event_release(funlib_event* event);
/* Waits until the operation is done. Its asynchronous errors surface here, with its name and shape. */
FUNLIB_API funlib_status funlib_event_wait(funlib_event* event);
/* *complete: 1 when done, else 0. Does not wait. */
FUNLIB_API funlib_status funlib_event_is_complete(funlib_event* event, int32_t* complete);
/* What the event stands for, "gemm_tiled 128x128x128 float32" (borrowed). */
FUNLIB_API funlib_status funlib_event_label(funlib_event* event, const char** label);

/* Device times in nanoseconds. Waits for the operation. FUNLIB_ERROR_UNSUPPORTED on a queue without
 * profiling. An operation of several commands (packing, then the product) reports the submission and
 * start of the first, the end of the last, and in kernel_ns the sum of what each took. */
typedef struct funlib_event_times {
  uint64_t submit_ns;
  uint64_t start_ns;
  uint64_t end_ns;
  uint64_t kernel_ns;
} funlib_event_times;
FUNLIB_API funlib_status funlib_event_get_times(funlib_event* event, funlib_event_times* times);

/* ---- tensors ------------------------------------------------------------------------------- */

/* A strided view of a device allocation. Views share the allocation, which is returned to the
 * allocator when the last of them and the last operation in flight on it are done. */
typedef struct funlib_tensor funlib_tensor;

/* A C-contiguous tensor with undefined contents. queue NULL: the default queue. ndim 0 ..
 * FUNLIB_MAX_DIMS; a dimension may be 0. *tensor: new reference. */
FUNLIB_API funlib_status funlib_tensor_create(funlib_queue* queue, funlib_dtype dtype, int64_t ndim,
                                              const int64_t* shape, funlib_tensor** tensor);
/* A view of `base`. offset counts from the first element of `base`; strides may be negative or zero.
 * Views that reach outside the allocation are FUNLIB_ERROR_INVALID_ARGUMENT. */
FUNLIB_API funlib_status funlib_tensor_view(funlib_tensor* base, int64_t ndim, const int64_t* shape,
                                            const int64_t* strides, int64_t offset,
                                            funlib_tensor** tensor);
/* A view of a C-contiguous tensor under another shape of as many elements. */
FUNLIB_API funlib_status funlib_tensor_reshape(funlib_tensor* base, int64_t ndim,
                                               const int64_t* shape, funlib_tensor** tensor);
/* A view with permuted dimensions. axes NULL: reversed. */
FUNLIB_API funlib_status funlib_tensor_transpose(funlib_tensor* base, const int64_t* axes,
                                                 funlib_tensor** tensor);
FUNLIB_API funlib_status funlib_tensor_retain(funlib_tensor* tensor);
FUNLIB_API void funlib_tensor_release(funlib_tensor* tensor);

typedef struct funlib_tensor_info {
  funlib_dtype dtype;
  int64_t ndim;
  const int64_t* shape;   /* borrowed, ndim entries */
  const int64_t* strides; /* borrowed, ndim entries, elements */
  int64_t size;           /* elements */
  int64_t nbytes;         /* size * itemsize */
  int32_t contiguous;     /* 1: C-contiguous */
  int64_t device;         /* index for funlib_device_get_info */
} funlib_tensor_info;
FUNLIB_API funlib_status funlib_tensor_get_info(funlib_tensor* tensor, funlib_tensor_info* info);
/* The queue that the tensor was made on. *queue: new reference. */
FUNLIB_API funlib_status funlib_tensor_get_queue(funlib_tensor* tensor, funlib_queue** queue);
/* Device address of the first element; NULL for an empty tensor. For interoperation: the caller
 * orders his accesses with the queue's. */
FUNLIB_API funlib_status funlib_tensor_data(funlib_tensor* tensor, void** data);
/* The last operation that wrote the tensor's allocation, *event NULL if there was none, else a new
 * reference. */
FUNLIB_API funlib_status funlib_tensor_get_event(funlib_tensor* tensor, funlib_event** event);

/* The functions below return at once; `event` may be NULL, else a new reference. */

/* Sets each element to the value (one element of the tensor's data type). */
FUNLIB_API funlib_status funlib_tensor_fill(funlib_tensor* tensor, const void* value,
                                            funlib_event** event);
/* Copies nbytes (which must be the tensor's nbytes) of C-ordered elements. The host memory stays
 * untouched and alive until the event is complete: the caller's duty. */
FUNLIB_API funlib_status funlib_tensor_copy_from_host(funlib_tensor* tensor, const void* host,
                                                      int64_t nbytes, funlib_event** event);
FUNLIB_API funlib_status funlib_tensor_copy_to_host(funlib_tensor* tensor, void* host,
                                                    int64_t nbytes, funlib_event** event);
/* Copies element by element between tensors of one shape and data type, whatever their strides. */
FUNLIB_API funlib_status funlib_tensor_copy(funlib_tensor* destination, funlib_tensor* source,
                                            funlib_event** event);

typedef enum funlib_map_mode {
  FUNLIB_MAP_READ = 1,
  FUNLIB_MAP_WRITE = 2, /* contents undefined on entry, written back by unmap */
  FUNLIB_MAP_READ_WRITE = 3
} funlib_map_mode;
typedef struct funlib_mapping {
  void* data;                       /* first element, host address */
  int64_t strides[FUNLIB_MAX_DIMS]; /* elements; those of the tensor, or C order when staged */
  int32_t zero_copy;                /* 1: `data` is the allocation itself */
} funlib_mapping;
/* Makes the tensor readable and writable on the host, after waiting for its operations: the
 * allocation itself where the device shares memory with the host, else a pinned staging buffer.
 * While a mapping that writes is open, no operation and no other mapping may use the allocation;
 * while one that reads is open, none may write it (FUNLIB_ERROR_BUSY). */
FUNLIB_API funlib_status funlib_tensor_map(funlib_tensor* tensor, funlib_map_mode mode,
                                           funlib_mapping* mapping);
/* Ends the mapping whose data is `data`; waits for the write-back. */
FUNLIB_API funlib_status funlib_tensor_unmap(funlib_tensor* tensor, void* data);

/* ---- GEMM ---------------------------------------------------------------------------------- */

typedef enum funlib_activation {
  FUNLIB_ACTIVATION_NONE = 0,
  FUNLIB_ACTIVATION_RELU = 1,      /* max(x, 0) */
  FUNLIB_ACTIVATION_GELU = 2,      /* x / 2 * (1 + erf(x / sqrt(2))) */
  FUNLIB_ACTIVATION_GELU_TANH = 3, /* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) */
  FUNLIB_ACTIVATION_SILU = 4       /* x / (1 + e^-x) */
} funlib_activation;

/* What products may be rounded to, beyond their data type. A permission: kernels that gain nothing from
 * it ignore it. */
typedef enum funlib_precision {
  FUNLIB_PRECISION_DEFAULT = 0,
  FUNLIB_PRECISION_TF32 = 1 /* float32 only: factors may be rounded to 10 bits of mantissa */
} funlib_precision;

/* B in the form that the kernels of one device read fastest, for weights that are used again and
 * again. Immutable. */
typedef struct funlib_weights funlib_weights;

typedef struct funlib_gemm_options {
  double alpha;            /* 1 */
  double beta;             /* 0 */
  int32_t transpose_a;     /* op(A) = A^T, of its last two dimensions */
  int32_t transpose_b;     /* not with packed weights, which are op(B) */
  funlib_tensor* bias;     /* N elements of C's data type, added to each row; NULL: none */
  int32_t activation;      /* funlib_activation; int32 takes NONE and RELU only */
  int32_t out_dtype;       /* funlib_dtype of C, or -1: that of A and B, int32 for int8 */
  int32_t precision;       /* funlib_precision; DEFAULT */
  const char* kernel;      /* a name of the registry, or NULL: chosen by device and shape */
  const char* parameters;  /* "NAME=value NAME=value" for the kernel named; NULL: by device */
  funlib_weights* weights; /* packed B, in place of the tensor; NULL: none */
  funlib_queue* queue;     /* NULL: the queue of A */
} funlib_gemm_options;
/* Sets the defaults noted above. */
FUNLIB_API funlib_status funlib_gemm_options_init(funlib_gemm_options* options);

/* C = act(alpha * op(A) @ op(B) + beta * C + bias), with op(A) M x K, op(B) K x N, C M x N.
 *
 * A and B have one data type and any strides. Dimensions before the last two are a batch and are
 * broadcast as numpy.matmul does it; an operand of one dimension is a row (A) or a column (B), which
 * C then lacks. Sums are kept in float32 for float16 and bfloat16, in int32 (which wraps) for int8 and
 * int32, else in the type itself. C may be float32, float16 or bfloat16 for each of these three.
 *
 * *c NULL: C is made on the queue (new reference; beta must be 0); else C is written in place and may
 * not overlap A, B or the bias. With beta == 0, C is never read; with K == 0 or alpha == 0, A and B are not read.
 * Integers take whole alpha and beta only. b is NULL when options name packed weights. options and
 * event may be NULL. */
FUNLIB_API funlib_status funlib_gemm(funlib_tensor* a, funlib_tensor* b,
                                     const funlib_gemm_options* options, funlib_tensor** c,
                                     funlib_event** event);

/* Packs op(B), a matrix of two dimensions, for the queue's device (NULL: the queue of B). Returns at
 * once; products wait for it. event may be NULL. *weights: new reference. */
FUNLIB_API funlib_status funlib_weights_pack(funlib_tensor* b, int32_t transpose_b,
                                             funlib_queue* queue, funlib_weights** weights,
                                             funlib_event** event);
FUNLIB_API void funlib_weights_release(funlib_weights* weights);
typedef struct funlib_weights_info {
  funlib_dtype dtype;
  int64_t k, n;        /* shape of op(B) */
  int64_t nbytes;      /* of the packed form */
  int64_t panel_width; /* columns of a panel; 0: op(B) as a row-major matrix */
} funlib_weights_info;
FUNLIB_API funlib_status funlib_weights_get_info(funlib_weights* weights,
                                                 funlib_weights_info* info);
/* The queue that the weights were packed on. *queue: new reference. */
FUNLIB_API funlib_status funlib_weights_get_queue(funlib_weights* weights, funlib_queue** queue);

/* One row of the registry. Everything is borrowed and static. */
typedef struct funlib_kernel_parameter {
  const char* name;
  int64_t value; /* default */
  int64_t legal_count;
  const int64_t* legal;
} funlib_kernel_parameter;
typedef struct funlib_kernel_info {
  const char* name;
  const char* idea;         /* one line */
  const char* source;       /* file under lib/kernels */
  const char* device_type;  /* the only type of device that it is for; "" for all */
  const char* architecture; /* the only one that it is for, as in funlib_device_info; "" for all */
  int64_t dtype_count;
  const funlib_dtype* dtypes;
  int64_t parameter_count;
  const funlib_kernel_parameter* parameters;
  int64_t work_group_rows; /* with the default parameters */
  int64_t work_group_columns;
  int64_t tile_rows; /* outputs of one work-group */
  int64_t tile_columns;
} funlib_kernel_info;
FUNLIB_API funlib_status funlib_gemm_kernel_count(int64_t* count);
FUNLIB_API funlib_status funlib_gemm_kernel_get_info(int64_t index, funlib_kernel_info* info);
/* What funlib_gemm would do with the same arguments. */
typedef struct funlib_gemm_choice {
  const char* kernel;     /* static */
  const char* parameters; /* "NAME=value ..."; this and `reason`: until the thread's next call */
  const char* source;     /* "forced", "tuned" or "model"; static */
  const char* reason;     /* one sentence */
  int64_t work_group_rows;
  int64_t work_group_columns;
  int64_t tile_rows; /* outputs of one work-group */
  int64_t tile_columns;
  int64_t work_groups;
  int64_t slices;          /* parts of K that are summed by a second kernel; 1: none */
  int64_t workspace_bytes; /* beyond operands and C, for the product itself */
  int32_t packs_a;         /* 1: strides that no kernel takes, so the operand is copied first */
  int32_t packs_b;
  /* The product as kernels and tuned entries see it: that of the transposed operands where C is
   * narrow, rows of a batch that shares B in one matrix. */
  int64_t batches, m, n, k;
  int32_t transpose_a;
  int32_t transpose_b;
} funlib_gemm_choice;
FUNLIB_API funlib_status funlib_gemm_explain(funlib_tensor* a, funlib_tensor* b,
                                             const funlib_gemm_options* options,
                                             funlib_gemm_choice* choice);

/* A kernel that was measured to be the fastest for a shape on a device. */
typedef struct funlib_tuning_entry {
  funlib_dtype dtype;
  int32_t transpose_a;
  int32_t transpose_b;
  int64_t m, n, k, batches;
  const char* kernel;
  const char* parameters; /* "NAME=value ..." */
} funlib_tuning_entry;
/* Adds the entry to what the choice of kernels on the queue's device goes by; it replaces one for the
 * same shape. Unknown kernels and parameters are errors; a kernel that turns out not to fit a product
 * is passed over. */
FUNLIB_API funlib_status funlib_tuning_add(funlib_queue* queue, const funlib_tuning_entry* entry);
FUNLIB_API funlib_status funlib_tuning_count(funlib_queue* queue, int64_t* count);
FUNLIB_API funlib_status funlib_tuning_clear(funlib_queue* queue);

/* Compiles one specialisation of a kernel, with the parameters given over its defaults, to an
 * object-state SYCLBIN (SPIR-V inside, where the queue's device takes SPIR-V), for inspection by other
 * compilers. *data is freed by funlib_free. */
FUNLIB_API funlib_status funlib_gemm_kernel_object(funlib_queue* queue, const char* kernel,
                                                   funlib_dtype dtype, int32_t transpose_a,
                                                   int32_t transpose_b, const char* parameters,
                                                   void** data, int64_t* size);
FUNLIB_API void funlib_free(void* data);

/* ---- roofs --------------------------------------------------------------------------------- */

/* What bounds every kernel on a device. Both are measured by kernels of the library, in plain code
 * that uses no matrix engine, and their results are checked. */
typedef enum funlib_roof {
  FUNLIB_ROOF_COPY = 0,        /* bytes read and written by a copy far larger than the caches */
  FUNLIB_ROOF_MULTIPLY_ADD = 1 /* operations of independent multiply-adds in registers, two each */
} funlib_roof;
typedef struct funlib_roof_result {
  double per_second; /* bytes or operations per second: work / time */
  double work;       /* bytes or operations of one launch */
  uint64_t time_ns;  /* of the fastest launch: the device's, on a queue with profiling, else the
                        host's from submission to completion */
  int64_t launches;  /* measured */
} funlib_roof_result;
/* Waits for the queue and keeps the device busy for half a second to a second. Copies of 128 MiB or
 * four times the cache are made; the memory goes back to the driver, with what else was held for reuse.
 * dtype: products of it are counted, in the type of their sums; FUNLIB_ROOF_COPY doesn't depend on it.
 * FUNLIB_ERROR_UNSUPPORTED if the device lacks the type, FUNLIB_ERROR_RUNTIME if a result is wrong. */
FUNLIB_API funlib_status funlib_roof_measure(funlib_queue* queue, funlib_roof roof,
                                             funlib_dtype dtype, funlib_roof_result* result);
/* As funlib_gemm_kernel_object: the kernel of a roof, in the form that GPUs run. */
FUNLIB_API funlib_status funlib_roof_kernel_object(funlib_queue* queue, funlib_roof roof,
                                                   funlib_dtype dtype, void** data, int64_t* size);

#ifdef __cplusplus
}
#endif
#endif
