// The adapter's objects. The loader reads the table of functions through the first member of each.
#pragma once

#include <unified-runtime/ur_api.h>
#include <unified-runtime/ur_ddi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver.hpp"

namespace cuda_adapter {

const ur_dditable_t* all_functions();

struct Object {
  const ur_dditable_t* functions = all_functions();
  std::atomic<uint32_t> references{1};

  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
};

// A counted reference to an object that others may release.
template <typename T>
class Reference {
 public:
  explicit Reference(T* object) : object_(object) { ++object_->references; }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  ~Reference() {
    if (--object_->references == 0) delete object_;
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }

 private:
  T* object_;
};

const Driver& driver();

// Thrown inside of the adapter, returned at its border.
struct Failure {
  ur_result_t result;
};
[[noreturn]] inline void fail(ur_result_t result) { throw Failure{result}; }
inline void require(bool condition, ur_result_t otherwise) {
  if (!condition) fail(otherwise);
}

// Throws the adapter interface's name of a driver's error; `call` is kept for urAdapterGetLastError.
void check(Result result, const char* call);

// The last error of this thread that only the driver has a name for.
struct LastError {
  std::string text;
  int32_t code = 0;
};
LastError& last_error();

template <typename Function>
ur_result_t guarded(Function&& function) {
  try {
    function();
    return UR_RESULT_SUCCESS;
  } catch (const Failure& failure) {
    return failure.result;
  } catch (const std::bad_alloc&) {
    return UR_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  } catch (...) {
    return UR_RESULT_ERROR_UNKNOWN;
  }
}

// The functions by which the runtime counts its references to an object.
template <typename Handle>
ur_result_t retain(Handle object) {
  ++object->references;
  return UR_RESULT_SUCCESS;
}
template <typename Handle>
ur_result_t release(Handle object) {
  return guarded([&] {
    if (--object->references == 0) delete object;
  });
}

// Writes what a query asks for.
class Answer {
 public:
  Answer(size_t size, void* value, size_t* size_needed)
      : size_(size), value_(value), size_needed_(size_needed) {}

  void bytes(const void* data, size_t count) const;
  void text(const std::string& text) const { bytes(text.c_str(), text.size() + 1); }
  template <typename T>
  void operator()(const T& value) const {
    bytes(&value, sizeof value);
  }
  template <typename T>
  void list(const std::vector<T>& values) const {
    bytes(values.data(), values.size() * sizeof(T));
  }

 private:
  size_t size_;
  void* value_;
  size_t* size_needed_;
};

}  // namespace cuda_adapter

struct ur_adapter_handle_t_ : cuda_adapter::Object {
  ur_platform_handle_t platform = nullptr;
};

struct ur_platform_handle_t_ : cuda_adapter::Object {
  std::vector<std::unique_ptr<ur_device_handle_t_>> devices;
};

namespace cuda_adapter {

// A moment on a device, to which times of events are measured. The driver gives intervals as float32
// milliseconds, which are only good to 10 ns where they are short, so moments follow one another.
struct Moment {
  EventHandle event = nullptr;
  std::shared_ptr<Moment> previous;  // none once `nanoseconds` is known
  double nanoseconds = 0;
};

}  // namespace cuda_adapter

struct ur_device_handle_t_ : cuda_adapter::Object {
  cuda_adapter::DeviceOrdinal ordinal;
  std::string name;
  int compute_major, compute_minor;

  explicit ur_device_handle_t_(cuda_adapter::DeviceOrdinal ordinal);
  ~ur_device_handle_t_();

  int attribute(int number) const;
  bool has_clusters() const { return compute_major >= 9; }
  // The primary context, which PyTorch and CuPy use too. Made by the first use: it takes 0.2 s and
  // memory of the device.
  cuda_adapter::ContextHandle primary();

  // Events of the driver are reused: making one takes longer than recording it.
  cuda_adapter::EventHandle take_event(bool timed);
  void give_event(cuda_adapter::EventHandle event, bool timed);

  // A moment not long ago.
  std::shared_ptr<cuda_adapter::Moment> moment();
  // Waits for it. Nanoseconds on the clock of std::chrono::steady_clock.
  double time_of(cuda_adapter::Moment& moment);

 private:
  // With the mutex held: the time of a moment that is complete, and with it all before it.
  void resolve(cuda_adapter::Moment& moment);

  std::once_flag primary_once_;
  cuda_adapter::ContextHandle primary_ = nullptr;
  std::mutex mutex_;
  std::vector<cuda_adapter::EventHandle> events_[2];
  // Moments have a stream of their own, where they wait for no work and come one after the other.
  std::mutex moments_mutex_;
  cuda_adapter::StreamHandle moments_stream_ = nullptr;
  std::shared_ptr<cuda_adapter::Moment> moment_;
  std::chrono::steady_clock::time_point moment_time_;
};

struct ur_context_handle_t_ : cuda_adapter::Object {
  std::vector<ur_device_handle_t> devices;
  std::vector<std::pair<ur_context_extended_deleter_t, void*>> deleters;
  std::mutex mutex;

  ~ur_context_handle_t_();
  bool has(ur_device_handle_t device) const;
};

struct ur_queue_handle_t_ : cuda_adapter::Object {
  cuda_adapter::Reference<ur_context_handle_t_> context;
  ur_device_handle_t device;
  ur_queue_flags_t flags;
  bool in_order, timed;
  std::mutex mutex;

  ur_queue_handle_t_(ur_context_handle_t context, ur_device_handle_t device,
                     ur_queue_flags_t flags);
  // Of a stream that somebody else made; owned says whether it is destroyed here.
  ur_queue_handle_t_(ur_context_handle_t context, ur_device_handle_t device,
                     cuda_adapter::StreamHandle stream, bool owned);
  ~ur_queue_handle_t_();

  // With the mutex held: the stream of the next command. An out-of-order queue goes round.
  cuda_adapter::StreamHandle next_stream();
  // With the mutex held: makes all streams that next_stream may return.
  void open_streams();
  const std::vector<cuda_adapter::StreamHandle>& streams() const { return streams_; }

 private:
  size_t most_streams() const { return in_order ? 1 : 4; }
  cuda_adapter::StreamHandle new_stream() const;

  std::vector<cuda_adapter::StreamHandle> streams_;
  bool owned_ = true;
  size_t next_ = 0;
  int priority_ = 0;
};

struct ur_event_handle_t_ : cuda_adapter::Object {
  cuda_adapter::Reference<ur_queue_handle_t_> queue;
  ur_command_t command;
  cuda_adapter::StreamHandle stream;
  bool timed;
  cuda_adapter::EventHandle start = nullptr, end = nullptr;
  std::shared_ptr<cuda_adapter::Moment> moment;
  uint64_t submitted = 0;  // nanoseconds of std::chrono::steady_clock

  // Takes its events; `start` is recorded.
  ur_event_handle_t_(ur_queue_handle_t queue, ur_command_t command,
                     cuda_adapter::StreamHandle stream, bool timed);
  ~ur_event_handle_t_();
};

struct ur_program_handle_t_ : cuda_adapter::Object {
  cuda_adapter::Reference<ur_context_handle_t_> context;
  ur_device_handle_t device;
  std::string binary;                                                 // PTX or a cubin
  std::map<std::string, std::array<size_t, 3>> work_group_sizes;      // required, by kernel
  std::map<std::string, std::array<size_t, 3>> max_work_group_sizes;  // by kernel
  std::map<std::string, size_t> max_linear_sizes;                     // by kernel
  std::map<std::string, std::string> globals;  // names in the binary, by their unique id
  ur_program_build_status_t status = UR_PROGRAM_BUILD_STATUS_NONE;
  ur_program_binary_type_t type = UR_PROGRAM_BINARY_TYPE_NONE;
  std::string options, log;
  cuda_adapter::ModuleHandle module = nullptr;

  ur_program_handle_t_(ur_context_handle_t context, ur_device_handle_t device)
      : context(context), device(device) {}
  ~ur_program_handle_t_();
};

struct ur_kernel_handle_t_ : cuda_adapter::Object {
  cuda_adapter::Reference<ur_program_handle_t_> program;
  std::string name;
  cuda_adapter::FunctionHandle function = nullptr;
  // The variant that takes a global offset; null where the kernel has none.
  cuda_adapter::FunctionHandle with_offset = nullptr;
  std::array<size_t, 3> work_group_size{};  // required; zeros for any
  std::array<size_t, 3> max_work_group_size{};
  size_t max_linear_size = 0;
  int static_local_bytes = 0;
  std::atomic<int> dynamic_local_limit{48 * 1024};

  ur_kernel_handle_t_(ur_program_handle_t program, const char* name);
  int attribute(int number) const;
};

namespace cuda_adapter {

// Makes the device's primary context current for a while, where it is not already.
class Current {
 public:
  explicit Current(ur_device_handle_t device);
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current();

 private:
  bool pushed_ = false;
};

}  // namespace cuda_adapter
