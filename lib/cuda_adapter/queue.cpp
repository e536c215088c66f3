// Queues and events.
#include "functions.hpp"
#include "objects.hpp"

using namespace cuda_adapter;

ur_queue_handle_t_::ur_queue_handle_t_(ur_context_handle_t context, ur_device_handle_t device,
                                       ur_queue_flags_t flags)
    : context(context),
      device(device),
      flags(flags),
      in_order((flags & UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0),
      timed((flags & UR_QUEUE_FLAG_PROFILING_ENABLE) != 0) {
  const Current current(device);
  int least = 0, greatest = 0;
  check(driver().stream_priorities(&least, &greatest), "cuCtxGetStreamPriorityRange");
  priority_ = (flags & UR_QUEUE_FLAG_PRIORITY_HIGH) != 0  ? greatest
              : (flags & UR_QUEUE_FLAG_PRIORITY_LOW) != 0 ? least
                                                          : 0;
}

ur_queue_handle_t_::ur_queue_handle_t_(ur_context_handle_t context, ur_device_handle_t device,
                                       StreamHandle stream, bool owned)
    : context(context), device(device), flags(0), in_order(true), timed(false), owned_(owned) {
  streams_.push_back(stream);
}

ur_queue_handle_t_::~ur_queue_handle_t_() {
  // The driver lets what was submitted end before it takes a stream down.
  if (owned_)
    for (const StreamHandle stream : streams_) driver().stream_destroy(stream);
}

StreamHandle ur_queue_handle_t_::next_stream() {
  if (streams_.size() < most_streams()) {
    streams_.push_back(new_stream());
    return streams_.back();
  }
  return streams_[next_++ % streams_.size()];
}

void ur_queue_handle_t_::open_streams() {
  while (streams_.size() < most_streams()) streams_.push_back(new_stream());
}

StreamHandle ur_queue_handle_t_::new_stream() const {
  StreamHandle stream = nullptr;
  check(driver().stream_create(&stream, stream_non_blocking, priority_),
        "cuStreamCreateWithPriority");
  return stream;
}

ur_event_handle_t_::ur_event_handle_t_(ur_queue_handle_t queue, ur_command_t command,
                                       StreamHandle stream, bool timed)
    : queue(queue), command(command), stream(stream), timed(timed) {
  const ur_device_handle_t device = queue->device;
  end = device->take_event(timed);
  if (!timed) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  submitted = uint64_t(std::chrono::nanoseconds(now).count());
  moment = device->moment();
  start = device->take_event(true);
  check(driver().event_record(start, stream), "cuEventRecord");
}

ur_event_handle_t_::~ur_event_handle_t_() {
  const ur_device_handle_t device = queue->device;
  if (start != nullptr) device->give_event(start, true);
  if (end != nullptr) device->give_event(end, timed);
}

namespace cuda_adapter {
namespace {

ur_result_t queue_create(ur_context_handle_t context, ur_device_handle_t device,
                         const ur_queue_properties_t* properties, ur_queue_handle_t* queue) {
  return guarded([&] {
    require(queue != nullptr, UR_RESULT_ERROR_INVALID_NULL_POINTER);
    require(context->has(device), UR_RESULT_ERROR_INVALID_DEVICE);
    const ur_queue_flags_t flags = properties != nullptr ? properties->flags : 0;
    constexpr ur_queue_flags_t both = UR_QUEUE_FLAG_PRIORITY_LOW | UR_QUEUE_FLAG_PRIORITY_HIGH;
    require((flags & both) != both, UR_RESULT_ERROR_INVALID_QUEUE_PROPERTIES);
    *queue = new ur_queue_handle_t_(context, device, flags);
  });
}

bool is_empty(ur_queue_handle_t queue) {
  const Current current(queue->device);
  const std::lock_guard<std::mutex> lock(queue->mutex);
  for (const StreamHandle stream : queue->streams()) {
    const Result result = driver().stream_query(stream);
    if (result == not_ready) return false;
    check(result, "cuStreamQuery");
  }
  return true;
}

ur_result_t queue_info(ur_queue_handle_t queue, ur_queue_info_t what, size_t size, void* value,
                       size_t* needed) {
  return guarded([&] {
    const Answer answer(size, value, needed);
    switch (what) {
      case UR_QUEUE_INFO_CONTEXT:
        return answer(queue->context.get());
      case UR_QUEUE_INFO_DEVICE:
        return answer(queue->device);
      case UR_QUEUE_INFO_FLAGS:
        return answer(queue->flags);
      case UR_QUEUE_INFO_REFERENCE_COUNT:
        return answer(uint32_t(queue->references));
      case UR_QUEUE_INFO_EMPTY:
        return answer(ur_bool_t(is_empty(queue)));
      default:
        fail(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
    }
  });
}

ur_result_t queue_native(ur_queue_handle_t queue, ur_queue_native_desc_t*,
                         ur_native_handle_t* native) {
  return guarded([&] {
    const Current current(queue->device);
    const std::lock_guard<std::mutex> lock(queue->mutex);
    *native = reinterpret_cast<ur_native_handle_t>(queue->next_stream());
  });
}

ur_result_t queue_from_native(ur_native_handle_t native, ur_context_handle_t context,
                              ur_device_handle_t device,
                              const ur_queue_native_properties_t* properties,
                              ur_queue_handle_t* queue) {
  return guarded([&] {
    require(queue != nullptr, UR_RESULT_ERROR_INVALID_NULL_POINTER);
    *queue = new ur_queue_handle_t_(context, device != nullptr ? device : context->devices[0],
                                    reinterpret_cast<StreamHandle>(native),
                                    properties != nullptr && properties->isNativeHandleOwned);
  });
}

ur_result_t queue_finish(ur_queue_handle_t queue) {
  return guarded([&] {
    const Current current(queue->device);
    std::vector<StreamHandle> streams;
    {
      const std::lock_guard<std::mutex> lock(queue->mutex);
      streams = queue->streams();
    }
    for (const StreamHandle stream : streams)
      check(driver().stream_synchronize(stream), "cuStreamSynchronize");
  });
}

// The driver starts what it is given.
ur_result_t queue_flush(ur_queue_handle_t) { return UR_RESULT_SUCCESS; }

ur_event_status_t status_of(ur_event_handle_t event) {
  const Current current(event->queue->device);
  const Result result = driver().event_query(event->end);
  if (result == not_ready) return UR_EVENT_STATUS_SUBMITTED;
  check(result, "cuEventQuery");
  return UR_EVENT_STATUS_COMPLETE;
}

ur_result_t event_info(ur_event_handle_t event, ur_event_info_t what, size_t size, void* value,
                       size_t* needed) {
  return guarded([&] {
    const Answer answer(size, value, needed);
    switch (what) {
      case UR_EVENT_INFO_COMMAND_QUEUE:
        return answer(event->queue.get());
      case UR_EVENT_INFO_CONTEXT:
        return answer(event->queue->context.get());
      case UR_EVENT_INFO_COMMAND_TYPE:
        return answer(event->command);
      case UR_EVENT_INFO_COMMAND_EXECUTION_STATUS:
        return answer(status_of(event));
      case UR_EVENT_INFO_REFERENCE_COUNT:
        return answer(uint32_t(event->references));
      default:
        fail(UR_RESULT_ERROR_INVALID_ENUMERATION);
    }
  });
}

ur_result_t event_profiling_info(ur_event_handle_t event, ur_profiling_info_t what, size_t size,
                                 void* value, size_t* needed) {
  return guarded([&] {
    const Answer answer(size, value, needed);
    require(event->timed, UR_RESULT_ERROR_PROFILING_INFO_NOT_AVAILABLE);
    if (what == UR_PROFILING_INFO_COMMAND_QUEUED || what == UR_PROFILING_INFO_COMMAND_SUBMIT)
      return answer(event->submitted);
    require(what == UR_PROFILING_INFO_COMMAND_START || what == UR_PROFILING_INFO_COMMAND_END ||
                what == UR_PROFILING_INFO_COMMAND_COMPLETE,
            UR_RESULT_ERROR_INVALID_ENUMERATION);
    const ur_device_handle_t device = event->queue->device;
    const Current current(device);
    require(driver().event_query(event->end) != not_ready,
            UR_RESULT_ERROR_PROFILING_INFO_NOT_AVAILABLE);
    const double moment = device->time_of(*event->moment);
    float before = 0, during = 0;  // milliseconds
    check(driver().event_elapsed(&before, event->moment->event, event->start),
          "cuEventElapsedTime");
    check(driver().event_elapsed(&during, event->start, event->end), "cuEventElapsedTime");
    const double start = moment + double(before) * 1e6;
    answer(what == UR_PROFILING_INFO_COMMAND_START ? uint64_t(start)
                                                   : uint64_t(start + double(during) * 1e6));
  });
}

ur_result_t event_wait(uint32_t count, const ur_event_handle_t* events) {
  return guarded([&] {
    require(events != nullptr && count > 0, UR_RESULT_ERROR_INVALID_VALUE);
    for (uint32_t i = 0; i < count; ++i) {
      const Current current(events[i]->queue->device);
      check(driver().event_synchronize(events[i]->end), "cuEventSynchronize");
    }
  });
}

ur_result_t event_native(ur_event_handle_t event, ur_native_handle_t* native) {
  return guarded([&] { *native = reinterpret_cast<ur_native_handle_t>(event->end); });
}

}  // namespace

void fill(ur_queue_dditable_t& table) {
  table.pfnCreate = queue_create;
  table.pfnRetain = retain;
  table.pfnRelease = release;
  table.pfnGetInfo = queue_info;
  table.pfnGetNativeHandle = queue_native;
  table.pfnCreateWithNativeHandle = queue_from_native;
  table.pfnFinish = queue_finish;
  table.pfnFlush = queue_flush;
}
void fill(ur_event_dditable_t& table) {
  table.pfnGetInfo = event_info;
  table.pfnGetProfilingInfo = event_profiling_info;
  table.pfnWait = event_wait;
  table.pfnRetain = retain;
  table.pfnRelease = release;
  table.pfnGetNativeHandle = event_native;
}

}  // namespace cuda_adapter
