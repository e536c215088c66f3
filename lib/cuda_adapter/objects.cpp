#include "objects.hpp"

#include <cstring>

namespace cuda_adapter {

const Driver& driver() {
  const Driver* found = find_driver();
  require(found != nullptr, UR_RESULT_ERROR_UNINITIALIZED);
  return *found;
}

LastError& last_error() {
  thread_local LastError error;
  return error;
}

void check(Result result, const char* call) {
  switch (result) {
    case success:
      return;
    case out_of_memory:
      fail(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    case invalid_value:
      fail(UR_RESULT_ERROR_INVALID_VALUE);
    case not_initialized:
    case deinitialized:
      fail(UR_RESULT_ERROR_UNINITIALIZED);
    case no_device:
      fail(UR_RESULT_ERROR_DEVICE_NOT_FOUND);
    case invalid_device:
      fail(UR_RESULT_ERROR_INVALID_DEVICE);
    case invalid_context:
      fail(UR_RESULT_ERROR_INVALID_CONTEXT);
    case invalid_image:
    case no_binary_for_gpu:
      fail(UR_RESULT_ERROR_INVALID_BINARY);
    case launch_out_of_resources:
      fail(UR_RESULT_ERROR_OUT_OF_RESOURCES);
    case not_supported:
      fail(UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
    default:
      break;
  }
  const char *name = nullptr, *text = nullptr;
  driver().error_name(result, &name);
  driver().error_text(result, &text);
  LastError& error = last_error();
  error.text = std::string(call) + ": " + (name != nullptr ? name : "unknown error") +
               (text != nullptr ? std::string(" (") + text + ")" : "");
  error.code = result;
  fail(UR_RESULT_ERROR_ADAPTER_SPECIFIC);
}

void Answer::bytes(const void* data, size_t count) const {
  require(value_ != nullptr || size_needed_ != nullptr, UR_RESULT_ERROR_INVALID_NULL_POINTER);
  if (value_ != nullptr) {
    require(size_ >= count, UR_RESULT_ERROR_INVALID_SIZE);
    if (count != 0) std::memcpy(value_, data, count);
  }
  if (size_needed_ != nullptr) *size_needed_ = count;
}

Current::Current(ur_device_handle_t device) {
  const ContextHandle wanted = device->primary();
  ContextHandle now = nullptr;
  check(driver().context_current(&now), "cuCtxGetCurrent");
  if (now == wanted) return;
  check(driver().context_push(wanted), "cuCtxPushCurrent");
  pushed_ = true;
}

Current::~Current() {
  ContextHandle popped;
  if (pushed_) driver().context_pop(&popped);
}

}  // namespace cuda_adapter
