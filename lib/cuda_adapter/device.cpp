// Adapter, platform and devices.
#include <algorithm>
#include <cstring>
#include <limits>

#include "functions.hpp"
#include "objects.hpp"

using namespace cuda_adapter;

ur_device_handle_t_::ur_device_handle_t_(DeviceOrdinal ordinal)
    : ordinal(ordinal),
      compute_major(attribute(attribute_compute_major)),
      compute_minor(attribute(attribute_compute_minor)) {
  char text[256] = "";
  check(driver().device_name(text, sizeof text, ordinal), "cuDeviceGetName");
  name = text;
}

ur_device_handle_t_::~ur_device_handle_t_() = default;

int ur_device_handle_t_::attribute(int number) const {
  int value = 0;
  check(driver().device_attribute(&value, number, ordinal), "cuDeviceGetAttribute");
  return value;
}

ContextHandle ur_device_handle_t_::primary() {
  // Never released: the process may still hold memory of it when the runtime is taken down.
  std::call_once(primary_once_, [this] {
    check(driver().primary_retain(&primary_, ordinal), "cuDevicePrimaryCtxRetain");
  });
  return primary_;
}

EventHandle ur_device_handle_t_::take_event(bool timed) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& pool = events_[timed];
    if (!pool.empty()) {
      const EventHandle event = pool.back();
      pool.pop_back();
      return event;
    }
  }
  EventHandle event = nullptr;
  check(driver().event_create(&event, timed ? event_default : event_disable_timing),
        "cuEventCreate");
  return event;
}

void ur_device_handle_t_::give_event(EventHandle event, bool timed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_[timed].push_back(event);
}

std::shared_ptr<Moment> ur_device_handle_t_::moment() {
  using Clock = std::chrono::steady_clock;
  constexpr auto longest = std::chrono::milliseconds(100);
  const std::lock_guard<std::mutex> lock(moments_mutex_);
  if (moment_ != nullptr && Clock::now() - moment_time_ < longest) return moment_;
  if (moments_stream_ == nullptr)
    check(driver().stream_create(&moments_stream_, stream_non_blocking, 0),
          "cuStreamCreateWithPriority");
  // So that there are never many of unknown time.
  if (moment_ != nullptr && driver().event_query(moment_->event) == success) resolve(*moment_);
  const std::shared_ptr<Moment> next(new Moment{take_event(true), nullptr, 0},
                                     [this](Moment* moment) {
                                       give_event(moment->event, true);
                                       delete moment;
                                     });
  check(driver().event_record(next->event, moments_stream_), "cuEventRecord");
  if (moment_ == nullptr) {
    // The first is where the clocks of host and device are set side by side.
    check(driver().event_synchronize(next->event), "cuEventSynchronize");
    next->nanoseconds = double(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
  }
  next->previous = std::move(moment_);
  moment_ = next;
  moment_time_ = Clock::now();
  return next;
}

double ur_device_handle_t_::time_of(Moment& moment) {
  check(driver().event_synchronize(moment.event), "cuEventSynchronize");
  const std::lock_guard<std::mutex> lock(moments_mutex_);
  resolve(moment);
  return moment.nanoseconds;
}

void ur_device_handle_t_::resolve(Moment& moment) {
  std::vector<Moment*> unknown;
  for (Moment* link = &moment; link->previous != nullptr; link = link->previous.get())
    unknown.push_back(link);
  for (auto link = unknown.rbegin(); link != unknown.rend(); ++link) {
    float milliseconds = 0;
    check(driver().event_elapsed(&milliseconds, (*link)->previous->event, (*link)->event),
          "cuEventElapsedTime");
    (*link)->nanoseconds = (*link)->previous->nanoseconds + double(milliseconds) * 1e6;
    (*link)->previous = nullptr;
  }
}

namespace cuda_adapter {
namespace {

constexpr const char* vendor = "NVIDIA Corporation";

struct World {
  ur_adapter_handle_t_ adapter;
  ur_platform_handle_t_ platform;
};

// Null where there is no driver or no device: then the adapter reports itself as absent.
World* world() {
  static World* const found = []() -> World* {
    if (find_driver() == nullptr) return nullptr;
    int count = 0;
    if (driver().device_count(&count) != success || count == 0) return nullptr;
    auto made = std::make_unique<World>();
    made->adapter.platform = &made->platform;
    for (int i = 0; i < count; ++i) {
      DeviceOrdinal ordinal = 0;
      check(driver().device_get(&ordinal, i), "cuDeviceGet");
      made->platform.devices.push_back(std::make_unique<ur_device_handle_t_>(ordinal));
    }
    // Never destroyed: the runtime asks until the end of the process.
    return made.release();
  }();
  return found;
}

std::string driver_version() {
  int version = 0;
  check(driver().driver_version(&version), "cuDriverGetVersion");
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string pci_address(const ur_device_handle_t_& device) {
  char text[32] = "";
  check(driver().device_pci_id(text, sizeof text, device.ordinal), "cuDeviceGetPCIBusId");
  return text;
}

ur_device_usm_access_capability_flags_t managed_access(const ur_device_handle_t_& device) {
  ur_device_usm_access_capability_flags_t flags = 0;
  if (device.attribute(attribute_managed_memory) != 0)
    flags |= UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS |
             UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_ACCESS;
  if (device.attribute(attribute_concurrent_managed_access) != 0)
    flags |= UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_CONCURRENT_ACCESS |
             UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_CONCURRENT_ACCESS;
  return flags;
}

constexpr ur_device_fp_capability_flags_t fp_capabilities =
    UR_DEVICE_FP_CAPABILITY_FLAG_DENORM | UR_DEVICE_FP_CAPABILITY_FLAG_INF_NAN |
    UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_NEAREST | UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_ZERO |
    UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_INF | UR_DEVICE_FP_CAPABILITY_FLAG_FMA;
constexpr ur_memory_order_capability_flags_t memory_orders =
    UR_MEMORY_ORDER_CAPABILITY_FLAG_RELAXED | UR_MEMORY_ORDER_CAPABILITY_FLAG_ACQUIRE |
    UR_MEMORY_ORDER_CAPABILITY_FLAG_RELEASE | UR_MEMORY_ORDER_CAPABILITY_FLAG_ACQ_REL |
    UR_MEMORY_ORDER_CAPABILITY_FLAG_SEQ_CST;
constexpr ur_memory_scope_capability_flags_t memory_scopes =
    UR_MEMORY_SCOPE_CAPABILITY_FLAG_WORK_ITEM | UR_MEMORY_SCOPE_CAPABILITY_FLAG_SUB_GROUP |
    UR_MEMORY_SCOPE_CAPABILITY_FLAG_WORK_GROUP | UR_MEMORY_SCOPE_CAPABILITY_FLAG_DEVICE |
    UR_MEMORY_SCOPE_CAPABILITY_FLAG_SYSTEM;

void describe(ur_device_handle_t_& device, ur_device_info_t what, const Answer& answer) {
  const auto number = [&](int attribute) { return uint32_t(device.attribute(attribute)); };
  const auto boolean = [&](bool value) { answer(ur_bool_t(value)); };
  const auto triple = [&](int x, int y, int z) {
    answer(std::array<size_t, 3>{size_t(device.attribute(x)), size_t(device.attribute(y)),
                                 size_t(device.attribute(z))});
  };
  const auto total_memory = [&] {
    size_t bytes = 0;
    check(driver().device_memory(&bytes, device.ordinal), "cuDeviceTotalMem");
    return uint64_t(bytes);
  };
  switch (uint32_t(what)) {
    case UR_DEVICE_INFO_TYPE:
      return answer(UR_DEVICE_TYPE_GPU);
    case UR_DEVICE_INFO_VENDOR_ID:
      return answer(uint32_t(0x10de));
    case UR_DEVICE_INFO_MAX_COMPUTE_UNITS:
    case UR_DEVICE_INFO_NUM_COMPUTE_UNITS:
      return answer(number(attribute_multiprocessors));
    case UR_DEVICE_INFO_MAX_WORK_ITEM_DIMENSIONS:
      return answer(uint32_t(3));
    case UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES:
      return triple(attribute_max_block_x, attribute_max_block_y, attribute_max_block_z);
    case UR_DEVICE_INFO_MAX_WORK_GROUPS_3D:
      return triple(attribute_max_grid_x, attribute_max_grid_y, attribute_max_grid_z);
    case UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE:
      return answer(size_t(number(attribute_max_threads_per_block)));
    case UR_DEVICE_INFO_PREFERRED_VECTOR_WIDTH_CHAR:
    case UR_DEVICE_INFO_PREFERRED_VECTOR_WIDTH_SHORT:
    case UR_DEVICE_INFO_PREFERRED_VECTOR_WIDTH_INT:
    case UR_DEVICE_INFO_PREFERRED_VECTOR_WIDTH_LONG:
    case UR_DEVICE_INFO_PREFERRED_VECTOR_WIDTH_LONG_LONG:
    case UR_DEVICE_INFO_PREFERRED_VECTOR_WIDTH_FLOAT:
    case UR_DEVICE_INFO_PREFERRED_VECTOR_WIDTH_DOUBLE:
    case UR_DEVICE_INFO_PREFERRED_VECTOR_WIDTH_HALF:
    case UR_DEVICE_INFO_NATIVE_VECTOR_WIDTH_CHAR:
    case UR_DEVICE_INFO_NATIVE_VECTOR_WIDTH_SHORT:
    case UR_DEVICE_INFO_NATIVE_VECTOR_WIDTH_INT:
    case UR_DEVICE_INFO_NATIVE_VECTOR_WIDTH_LONG:
    case UR_DEVICE_INFO_NATIVE_VECTOR_WIDTH_LONG_LONG:
    case UR_DEVICE_INFO_NATIVE_VECTOR_WIDTH_FLOAT:
    case UR_DEVICE_INFO_NATIVE_VECTOR_WIDTH_DOUBLE:
    case UR_DEVICE_INFO_NATIVE_VECTOR_WIDTH_HALF:
      return answer(uint32_t(1));
    case UR_DEVICE_INFO_MAX_NUM_SUB_GROUPS:
      return answer(number(attribute_max_threads_per_block) / number(attribute_warp_size));
    case UR_DEVICE_INFO_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS:
      return boolean(device.compute_major >= 7);
    case UR_DEVICE_INFO_SUB_GROUP_SIZES_INTEL:
      return answer(number(attribute_warp_size));
    case UR_DEVICE_INFO_MAX_REGISTERS_PER_WORK_GROUP:
      return answer(number(attribute_max_registers_per_block));
    case UR_DEVICE_INFO_ATOMIC_64:
      return boolean(true);
    case UR_DEVICE_INFO_ATOMIC_MEMORY_ORDER_CAPABILITIES:
    case UR_DEVICE_INFO_ATOMIC_FENCE_ORDER_CAPABILITIES:
      return answer(memory_orders);
    case UR_DEVICE_INFO_ATOMIC_MEMORY_SCOPE_CAPABILITIES:
    case UR_DEVICE_INFO_ATOMIC_FENCE_SCOPE_CAPABILITIES:
      return answer(memory_scopes);
    case UR_DEVICE_INFO_MAX_CLOCK_FREQUENCY:
      return answer(number(attribute_clock_khz) / 1000);
    case UR_DEVICE_INFO_MEMORY_CLOCK_RATE:
      return answer(number(attribute_memory_clock_khz) / 1000);
    case UR_DEVICE_INFO_MEMORY_BUS_WIDTH:
      return answer(number(attribute_memory_bus_bits));
    case UR_DEVICE_INFO_MAX_MEMORY_BANDWIDTH:
      // Two transfers a cycle; bytes a second.
      return answer(uint64_t(number(attribute_memory_clock_khz)) * 1000 * 2 *
                    (number(attribute_memory_bus_bits) / 8));
    case UR_DEVICE_INFO_ADDRESS_BITS:
      return answer(uint32_t(64));
    case UR_DEVICE_INFO_MAX_MEM_ALLOC_SIZE:
    case UR_DEVICE_INFO_GLOBAL_MEM_SIZE:
      return answer(total_memory());
    case UR_DEVICE_INFO_GLOBAL_MEM_FREE: {
      size_t free = 0, total = 0;
      const Current current(&device);
      check(driver().memory_info(&free, &total), "cuMemGetInfo");
      return answer(uint64_t(free));
    }
    case UR_DEVICE_INFO_GLOBAL_MEM_CACHE_TYPE:
      return answer(UR_DEVICE_MEM_CACHE_TYPE_READ_WRITE_CACHE);
    case UR_DEVICE_INFO_GLOBAL_MEM_CACHELINE_SIZE:
      return answer(uint32_t(128));
    case UR_DEVICE_INFO_GLOBAL_MEM_CACHE_SIZE:
      return answer(uint64_t(number(attribute_l2_bytes)));
    case UR_DEVICE_INFO_MAX_CONSTANT_BUFFER_SIZE:
      return answer(uint64_t(number(attribute_total_constant_memory)));
    case UR_DEVICE_INFO_MAX_CONSTANT_ARGS:
      return answer(uint32_t(9));
    case UR_DEVICE_INFO_LOCAL_MEM_TYPE:
      return answer(UR_DEVICE_LOCAL_MEM_TYPE_LOCAL);
    case UR_DEVICE_INFO_LOCAL_MEM_SIZE:
      return answer(uint64_t(number(attribute_max_local_bytes_opt_in)));
    case UR_DEVICE_INFO_ERROR_CORRECTION_SUPPORT:
      return boolean(number(attribute_ecc_enabled) != 0);
    case UR_DEVICE_INFO_HOST_UNIFIED_MEMORY:
    case UR_DEVICE_INFO_IS_INTEGRATED_GPU:
      return boolean(number(attribute_integrated) != 0);
    case UR_DEVICE_INFO_PROFILING_TIMER_RESOLUTION:
      return answer(size_t(32));  // nanoseconds
    case UR_DEVICE_INFO_ENDIAN_LITTLE:
    case UR_DEVICE_INFO_AVAILABLE:
    case UR_DEVICE_INFO_COMPILER_AVAILABLE:
    case UR_DEVICE_INFO_PREFERRED_INTEROP_USER_SYNC:
    case UR_DEVICE_INFO_DEVICE_WAIT_SUPPORT_EXP:
    case UR_DEVICE_INFO_USM_CONTEXT_MEMCPY_SUPPORT_EXP:
    case UR_DEVICE_INFO_TIMESTAMP_RECORDING_SUPPORT_EXP:
    case UR_DEVICE_INFO_USM_P2P_SUPPORT_EXP:
      return boolean(true);
    case UR_DEVICE_INFO_BFLOAT16_CONVERSIONS_NATIVE:
    case UR_DEVICE_INFO_ASYNC_BARRIER:
      return boolean(device.compute_major >= 8);
    case UR_DEVICE_INFO_LINKER_AVAILABLE:
    case UR_DEVICE_INFO_IMAGE_SUPPORT:
    case UR_DEVICE_INFO_IMAGE_SRGB:
    case UR_DEVICE_INFO_BUILD_ON_SUBDEVICE:
    case UR_DEVICE_INFO_KERNEL_SET_SPECIALIZATION_CONSTANTS:
    case UR_DEVICE_INFO_PROGRAM_SET_SPECIALIZATION_CONSTANTS:
    case UR_DEVICE_INFO_MEM_CHANNEL_SUPPORT:
    case UR_DEVICE_INFO_HOST_PIPE_READ_WRITE_SUPPORT:
    case UR_DEVICE_INFO_VIRTUAL_MEMORY_SUPPORT:
    case UR_DEVICE_INFO_ESIMD_SUPPORT:
    case UR_DEVICE_INFO_GLOBAL_VARIABLE_SUPPORT:
    case UR_DEVICE_INFO_USM_POOL_SUPPORT:
    case UR_DEVICE_INFO_USE_NATIVE_ASSERT:
    case UR_DEVICE_INFO_COMMAND_BUFFER_SUPPORT_EXP:
    case UR_DEVICE_INFO_COMMAND_BUFFER_EVENT_SUPPORT_EXP:
    case UR_DEVICE_INFO_COMMAND_BUFFER_SUBGRAPH_SUPPORT_EXP:
    case UR_DEVICE_INFO_BINDLESS_IMAGES_SUPPORT_EXP:
    case UR_DEVICE_INFO_BINDLESS_IMAGES_SHARED_USM_SUPPORT_EXP:
    case UR_DEVICE_INFO_BINDLESS_IMAGES_1D_USM_SUPPORT_EXP:
    case UR_DEVICE_INFO_BINDLESS_IMAGES_2D_USM_SUPPORT_EXP:
    case UR_DEVICE_INFO_MIPMAP_SUPPORT_EXP:
    case UR_DEVICE_INFO_EXTERNAL_MEMORY_IMPORT_SUPPORT_EXP:
    case UR_DEVICE_INFO_EXTERNAL_SEMAPHORE_IMPORT_SUPPORT_EXP:
    case UR_DEVICE_INFO_CUBEMAP_SUPPORT_EXP:
    case UR_DEVICE_INFO_IMAGE_ARRAY_SUPPORT_EXP:
    case UR_DEVICE_INFO_ENQUEUE_NATIVE_COMMAND_SUPPORT_EXP:
    case UR_DEVICE_INFO_LOW_POWER_EVENTS_SUPPORT_EXP:
    case UR_DEVICE_INFO_IPC_MEMORY_SUPPORT_EXP:
    case UR_DEVICE_INFO_IPC_PHYSICAL_MEMORY_SUPPORT_EXP:
    case UR_DEVICE_INFO_IPC_EVENT_SUPPORT_EXP:
    case UR_DEVICE_INFO_REUSABLE_EVENTS_SUPPORT_EXP:
    case UR_DEVICE_INFO_ASYNC_USM_ALLOCATIONS_SUPPORT_EXP:
    case UR_DEVICE_INFO_CLOCK_SUB_GROUP_SUPPORT_EXP:
    case UR_DEVICE_INFO_CLOCK_WORK_GROUP_SUPPORT_EXP:
    case UR_DEVICE_INFO_CLOCK_DEVICE_SUPPORT_EXP:
    case UR_DEVICE_INFO_GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP:
    case UR_DEVICE_INFO_USM_HOST_ALLOC_REGISTER_SUPPORT_EXP:
    case UR_DEVICE_INFO_PER_EVENT_PROFILING_SUPPORT_EXP:
    case UR_DEVICE_INFO_MULTI_DEVICE_COMPILE_SUPPORT_EXP:
    case UR_DEVICE_INFO_DYNAMIC_LINK_SUPPORT_EXP:
    case UR_DEVICE_INFO_MEMORY_EXPORT_EXPORTABLE_DEVICE_MEM_EXP:
    case UR_DEVICE_INFO_ENQUEUE_HOST_TASK_SUPPORT_EXP:
      return boolean(false);
    case UR_DEVICE_INFO_COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP:
      return answer(ur_device_command_buffer_update_capability_flags_t(0));
    case UR_DEVICE_INFO_2D_BLOCK_ARRAY_CAPABILITIES_EXP:
      return answer(ur_exp_device_2d_block_array_capability_flags_t(0));
    case UR_DEVICE_INFO_KERNEL_LAUNCH_CAPABILITIES:
      return answer(ur_kernel_launch_properties_flags_t(
          UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE |
          UR_KERNEL_LAUNCH_PROPERTIES_FLAG_WORK_GROUP_MEMORY |
          (device.has_clusters() ? UR_KERNEL_LAUNCH_PROPERTIES_FLAG_CLUSTER_DIMENSION : 0)));
    case UR_DEVICE_INFO_EXECUTION_CAPABILITIES:
      return answer(ur_device_exec_capability_flags_t(UR_DEVICE_EXEC_CAPABILITY_FLAG_KERNEL));
    case UR_DEVICE_INFO_QUEUE_PROPERTIES:
    case UR_DEVICE_INFO_QUEUE_ON_HOST_PROPERTIES:
      return answer(ur_queue_flags_t(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE |
                                     UR_QUEUE_FLAG_PROFILING_ENABLE));
    case UR_DEVICE_INFO_QUEUE_ON_DEVICE_PROPERTIES:
      return answer(ur_queue_flags_t(0));
    case UR_DEVICE_INFO_SINGLE_FP_CONFIG:
      return answer(ur_device_fp_capability_flags_t(
          fp_capabilities | UR_DEVICE_FP_CAPABILITY_FLAG_CORRECTLY_ROUNDED_DIVIDE_SQRT));
    case UR_DEVICE_INFO_HALF_FP_CONFIG:
    case UR_DEVICE_INFO_DOUBLE_FP_CONFIG:
      return answer(fp_capabilities);
    case UR_DEVICE_INFO_USM_DEVICE_SUPPORT:
    case UR_DEVICE_INFO_USM_HOST_SUPPORT:
      return answer(
          ur_device_usm_access_capability_flags_t(UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS));
    case UR_DEVICE_INFO_USM_SINGLE_SHARED_SUPPORT:
    case UR_DEVICE_INFO_USM_CROSS_SHARED_SUPPORT:
      return answer(managed_access(device));
    case UR_DEVICE_INFO_USM_SYSTEM_SHARED_SUPPORT:
      return answer(number(attribute_pageable_memory_access) != 0
                        ? managed_access(device)
                        : ur_device_usm_access_capability_flags_t(0));
    case UR_DEVICE_INFO_MAX_PARAMETER_SIZE:
      return answer(size_t(4000));
    case UR_DEVICE_INFO_MEM_BASE_ADDR_ALIGN:
      return answer(number(attribute_texture_alignment) * 8);  // bits
    case UR_DEVICE_INFO_PRINTF_BUFFER_SIZE:
      return answer(size_t(1024));
    case UR_DEVICE_INFO_MAX_READ_IMAGE_ARGS:
    case UR_DEVICE_INFO_MAX_WRITE_IMAGE_ARGS:
    case UR_DEVICE_INFO_MAX_READ_WRITE_IMAGE_ARGS:
    case UR_DEVICE_INFO_MAX_SAMPLERS:
      return answer(uint32_t(0));
    case UR_DEVICE_INFO_IMAGE2D_MAX_WIDTH:
    case UR_DEVICE_INFO_IMAGE2D_MAX_HEIGHT:
    case UR_DEVICE_INFO_IMAGE3D_MAX_WIDTH:
    case UR_DEVICE_INFO_IMAGE3D_MAX_HEIGHT:
    case UR_DEVICE_INFO_IMAGE3D_MAX_DEPTH:
    case UR_DEVICE_INFO_IMAGE_MAX_BUFFER_SIZE:
    case UR_DEVICE_INFO_IMAGE_MAX_ARRAY_SIZE:
      return answer(size_t(0));
    case UR_DEVICE_INFO_MAX_COMPUTE_QUEUE_INDICES:
      return answer(uint32_t(1));
    case UR_DEVICE_INFO_PLATFORM:
      return answer(ur_platform_handle_t(&world()->platform));
    case UR_DEVICE_INFO_REFERENCE_COUNT:
      return answer(uint32_t(device.references));
    case UR_DEVICE_INFO_PARENT_DEVICE:
    case UR_DEVICE_INFO_COMPOSITE_DEVICE:
      return answer(ur_device_handle_t(nullptr));
    case UR_DEVICE_INFO_SUPPORTED_PARTITIONS:
    case UR_DEVICE_INFO_PARTITION_TYPE:
    case UR_DEVICE_INFO_COMPONENT_DEVICES:
      return answer.bytes(nullptr, 0);
    case UR_DEVICE_INFO_PARTITION_MAX_SUB_DEVICES:
      return answer(uint32_t(0));
    case UR_DEVICE_INFO_PARTITION_AFFINITY_DOMAIN:
      return answer(ur_device_affinity_domain_flags_t(0));
    case UR_DEVICE_INFO_NAME:
      return answer.text(device.name);
    case UR_DEVICE_INFO_VENDOR:
      return answer.text(vendor);
    case UR_DEVICE_INFO_DRIVER_VERSION:
      return answer.text("CUDA " + driver_version());
    case UR_DEVICE_INFO_PROFILE:
      return answer.text("CUDA");
    case UR_DEVICE_INFO_VERSION:
    case UR_DEVICE_INFO_BACKEND_RUNTIME_VERSION:
      // The runtime reads the architecture from this text.
      return answer.text(std::to_string(device.compute_major) + "." +
                         std::to_string(device.compute_minor));
    case UR_DEVICE_INFO_IP_VERSION:
      return answer(uint32_t(device.compute_major << 16 | device.compute_minor));
    case UR_DEVICE_INFO_EXTENSIONS:
      return answer.text("cl_khr_fp16 cl_khr_fp64 cl_khr_subgroups cl_khr_int64_base_atomics");
    case UR_DEVICE_INFO_BUILT_IN_KERNELS:
    case UR_DEVICE_INFO_IL_VERSION:
      return answer.text("");
    case UR_DEVICE_INFO_UUID: {
      Uuid uuid{};
      check(driver().device_uuid(&uuid, device.ordinal), "cuDeviceGetUuid");
      return answer.bytes(uuid.bytes, sizeof uuid.bytes);
    }
    case UR_DEVICE_INFO_PCI_ADDRESS:
      return answer.text(pci_address(device));
    default:
      return fail(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
  }
}

ur_result_t adapter_get(uint32_t count, ur_adapter_handle_t* adapters, uint32_t* total) {
  return guarded([&] {
    World* const found = world();
    if (total != nullptr) *total = found != nullptr;
    if (found != nullptr && adapters != nullptr && count > 0) {
      ++found->adapter.references;
      *adapters = &found->adapter;
    }
  });
}

// The adapter lives as long as the process; its references are counted for those who ask.
ur_result_t adapter_release(ur_adapter_handle_t adapter) {
  --adapter->references;
  return UR_RESULT_SUCCESS;
}

ur_result_t adapter_last_error(ur_adapter_handle_t, const char** text, int32_t* code) {
  return guarded([&] {
    if (text != nullptr) *text = last_error().text.c_str();
    if (code != nullptr) *code = last_error().code;
  });
}

ur_result_t adapter_info(ur_adapter_handle_t adapter, ur_adapter_info_t what, size_t size,
                         void* value, size_t* needed) {
  return guarded([&] {
    const Answer answer(size, value, needed);
    switch (what) {
      case UR_ADAPTER_INFO_BACKEND:
        return answer(UR_BACKEND_CUDA);
      case UR_ADAPTER_INFO_REFERENCE_COUNT:
        return answer(uint32_t(adapter->references));
      case UR_ADAPTER_INFO_VERSION:
        return answer(uint32_t(1));
      default:
        fail(UR_RESULT_ERROR_INVALID_ENUMERATION);
    }
  });
}

// Nothing is logged: errors are returned, with their text.
ur_result_t adapter_set_logger(ur_adapter_handle_t, ur_logger_callback_t, void*,
                               ur_logger_level_t) {
  return UR_RESULT_SUCCESS;
}

ur_result_t adapter_set_logger_level(ur_adapter_handle_t, ur_logger_level_t) {
  return UR_RESULT_SUCCESS;
}

ur_result_t platform_get(ur_adapter_handle_t adapter, uint32_t count,
                         ur_platform_handle_t* platforms, uint32_t* total) {
  return guarded([&] {
    require(platforms == nullptr || count > 0, UR_RESULT_ERROR_INVALID_SIZE);
    if (total != nullptr) *total = 1;
    if (platforms != nullptr) *platforms = adapter->platform;
  });
}

ur_result_t platform_info(ur_platform_handle_t, ur_platform_info_t what, size_t size, void* value,
                          size_t* needed) {
  return guarded([&] {
    const Answer answer(size, value, needed);
    switch (what) {
      case UR_PLATFORM_INFO_NAME:
        return answer.text("NVIDIA CUDA (funlib)");
      case UR_PLATFORM_INFO_VENDOR_NAME:
        return answer.text(vendor);
      case UR_PLATFORM_INFO_VERSION:
        return answer.text("CUDA " + driver_version());
      case UR_PLATFORM_INFO_EXTENSIONS:
        return answer.text("");
      case UR_PLATFORM_INFO_PROFILE:
        return answer.text("FULL_PROFILE");
      case UR_PLATFORM_INFO_BACKEND:
        return answer(UR_BACKEND_CUDA);
      case UR_PLATFORM_INFO_ADAPTER:
        return answer(ur_adapter_handle_t(&world()->adapter));
      default:
        fail(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
    }
  });
}

ur_result_t platform_api_version(ur_platform_handle_t, ur_api_version_t* version) {
  return guarded([&] { *version = UR_API_VERSION_CURRENT; });
}

// The driver takes no options of the compiler's.
ur_result_t platform_backend_option(ur_platform_handle_t, const char* option,
                                    const char** translated) {
  return guarded([&] {
    require(option != nullptr && translated != nullptr, UR_RESULT_ERROR_INVALID_NULL_POINTER);
    const std::string text = option;
    require(text.empty() || text.rfind("-O", 0) == 0 || text.rfind("-f", 0) == 0,
            UR_RESULT_ERROR_INVALID_VALUE);
    *translated = "";
  });
}

ur_result_t device_get(ur_platform_handle_t platform, ur_device_type_t type, uint32_t count,
                       ur_device_handle_t* devices, uint32_t* total) {
  return guarded([&] {
    require(devices == nullptr || count > 0, UR_RESULT_ERROR_INVALID_SIZE);
    const bool wanted =
        type == UR_DEVICE_TYPE_ALL || type == UR_DEVICE_TYPE_DEFAULT || type == UR_DEVICE_TYPE_GPU;
    const uint32_t available = wanted ? uint32_t(platform->devices.size()) : 0;
    if (total != nullptr) *total = available;
    if (devices == nullptr) return;
    for (uint32_t i = 0; i < std::min(count, available); ++i)
      devices[i] = platform->devices[i].get();
  });
}

ur_result_t device_info(ur_device_handle_t device, ur_device_info_t what, size_t size, void* value,
                        size_t* needed) {
  return guarded([&] { describe(*device, what, Answer(size, value, needed)); });
}

// Devices live as long as the process; only sub-devices would be counted.
ur_result_t device_retain(ur_device_handle_t) { return UR_RESULT_SUCCESS; }
ur_result_t device_release(ur_device_handle_t) { return UR_RESULT_SUCCESS; }

ur_result_t device_select_binary(ur_device_handle_t, const ur_device_binary_t* binaries,
                                 uint32_t count, uint32_t* selected) {
  return guarded([&] {
    for (uint32_t i = 0; i < count; ++i)
      if (std::strstr(binaries[i].pDeviceTargetSpec, "nvptx64") != nullptr) {
        *selected = i;
        return;
      }
    fail(UR_RESULT_ERROR_INVALID_BINARY);
  });
}

ur_result_t device_native(ur_device_handle_t device, ur_native_handle_t* native) {
  return guarded([&] { *native = ur_native_handle_t(device->ordinal); });
}

ur_result_t device_from_native(ur_native_handle_t native, ur_adapter_handle_t adapter,
                               const ur_device_native_properties_t*, ur_device_handle_t* device) {
  return guarded([&] {
    for (const auto& candidate : adapter->platform->devices)
      if (candidate->ordinal == DeviceOrdinal(native)) {
        *device = candidate.get();
        return;
      }
    fail(UR_RESULT_ERROR_INVALID_DEVICE);
  });
}

ur_result_t device_timestamps(ur_device_handle_t, uint64_t* device_time, uint64_t* host_time) {
  return guarded([&] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const auto nanoseconds = uint64_t(std::chrono::nanoseconds(now).count());
    // Times of events are given on the host's clock, to which the device's is set (Moment).
    if (device_time != nullptr) *device_time = nanoseconds;
    if (host_time != nullptr) *host_time = nanoseconds;
  });
}

ur_result_t device_wait(ur_device_handle_t device) {
  return guarded([&] {
    const Current current(device);
    check(driver().context_synchronize(), "cuCtxSynchronize");
  });
}

ur_result_t peer_access(ur_device_handle_t device, ur_device_handle_t peer, bool enable) {
  return guarded([&] {
    const Current current(device);
    const Result result =
        enable ? driver().peer_enable(peer->primary(), 0) : driver().peer_disable(peer->primary());
    require(result != peer_access_already_enabled && result != peer_access_not_enabled,
            UR_RESULT_ERROR_INVALID_OPERATION);
    check(result, enable ? "cuCtxEnablePeerAccess" : "cuCtxDisablePeerAccess");
  });
}
ur_result_t peer_access_enable(ur_device_handle_t device, ur_device_handle_t peer) {
  return peer_access(device, peer, true);
}
ur_result_t peer_access_disable(ur_device_handle_t device, ur_device_handle_t peer) {
  return peer_access(device, peer, false);
}

ur_result_t peer_access_info(ur_device_handle_t device, ur_device_handle_t peer,
                             ur_exp_peer_info_t what, size_t size, void* value, size_t* needed) {
  return guarded([&] {
    require(what == UR_EXP_PEER_INFO_UR_PEER_ACCESS_SUPPORT ||
                what == UR_EXP_PEER_INFO_UR_PEER_ATOMICS_SUPPORT,
            UR_RESULT_ERROR_INVALID_ENUMERATION);
    int possible = 0;
    if (what == UR_EXP_PEER_INFO_UR_PEER_ACCESS_SUPPORT)
      check(driver().device_can_access(&possible, device->ordinal, peer->ordinal),
            "cuDeviceCanAccessPeer");
    Answer(size, value, needed)(possible);
  });
}

}  // namespace

void fill(ur_adapter_dditable_t& table) {
  table.pfnGet = adapter_get;
  table.pfnRetain = retain;
  table.pfnRelease = adapter_release;
  table.pfnGetLastError = adapter_last_error;
  table.pfnGetInfo = adapter_info;
  table.pfnSetLoggerCallback = adapter_set_logger;
  table.pfnSetLoggerCallbackLevel = adapter_set_logger_level;
}
void fill(ur_platform_dditable_t& table) {
  table.pfnGet = platform_get;
  table.pfnGetInfo = platform_info;
  table.pfnGetApiVersion = platform_api_version;
  table.pfnGetBackendOption = platform_backend_option;
}
void fill(ur_device_dditable_t& table) {
  table.pfnGet = device_get;
  table.pfnGetInfo = device_info;
  table.pfnRetain = device_retain;
  table.pfnRelease = device_release;
  table.pfnSelectBinary = device_select_binary;
  table.pfnGetNativeHandle = device_native;
  table.pfnCreateWithNativeHandle = device_from_native;
  table.pfnGetGlobalTimestamps = device_timestamps;
}
void fill(ur_device_exp_dditable_t& table) { table.pfnWaitExp = device_wait; }
void fill(ur_usm_p2p_exp_dditable_t& table) {
  table.pfnEnablePeerAccessExp = peer_access_enable;
  table.pfnDisablePeerAccessExp = peer_access_disable;
  table.pfnPeerAccessGetInfoExp = peer_access_info;
}

}  // namespace cuda_adapter
