// In-order queues, their registry, and the events of the operations in them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <sycl/sycl.hpp>
#include <vector>

#include "runtime/device.hpp"
#include "runtime/dtype.hpp"
#include "runtime/refcount.hpp"

// Asynchronous errors of a queue, collected by its handler until somebody waits.
namespace funlib {
class AsyncErrors {
 public:
  void add(sycl::exception_list list);
  // Text of the errors so far, which are then forgotten; "" if none.
  std::string take();

 private:
  std::mutex mutex_;
  std::string text_;
};
}  // namespace funlib

struct funlib_queue : funlib::RefCounted {
  funlib_queue(std::string name, funlib::Device& device, bool profiling);

  // Throws if an asynchronous error is pending. `what` names the operation for the message.
  void rethrow_async_errors(const std::string& what);
  void wait();

  const std::string name;
  funlib::Device& device;
  const bool profiling;
  const uint64_t id;  // never used twice in a process
  const std::shared_ptr<funlib::AsyncErrors> errors;
  sycl::queue handle;
};

namespace funlib {

using Queue = ::funlib_queue;

// What an operation was, kept as parts: most labels are never read.
struct Label {
  const char* operation = "";
  const char* dtype = "";
  int64_t extents[FUNLIB_MAX_DIMS] = {};
  int64_t extent_count = 0;

  std::string text() const;
};

Ref<Queue> get_queue(const char* name);

}  // namespace funlib

struct funlib_event : funlib::RefCounted {
  funlib_event(funlib::Ref<funlib::Queue> queue, funlib::Label label,
               std::vector<sycl::event> earlier, sycl::event last, bool submitted)
      : queue(std::move(queue)),
        label(label),
        earlier(std::move(earlier)),
        last(std::move(last)),
        submitted(submitted) {}

  void wait();
  bool is_complete();
  funlib_event_times times();
  const char* label_text();

  const funlib::Ref<funlib::Queue> queue;
  const funlib::Label label;
  std::vector<sycl::event> earlier;  // commands of the operation before the last
  sycl::event last;
  const bool submitted;  // false: an empty operation, done from the start

 private:
  std::once_flag text_once_;
  std::string text_;
};

namespace funlib {
using Event = ::funlib_event;
}
