// The part of NVIDIA's driver interface that the adapter uses, opened at run time: neither building nor
// importing needs CUDA. Declared after the CUDA Driver API's documentation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuda_adapter {

using Result = int;
using DeviceOrdinal = int;
using DevicePointer = unsigned long long;
using ContextHandle = struct ContextOpaque*;
using StreamHandle = struct StreamOpaque*;
using EventHandle = struct EventOpaque*;
using ModuleHandle = struct ModuleOpaque*;
using FunctionHandle = struct FunctionOpaque*;

struct Uuid {
  unsigned char bytes[16];
};

// Of a copy of lines; enumerations are 32 bits.
struct Copy2D {
  size_t source_x, source_y;
  int source_type;
  const void* source_host;
  DevicePointer source_device;
  void* source_array;
  size_t source_pitch;
  size_t target_x, target_y;
  int target_type;
  void* target_host;
  DevicePointer target_device;
  void* target_array;
  size_t target_pitch;
  size_t width, height;
};

// What a launch is given beside its range.
struct LaunchAttribute {
  alignas(8) int id;
  int padding;
  unsigned value[16];
};
struct LaunchConfig {
  unsigned groups_x, groups_y, groups_z, x, y, z;
  unsigned dynamic_bytes;
  StreamHandle stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchAttribute) == 72 && offsetof(LaunchAttribute, value) == 8);
static_assert(sizeof(LaunchConfig) == 56 && offsetof(LaunchConfig, stream) == 32);

// Values of the interface's enumerations.
enum : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,
  no_device = 100,
  invalid_device = 101,
  invalid_image = 200,
  invalid_context = 201,
  no_binary_for_gpu = 209,
  invalid_ptx = 218,
  jit_compiler_not_found = 221,
  unsupported_ptx_version = 222,
  invalid_source = 300,
  invalid_handle = 400,
  not_found = 500,
  not_ready = 600,
  launch_out_of_resources = 701,
  peer_access_already_enabled = 704,
  peer_access_not_enabled = 705,
  not_supported = 801,
};
enum : unsigned {
  event_default = 0,
  event_disable_timing = 2,
  stream_non_blocking = 1,
  host_alloc_portable = 1,
  attach_global = 1,
};
enum : int {
  memory_type_host = 1,
  memory_type_device = 2,
  memory_type_unified = 4,
};
enum : int {
  pointer_memory_type = 2,
  pointer_is_managed = 8,
  pointer_device_ordinal = 9,
  pointer_range_start = 11,
  pointer_range_size = 12,
};
enum : int {
  function_max_threads = 0,
  function_static_local_bytes = 1,
  function_private_bytes = 3,
  function_registers = 4,
  function_max_dynamic_local_bytes = 8,
};
enum : int {
  launch_cooperative = 2,
  launch_cluster_size = 4,
};
enum : int {
  jit_info_log = 3,
  jit_info_log_bytes = 4,
  jit_error_log = 5,
  jit_error_log_bytes = 6,
};
enum : int {
  attribute_max_threads_per_block = 1,
  attribute_max_block_x = 2,
  attribute_max_block_y = 3,
  attribute_max_block_z = 4,
  attribute_max_grid_x = 5,
  attribute_max_grid_y = 6,
  attribute_max_grid_z = 7,
  attribute_total_constant_memory = 9,
  attribute_warp_size = 10,
  attribute_max_registers_per_block = 12,
  attribute_clock_khz = 13,
  attribute_texture_alignment = 14,
  attribute_multiprocessors = 16,
  attribute_integrated = 18,
  attribute_ecc_enabled = 32,
  attribute_memory_clock_khz = 36,
  attribute_memory_bus_bits = 37,
  attribute_l2_bytes = 38,
  attribute_compute_major = 75,
  attribute_compute_minor = 76,
  attribute_managed_memory = 83,
  attribute_concurrent_managed_access = 89,
  attribute_pageable_memory_access = 88,
  attribute_cooperative_launch = 95,
  attribute_max_local_bytes_opt_in = 97,
};
constexpr int advise_set_read_mostly = 1, advise_unset_read_mostly = 2,
              advise_set_preferred_location = 3, advise_unset_preferred_location = 4,
              advise_set_accessed_by = 5, advise_unset_accessed_by = 6;
constexpr int device_cpu = -1;

// X(member, symbol, arguments): all return a Result.
#define CUDA_ADAPTER_FUNCTIONS(X)                                                                \
  X(init, cuInit, (unsigned))                                                                    \
  X(driver_version, cuDriverGetVersion, (int*))                                                  \
  X(error_name, cuGetErrorName, (Result, const char**))                                          \
  X(error_text, cuGetErrorString, (Result, const char**))                                        \
  X(device_count, cuDeviceGetCount, (int*))                                                      \
  X(device_get, cuDeviceGet, (DeviceOrdinal*, int))                                              \
  X(device_name, cuDeviceGetName, (char*, int, DeviceOrdinal))                                   \
  X(device_uuid, cuDeviceGetUuid, (Uuid*, DeviceOrdinal))                                        \
  X(device_pci_id, cuDeviceGetPCIBusId, (char*, int, DeviceOrdinal))                             \
  X(device_memory, cuDeviceTotalMem_v2, (size_t*, DeviceOrdinal))                                \
  X(device_attribute, cuDeviceGetAttribute, (int*, int, DeviceOrdinal))                          \
  X(device_can_access, cuDeviceCanAccessPeer, (int*, DeviceOrdinal, DeviceOrdinal))              \
  X(primary_retain, cuDevicePrimaryCtxRetain, (ContextHandle*, DeviceOrdinal))                   \
  X(primary_release, cuDevicePrimaryCtxRelease_v2, (DeviceOrdinal))                              \
  X(context_current, cuCtxGetCurrent, (ContextHandle*))                                          \
  X(context_push, cuCtxPushCurrent_v2, (ContextHandle))                                          \
  X(context_pop, cuCtxPopCurrent_v2, (ContextHandle*))                                           \
  X(context_synchronize, cuCtxSynchronize, ())                                                   \
  X(peer_enable, cuCtxEnablePeerAccess, (ContextHandle, unsigned))                               \
  X(peer_disable, cuCtxDisablePeerAccess, (ContextHandle))                                       \
  X(memory_info, cuMemGetInfo_v2, (size_t*, size_t*))                                            \
  X(memory_allocate, cuMemAlloc_v2, (DevicePointer*, size_t))                                    \
  X(memory_allocate_managed, cuMemAllocManaged, (DevicePointer*, size_t, unsigned))              \
  X(memory_free, cuMemFree_v2, (DevicePointer))                                                  \
  X(host_allocate, cuMemHostAlloc, (void**, size_t, unsigned))                                   \
  X(host_free, cuMemFreeHost, (void*))                                                           \
  X(pointer_attribute, cuPointerGetAttribute, (void*, int, DevicePointer))                       \
  X(copy, cuMemcpy, (DevicePointer, DevicePointer, size_t))                                      \
  X(copy_async, cuMemcpyAsync, (DevicePointer, DevicePointer, size_t, StreamHandle))             \
  X(copy_2d_async, cuMemcpy2DAsync_v2, (const Copy2D*, StreamHandle))                            \
  X(set_8_async, cuMemsetD8Async, (DevicePointer, unsigned char, size_t, StreamHandle))          \
  X(set_16_async, cuMemsetD16Async, (DevicePointer, unsigned short, size_t, StreamHandle))       \
  X(set_32_async, cuMemsetD32Async, (DevicePointer, unsigned, size_t, StreamHandle))             \
  X(set_2d_8_async, cuMemsetD2D8Async,                                                           \
    (DevicePointer, size_t, unsigned char, size_t, size_t, StreamHandle))                        \
  X(set_2d_32_async, cuMemsetD2D32Async,                                                         \
    (DevicePointer, size_t, unsigned, size_t, size_t, StreamHandle))                             \
  X(prefetch_async, cuMemPrefetchAsync, (DevicePointer, size_t, DeviceOrdinal, StreamHandle))    \
  X(advise, cuMemAdvise, (DevicePointer, size_t, int, DeviceOrdinal))                            \
  X(stream_create, cuStreamCreateWithPriority, (StreamHandle*, unsigned, int))                   \
  X(stream_destroy, cuStreamDestroy_v2, (StreamHandle))                                          \
  X(stream_synchronize, cuStreamSynchronize, (StreamHandle))                                     \
  X(stream_query, cuStreamQuery, (StreamHandle))                                                 \
  X(stream_wait_event, cuStreamWaitEvent, (StreamHandle, EventHandle, unsigned))                 \
  X(stream_priorities, cuCtxGetStreamPriorityRange, (int*, int*))                                \
  X(event_create, cuEventCreate, (EventHandle*, unsigned))                                       \
  X(event_destroy, cuEventDestroy_v2, (EventHandle))                                             \
  X(event_record, cuEventRecord, (EventHandle, StreamHandle))                                    \
  X(event_query, cuEventQuery, (EventHandle))                                                    \
  X(event_synchronize, cuEventSynchronize, (EventHandle))                                        \
  X(event_elapsed, cuEventElapsedTime, (float*, EventHandle, EventHandle))                       \
  X(module_load, cuModuleLoadDataEx, (ModuleHandle*, const void*, unsigned, int*, void**))       \
  X(module_unload, cuModuleUnload, (ModuleHandle))                                               \
  X(module_function, cuModuleGetFunction, (FunctionHandle*, ModuleHandle, const char*))          \
  X(module_global, cuModuleGetGlobal_v2, (DevicePointer*, size_t*, ModuleHandle, const char*))   \
  X(function_attribute, cuFuncGetAttribute, (int*, int, FunctionHandle))                         \
  X(function_set_attribute, cuFuncSetAttribute, (FunctionHandle, int, int))                      \
  X(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, FunctionHandle, int, size_t)) \
  X(launch, cuLaunchKernel,                                                                      \
    (FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,       \
     StreamHandle, void**, void**))                                                              \
  X(launch_with_attributes, cuLaunchKernelEx, (const LaunchConfig*, FunctionHandle, void**, void**))

struct Driver {
#define CUDA_ADAPTER_MEMBER(member, symbol, arguments) Result(*member) arguments;
  CUDA_ADAPTER_FUNCTIONS(CUDA_ADAPTER_MEMBER)
#undef CUDA_ADAPTER_MEMBER
};

// The driver of this machine, initialised; null where there is none, or none that works.
const Driver* find_driver();

}  // namespace cuda_adapter
