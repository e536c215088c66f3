// Contexts and memory (unified shared memory: device, host and shared allocations).
#include <algorithm>

#include "functions.hpp"
#include "objects.hpp"

using namespace cuda_adapter;

ur_context_handle_t_::~ur_context_handle_t_() {
  for (const auto& [deleter, data] : deleters) deleter(data);
}

bool ur_context_handle_t_::has(ur_device_handle_t device) const {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

namespace cuda_adapter {
namespace {

ur_result_t context_create(uint32_t count, const ur_device_handle_t* devices,
                           const ur_context_properties_t*, ur_context_handle_t* context) {
  return guarded([&] {
    require(devices != nullptr && context != nullptr, UR_RESULT_ERROR_INVALID_NULL_POINTER);
    require(count > 0, UR_RESULT_ERROR_INVALID_SIZE);
    auto made = std::make_unique<ur_context_handle_t_>();
    made->devices.assign(devices, devices + count);
    *context = made.release();
  });
}

ur_result_t context_info(ur_context_handle_t context, ur_context_info_t what, size_t size,
                         void* value, size_t* needed) {
  return guarded([&] {
    const Answer answer(size, value, needed);
    switch (what) {
      case UR_CONTEXT_INFO_NUM_DEVICES:
        return answer(uint32_t(context->devices.size()));
      case UR_CONTEXT_INFO_DEVICES:
        return answer.list(context->devices);
      case UR_CONTEXT_INFO_REFERENCE_COUNT:
        return answer(uint32_t(context->references));
      case UR_CONTEXT_INFO_USM_MEMCPY2D_SUPPORT:
        return answer(ur_bool_t(true));
      case UR_CONTEXT_INFO_USM_FILL2D_SUPPORT:
        return answer(ur_bool_t(false));
      default:
        fail(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
    }
  });
}

ur_result_t context_native(ur_context_handle_t context, ur_native_handle_t* native) {
  return guarded(
      [&] { *native = reinterpret_cast<ur_native_handle_t>(context->devices[0]->primary()); });
}

ur_result_t context_add_deleter(ur_context_handle_t context, ur_context_extended_deleter_t deleter,
                                void* data) {
  return guarded([&] {
    const std::lock_guard<std::mutex> lock(context->mutex);
    context->deleters.emplace_back(deleter, data);
  });
}

// Memory by allocate(), called with the device's context current; `free` takes it back. The driver
// aligns to 256 bytes at least, large allocations further; more can't be asked for.
template <typename Allocate>
ur_result_t make_memory(ur_device_handle_t device, const ur_usm_desc_t* description,
                        ur_usm_pool_handle_t pool, size_t size, void** memory, Allocate&& allocate,
                        Result (*free)(void*)) {
  return guarded([&] {
    require(memory != nullptr, UR_RESULT_ERROR_INVALID_NULL_POINTER);
    require(pool == nullptr, UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
    require(size > 0, UR_RESULT_ERROR_INVALID_USM_SIZE);
    const uint32_t alignment = description != nullptr ? description->align : 0;
    require((alignment & (alignment - 1)) == 0, UR_RESULT_ERROR_INVALID_VALUE);
    const Current current(device);
    void* const made = allocate();
    if (alignment != 0 && reinterpret_cast<uintptr_t>(made) % alignment != 0) {
      free(made);
      fail(UR_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    }
    *memory = made;
  });
}

Result free_device_memory(void* memory) {
  return driver().memory_free(reinterpret_cast<DevicePointer>(memory));
}
Result free_host_memory(void* memory) { return driver().host_free(memory); }

ur_result_t device_allocate(ur_context_handle_t context, ur_device_handle_t device,
                            const ur_usm_desc_t* description, ur_usm_pool_handle_t pool,
                            size_t size, void** memory) {
  if (!context->has(device)) return UR_RESULT_ERROR_INVALID_DEVICE;
  const auto allocate = [&] {
    DevicePointer address = 0;
    check(driver().memory_allocate(&address, size), "cuMemAlloc");
    return reinterpret_cast<void*>(address);
  };
  return make_memory(device, description, pool, size, memory, allocate, free_device_memory);
}

ur_result_t shared_allocate(ur_context_handle_t context, ur_device_handle_t device,
                            const ur_usm_desc_t* description, ur_usm_pool_handle_t pool,
                            size_t size, void** memory) {
  if (device == nullptr) device = context->devices[0];
  if (!context->has(device)) return UR_RESULT_ERROR_INVALID_DEVICE;
  const auto allocate = [&] {
    DevicePointer address = 0;
    check(driver().memory_allocate_managed(&address, size, attach_global), "cuMemAllocManaged");
    return reinterpret_cast<void*>(address);
  };
  return make_memory(device, description, pool, size, memory, allocate, free_device_memory);
}

ur_result_t host_allocate(ur_context_handle_t context, const ur_usm_desc_t* description,
                          ur_usm_pool_handle_t pool, size_t size, void** memory) {
  const auto allocate = [&] {
    void* address = nullptr;
    const Result result = driver().host_allocate(&address, size, host_alloc_portable);
    require(result != out_of_memory, UR_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    check(result, "cuMemHostAlloc");
    return address;
  };
  const ur_device_handle_t any = context->devices[0];
  return make_memory(any, description, pool, size, memory, allocate, free_host_memory);
}

// What the driver knows of an address; `unknown` type for memory that is not of CUDA.
struct Allocation {
  ur_usm_type_t type = UR_USM_TYPE_UNKNOWN;
  DevicePointer address;

  explicit Allocation(const void* memory) : address(reinterpret_cast<DevicePointer>(memory)) {
    unsigned managed = 0, kind = 0;
    const Result result = driver().pointer_attribute(&managed, pointer_is_managed, address);
    if (result == invalid_value) return;
    check(result, "cuPointerGetAttribute");
    if (managed != 0) {
      type = UR_USM_TYPE_SHARED;
      return;
    }
    check(driver().pointer_attribute(&kind, pointer_memory_type, address), "cuPointerGetAttribute");
    type = kind == memory_type_host ? UR_USM_TYPE_HOST : UR_USM_TYPE_DEVICE;
  }
  template <typename T>
  T attribute(int number) const {
    T value{};
    check(driver().pointer_attribute(&value, number, address), "cuPointerGetAttribute");
    return value;
  }
};

ur_result_t memory_free(ur_context_handle_t context, void* memory) {
  return guarded([&] {
    require(memory != nullptr, UR_RESULT_ERROR_INVALID_NULL_POINTER);
    const Current any(context->devices[0]);
    const Allocation allocation(memory);
    switch (allocation.type) {
      case UR_USM_TYPE_HOST:
        return check(driver().host_free(memory), "cuMemFreeHost");
      case UR_USM_TYPE_DEVICE:
      case UR_USM_TYPE_SHARED:
        return check(driver().memory_free(allocation.address), "cuMemFree");
      default:
        fail(UR_RESULT_ERROR_INVALID_MEM_OBJECT);
    }
  });
}

ur_result_t allocation_info(ur_context_handle_t context, const void* memory,
                            ur_usm_alloc_info_t what, size_t size, void* value, size_t* needed) {
  return guarded([&] {
    const Answer answer(size, value, needed);
    const Current any(context->devices[0]);
    const Allocation allocation(memory);
    if (what == UR_USM_ALLOC_INFO_TYPE) return answer(allocation.type);
    require(allocation.type != UR_USM_TYPE_UNKNOWN, UR_RESULT_ERROR_INVALID_MEM_OBJECT);
    switch (what) {
      case UR_USM_ALLOC_INFO_BASE_PTR:
        return answer(allocation.attribute<void*>(pointer_range_start));
      case UR_USM_ALLOC_INFO_SIZE:
        return answer(allocation.attribute<size_t>(pointer_range_size));
      case UR_USM_ALLOC_INFO_DEVICE: {
        const int ordinal = allocation.attribute<int>(pointer_device_ordinal);
        for (const ur_device_handle_t device : context->devices)
          if (device->ordinal == ordinal) return answer(device);
        fail(UR_RESULT_ERROR_INVALID_DEVICE);
      }
      default:
        fail(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
    }
  });
}

ur_result_t context_copy(ur_context_handle_t context, void* target, const void* source,
                         size_t size) {
  return guarded([&] {
    const Current current(context->devices[0]);
    check(driver().copy(reinterpret_cast<DevicePointer>(target),
                        reinterpret_cast<DevicePointer>(source), size),
          "cuMemcpy");
  });
}

}  // namespace

void fill(ur_context_dditable_t& table) {
  table.pfnCreate = context_create;
  table.pfnRetain = retain;
  table.pfnRelease = release;
  table.pfnGetInfo = context_info;
  table.pfnGetNativeHandle = context_native;
  table.pfnSetExtendedDeleter = context_add_deleter;
}
void fill(ur_usm_dditable_t& table) {
  table.pfnHostAlloc = host_allocate;
  table.pfnDeviceAlloc = device_allocate;
  table.pfnSharedAlloc = shared_allocate;
  table.pfnFree = memory_free;
  table.pfnGetMemAllocInfo = allocation_info;
}
void fill(ur_usm_exp_dditable_t& table) { table.pfnContextMemcpyExp = context_copy; }

}  // namespace cuda_adapter
