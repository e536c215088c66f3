// Commands on queues: kernels, copies, fills, barriers.
#include <algorithm>
#include <cstring>

#include "functions.hpp"
#include "objects.hpp"

namespace cuda_adapter {
namespace {

void wait_for(ur_queue_handle_t queue, StreamHandle stream, uint32_t count,
              const ur_event_handle_t* events) {
  require(count == 0 || events != nullptr, UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST);
  for (uint32_t i = 0; i < count; ++i) {
    // What went into the same stream is done in order.
    if (events[i]->stream == stream && events[i]->queue.get() == queue) continue;
    check(driver().stream_wait_event(stream, events[i]->end, 0), "cuStreamWaitEvent");
  }
}

// What events a command waits for, and where its own goes: null if the caller wants none.
struct Dependencies {
  uint32_t count;
  const ur_event_handle_t* events;
  ur_event_handle_t* result;
};

// Puts a command into the queue: submit(stream) calls the driver.
template <typename Submit>
ur_result_t enqueue(ur_queue_handle_t queue, ur_command_t command, const Dependencies& on,
                    Submit&& submit) {
  const ur_result_t status = guarded([&] {
    const Current current(queue->device);
    const std::lock_guard<std::mutex> lock(queue->mutex);
    const StreamHandle stream = queue->next_stream();
    wait_for(queue, stream, on.count, on.events);
    std::unique_ptr<ur_event_handle_t_> event;
    if (on.result != nullptr)
      event = std::make_unique<ur_event_handle_t_>(
          queue, command, stream, queue->timed || command == UR_COMMAND_TIMESTAMP_RECORDING_EXP);
    submit(stream);
    if (event == nullptr) return;
    check(driver().event_record(event->end, stream), "cuEventRecord");
    *on.result = event.release();
  });
  // The runtime takes an error that only the driver has a name for as success of a command on memory
  // that a handler submitted. Copies keep the name: funlib makes them without a handler.
  const bool loses_names = command != UR_COMMAND_KERNEL_LAUNCH && command != UR_COMMAND_USM_MEMCPY;
  return status == UR_RESULT_ERROR_ADAPTER_SPECIFIC && loses_names ? UR_RESULT_ERROR_UNKNOWN
                                                                   : status;
}

void finish(ur_event_handle_t event) {
  check(driver().event_synchronize(event->end), "cuEventSynchronize");
}

// Commands that may block the caller until they are done.
template <typename Submit>
ur_result_t enqueue_blocking(ur_queue_handle_t queue, ur_command_t command, bool blocking,
                             const Dependencies& on, Submit&& submit) {
  if (!blocking) return enqueue(queue, command, on, submit);
  ur_event_handle_t event = nullptr;
  ur_result_t result = enqueue(queue, command, {on.count, on.events, &event}, submit);
  if (result != UR_RESULT_SUCCESS) return result;
  result = guarded([&] {
    const Current current(queue->device);
    finish(event);
  });
  if (on.result != nullptr && result == UR_RESULT_SUCCESS)
    *on.result = event;
  else
    delete event;
  return result;
}

ur_result_t events_wait(ur_queue_handle_t queue, uint32_t count, const ur_event_handle_t* events,
                        ur_event_handle_t* result) {
  // Without a list, for all that is in the queue: streams of an out-of-order one wait for each other.
  return enqueue(queue, UR_COMMAND_EVENTS_WAIT, {count, events, result}, [&](StreamHandle stream) {
    if (count != 0) return;
    for (const StreamHandle other : queue->streams()) {
      if (other == stream) continue;
      const EventHandle reached = queue->device->take_event(false);
      check(driver().event_record(reached, other), "cuEventRecord");
      check(driver().stream_wait_event(stream, reached, 0), "cuStreamWaitEvent");
      queue->device->give_event(reached, false);
    }
  });
}

ur_result_t barrier(ur_queue_handle_t queue, uint32_t count, const ur_event_handle_t* events,
                    ur_event_handle_t* result) {
  // A stream that is made later would wait for nothing.
  const ur_result_t opened = guarded([&] {
    const Current current(queue->device);
    const std::lock_guard<std::mutex> lock(queue->mutex);
    queue->open_streams();
  });
  if (opened != UR_RESULT_SUCCESS) return opened;
  ur_event_handle_t reached = nullptr;
  const ur_result_t status = events_wait(queue, count, events, &reached);
  if (status != UR_RESULT_SUCCESS) return status;
  return guarded([&] {
    reached->command = UR_COMMAND_EVENTS_WAIT_WITH_BARRIER;
    std::unique_ptr<ur_event_handle_t_> owned(reached);
    const Current current(queue->device);
    const std::lock_guard<std::mutex> lock(queue->mutex);
    for (const StreamHandle stream : queue->streams())
      if (stream != reached->stream)
        check(driver().stream_wait_event(stream, reached->end, 0), "cuStreamWaitEvent");
    if (result != nullptr) *result = owned.release();
  });
}

ur_result_t barrier_with_properties(ur_queue_handle_t queue, const ur_exp_enqueue_ext_properties_t*,
                                    uint32_t count, const ur_event_handle_t* events,
                                    ur_event_handle_t* result) {
  return barrier(queue, count, events, result);
}

ur_result_t copy(ur_queue_handle_t queue, bool blocking, void* target, const void* source,
                 size_t size, uint32_t count, const ur_event_handle_t* events,
                 ur_event_handle_t* result) {
  return enqueue_blocking(
      queue, UR_COMMAND_USM_MEMCPY, blocking, {count, events, result}, [&](StreamHandle stream) {
        if (size == 0) return;
        check(driver().copy_async(reinterpret_cast<DevicePointer>(target),
                                  reinterpret_cast<DevicePointer>(source), size, stream),
              "cuMemcpyAsync");
      });
}

ur_result_t copy_2d(ur_queue_handle_t queue, bool blocking, void* target, size_t target_pitch,
                    const void* source, size_t source_pitch, size_t width, size_t height,
                    uint32_t count, const ur_event_handle_t* events, ur_event_handle_t* result) {
  return enqueue_blocking(queue, UR_COMMAND_USM_MEMCPY_2D, blocking, {count, events, result},
                          [&](StreamHandle stream) {
                            if (width == 0 || height == 0) return;
                            Copy2D lines{};
                            // The driver finds out where unified addresses lie.
                            lines.source_type = lines.target_type = memory_type_unified;
                            lines.source_device = reinterpret_cast<DevicePointer>(source);
                            lines.target_device = reinterpret_cast<DevicePointer>(target);
                            lines.source_pitch = source_pitch;
                            lines.target_pitch = target_pitch;
                            lines.width = width;
                            lines.height = height;
                            check(driver().copy_2d_async(&lines, stream), "cuMemcpy2DAsync");
                          });
}

ur_result_t fill_memory(ur_queue_handle_t queue, void* memory, size_t pattern_size,
                        const void* pattern, size_t size, uint32_t count,
                        const ur_event_handle_t* events, ur_event_handle_t* result) {
  return enqueue(queue, UR_COMMAND_USM_FILL, {count, events, result}, [&](StreamHandle stream) {
    require(pattern_size != 0 && size % pattern_size == 0, UR_RESULT_ERROR_INVALID_SIZE);
    if (size == 0) return;
    const auto address = reinterpret_cast<DevicePointer>(memory);
    const size_t patterns = size / pattern_size;
    const auto* bytes = static_cast<const unsigned char*>(pattern);
    const auto part = [&](size_t at, auto value) {
      std::memcpy(&value, bytes + at, sizeof value);
      return value;
    };
    if (pattern_size == 1)
      check(driver().set_8_async(address, bytes[0], size, stream), "cuMemsetD8Async");
    else if (pattern_size == 2 && address % 2 == 0)
      check(
          driver().set_16_async(address, part(0, static_cast<unsigned short>(0)), patterns, stream),
          "cuMemsetD16Async");
    else if (pattern_size == 4 && address % 4 == 0)
      check(driver().set_32_async(address, part(0, 0u), patterns, stream), "cuMemsetD32Async");
    else if (pattern_size % 4 == 0 && address % 4 == 0)
      // One column of words after the other.
      for (size_t at = 0; at < pattern_size; at += 4)
        check(
            driver().set_2d_32_async(address + at, pattern_size, part(at, 0u), 1, patterns, stream),
            "cuMemsetD2D32Async");
    else
      for (size_t at = 0; at < pattern_size; ++at)
        check(driver().set_2d_8_async(address + at, pattern_size, bytes[at], 1, patterns, stream),
              "cuMemsetD2D8Async");
  });
}

ur_result_t prefetch(ur_queue_handle_t queue, const void* memory, size_t size,
                     ur_usm_migration_flags_t flags, uint32_t count,
                     const ur_event_handle_t* events, ur_event_handle_t* result) {
  return enqueue(queue, UR_COMMAND_USM_PREFETCH, {count, events, result}, [&](StreamHandle stream) {
    // A hint: devices that can't move pages ahead do without.
    if (queue->device->attribute(attribute_concurrent_managed_access) == 0) return;
    const bool to_host = (flags & UR_USM_MIGRATION_FLAG_DEVICE_TO_HOST) != 0;
    check(driver().prefetch_async(reinterpret_cast<DevicePointer>(memory), size,
                                  to_host ? device_cpu : queue->device->ordinal, stream),
          "cuMemPrefetchAsync");
  });
}

ur_result_t advise(ur_queue_handle_t queue, const void* memory, size_t size,
                   ur_usm_advice_flags_t advice, ur_event_handle_t* result) {
  return enqueue(queue, UR_COMMAND_USM_ADVISE, {0, nullptr, result}, [&](StreamHandle) {
    struct Meaning {
      ur_usm_advice_flags_t flag;
      int advice;
      bool host;
    };
    constexpr Meaning meanings[] = {
        {UR_USM_ADVICE_FLAG_SET_READ_MOSTLY, advise_set_read_mostly, false},
        {UR_USM_ADVICE_FLAG_CLEAR_READ_MOSTLY, advise_unset_read_mostly, false},
        {UR_USM_ADVICE_FLAG_SET_PREFERRED_LOCATION, advise_set_preferred_location, false},
        {UR_USM_ADVICE_FLAG_CLEAR_PREFERRED_LOCATION, advise_unset_preferred_location, false},
        {UR_USM_ADVICE_FLAG_SET_ACCESSED_BY_DEVICE, advise_set_accessed_by, false},
        {UR_USM_ADVICE_FLAG_CLEAR_ACCESSED_BY_DEVICE, advise_unset_accessed_by, false},
        {UR_USM_ADVICE_FLAG_SET_PREFERRED_LOCATION_HOST, advise_set_preferred_location, true},
        {UR_USM_ADVICE_FLAG_CLEAR_PREFERRED_LOCATION_HOST, advise_unset_preferred_location, true},
        {UR_USM_ADVICE_FLAG_SET_ACCESSED_BY_HOST, advise_set_accessed_by, true},
        {UR_USM_ADVICE_FLAG_CLEAR_ACCESSED_BY_HOST, advise_unset_accessed_by, true},
    };
    if (queue->device->attribute(attribute_concurrent_managed_access) == 0) return;
    for (const auto& meaning : meanings)
      if ((advice & meaning.flag) != 0)
        check(driver().advise(reinterpret_cast<DevicePointer>(memory), size, meaning.advice,
                              meaning.host ? device_cpu : queue->device->ordinal),
              "cuMemAdvise");
  });
}

ur_result_t record_timestamp(ur_queue_handle_t queue, bool blocking, uint32_t count,
                             const ur_event_handle_t* events, ur_event_handle_t* result) {
  return enqueue_blocking(queue, UR_COMMAND_TIMESTAMP_RECORDING_EXP, blocking,
                          {count, events, result}, [](StreamHandle) {});
}

// A launch, made of what the caller says of it.
struct Launch {
  static constexpr size_t most_arguments = 128;

  FunctionHandle function;
  std::array<unsigned, 3> groups{1, 1, 1}, work_items{1, 1, 1}, cluster{1, 1, 1};
  size_t dynamic_bytes = 0;
  bool cooperative = false;
  std::array<void*, most_arguments> arguments;
  std::array<uint64_t, most_arguments> local_offsets;
  std::array<uint32_t, 3> offset{};
};

void read_arguments(Launch& launch, uint32_t count, const ur_exp_kernel_arg_properties_t* given) {
  // Room for the offset.
  require(count < Launch::most_arguments, UR_RESULT_ERROR_OUT_OF_RESOURCES);
  launch.arguments.fill(nullptr);
  for (uint32_t i = 0; i < count; ++i) {
    const auto& argument = given[i];
    require(argument.index < count, UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
    void*& place = launch.arguments[argument.index];
    switch (argument.type) {
      case UR_EXP_KERNEL_ARG_TYPE_VALUE:
        place = const_cast<void*>(argument.value.value);
        break;
      case UR_EXP_KERNEL_ARG_TYPE_POINTER:
        place = const_cast<void*>(static_cast<const void*>(&argument.value.pointer));
        break;
      case UR_EXP_KERNEL_ARG_TYPE_LOCAL: {
        // The compiler takes an offset into dynamic local memory. Aligned as far as the size lets
        // somebody care: to 1024 bytes, the widest pattern of swizzles, at most.
        const size_t alignment = argument.size >= 1024 ? 1024 : 128;
        launch.dynamic_bytes = (launch.dynamic_bytes + alignment - 1) / alignment * alignment;
        launch.local_offsets[argument.index] = launch.dynamic_bytes;
        place = &launch.local_offsets[argument.index];
        launch.dynamic_bytes += argument.size;
        break;
      }
      default:
        fail(UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
    }
  }
}

void read_properties(Launch& launch, const ur_kernel_launch_ext_properties_t* properties) {
  if (properties == nullptr) return;
  launch.cooperative = (properties->flags & UR_KERNEL_LAUNCH_FLAG_COOPERATIVE) != 0;
  struct Header {
    ur_structure_type_t type;
    void* next;
  };
  for (auto* link = static_cast<const Header*>(properties->pNext); link != nullptr;
       link = static_cast<const Header*>(link->next)) {
    switch (link->type) {
      case UR_STRUCTURE_TYPE_KERNEL_LAUNCH_WORKGROUP_PROPERTY:
        launch.dynamic_bytes += reinterpret_cast<const ur_kernel_launch_workgroup_property_t*>(link)
                                    ->workgroup_mem_size;
        break;
      case UR_STRUCTURE_TYPE_KERNEL_LAUNCH_CLUSTER_PROPERTY:
        std::copy_n(reinterpret_cast<const ur_kernel_launch_cluster_property_t*>(link)->clusterDim,
                    3, launch.cluster.begin());
        break;
      default:
        fail(UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
    }
  }
}

// A work-group size for those who leave it open: up to 256 work-items along the first dimension.
size_t chosen_size(size_t global) {
  for (size_t size = std::min<size_t>(global, 256); size > 1; --size)
    if (global % size == 0) return size;
  return 1;
}

void read_range(Launch& launch, const ur_kernel_handle_t_& kernel, uint32_t dimensions,
                const size_t* global, const size_t* local) {
  const bool is_fixed = kernel.work_group_size[0] != 0;
  size_t linear = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    const size_t size = local != nullptr ? local[i]
                        : is_fixed       ? kernel.work_group_size[i]
                        : i == 0         ? chosen_size(global[0])
                                         : 1;
    require(size > 0 && global[i] % size == 0, UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE);
    require(!is_fixed || size == kernel.work_group_size[i],
            UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE);
    require(kernel.max_work_group_size[i] == 0 || size <= kernel.max_work_group_size[i],
            UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE);
    const size_t groups = global[i] / size;
    require(groups <= 0x7fffffff && size <= 1024, UR_RESULT_ERROR_INVALID_WORK_ITEM_SIZE);
    launch.work_items[i] = unsigned(size);
    launch.groups[i] = unsigned(groups);
    linear *= size;
  }
  require(kernel.max_linear_size == 0 || linear <= kernel.max_linear_size,
          UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE);
}

// Dynamic local memory beyond 48 KB has to be asked for, once for the largest.
void allow_local_memory(ur_kernel_handle_t_& kernel, const Launch& launch) {
  if (launch.dynamic_bytes <= size_t(kernel.dynamic_local_limit)) return;
  const int most = kernel.program->device->attribute(attribute_max_local_bytes_opt_in);
  require(launch.dynamic_bytes + size_t(kernel.static_local_bytes) <= size_t(most),
          UR_RESULT_ERROR_OUT_OF_RESOURCES);
  check(driver().function_set_attribute(launch.function, function_max_dynamic_local_bytes,
                                        int(launch.dynamic_bytes)),
        "cuFuncSetAttribute");
  kernel.dynamic_local_limit = int(launch.dynamic_bytes);
}

// Whether the launch is one of clusters, after checks. The driver takes up to 8 work-groups in one.
bool has_clusters(const Launch& launch, const ur_kernel_handle_t_& kernel) {
  bool has = false;
  for (size_t i = 0; i < launch.cluster.size(); ++i) {
    require(launch.cluster[i] > 0 && launch.groups[i] % launch.cluster[i] == 0,
            UR_RESULT_ERROR_INVALID_VALUE);
    has = has || launch.cluster[i] > 1;
  }
  require(!has || kernel.program->device->has_clusters(), UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
  return has;
}

ur_result_t launch_kernel(ur_queue_handle_t queue, ur_kernel_handle_t kernel, uint32_t dimensions,
                          const size_t* offset, const size_t* global, const size_t* local,
                          uint32_t argument_count, const ur_exp_kernel_arg_properties_t* arguments,
                          const ur_kernel_launch_ext_properties_t* properties, uint32_t count,
                          const ur_event_handle_t* events, ur_event_handle_t* result) {
  return enqueue(
      queue, UR_COMMAND_KERNEL_LAUNCH, {count, events, result}, [&](StreamHandle stream) {
        require(kernel->program->device == queue->device, UR_RESULT_ERROR_INVALID_KERNEL);
        require(dimensions >= 1 && dimensions <= 3, UR_RESULT_ERROR_INVALID_WORK_DIMENSION);
        require(global != nullptr, UR_RESULT_ERROR_INVALID_NULL_POINTER);
        Launch launch;
        launch.function = kernel->function;
        read_arguments(launch, argument_count, arguments);
        read_properties(launch, properties);
        for (uint32_t i = 0; i < dimensions; ++i)
          if (global[i] == 0) return;
        read_range(launch, *kernel, dimensions, global, local);
        if (offset != nullptr &&
            std::any_of(offset, offset + dimensions, [](size_t o) { return o; })) {
          require(kernel->with_offset != nullptr, UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
          launch.function = kernel->with_offset;
          for (uint32_t i = 0; i < dimensions; ++i) launch.offset[i] = uint32_t(offset[i]);
          launch.arguments[argument_count] = launch.offset.data();
        }
        allow_local_memory(*kernel, launch);
        const auto& [gx, gy, gz] = launch.groups;
        const auto& [x, y, z] = launch.work_items;
        const auto& [cx, cy, cz] = launch.cluster;
        LaunchAttribute attributes[2];
        unsigned attribute_count = 0;
        if (launch.cooperative) attributes[attribute_count++] = {launch_cooperative, 0, {1}};
        if (has_clusters(launch, *kernel))
          attributes[attribute_count++] = {launch_cluster_size, 0, {cx, cy, cz}};
        const unsigned bytes = unsigned(launch.dynamic_bytes);
        if (attribute_count == 0)
          return check(driver().launch(launch.function, gx, gy, gz, x, y, z, bytes, stream,
                                       launch.arguments.data(), nullptr),
                       "cuLaunchKernel");
        const LaunchConfig config{gx, gy, gz, x, y, z, bytes, stream, attributes, attribute_count};
        check(driver().launch_with_attributes(&config, launch.function, launch.arguments.data(),
                                              nullptr),
              "cuLaunchKernelEx");
      });
}

}  // namespace

void fill(ur_enqueue_dditable_t& table) {
  table.pfnEventsWait = events_wait;
  table.pfnEventsWaitWithBarrier = barrier;
  table.pfnEventsWaitWithBarrierExt = barrier_with_properties;
  table.pfnUSMFill = fill_memory;
  table.pfnUSMMemcpy = copy;
  table.pfnUSMPrefetch = prefetch;
  table.pfnUSMAdvise = advise;
  table.pfnUSMMemcpy2D = copy_2d;
}
void fill(ur_enqueue_exp_dditable_t& table) {
  table.pfnKernelLaunchWithArgsExp = launch_kernel;
  table.pfnTimestampRecordingExp = record_timestamp;
}

}  // namespace cuda_adapter
