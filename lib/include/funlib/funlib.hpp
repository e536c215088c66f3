// funlib for C++: a thin face over the C interface (funlib.h). Objects own a reference and release it;
// a status other than success becomes an exception. Header only, C++17.
//
//     funlib::Queue queue = funlib::register_queue("work", {"cpu"});
//     funlib::Tensor<float> A({M, K}, queue), B({K, N}, queue);
//     A.copy_from(a).wait();
//     B.copy_from(b).wait();
//     funlib::Tensor<float> C = funlib::gemm_tiled(A, B);
//     std::vector<float> c = C.to_host();
#ifndef FUNLIB_FUNLIB_HPP
#define FUNLIB_FUNLIB_HPP

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "funlib.h"

namespace funlib {

class Exception : public std::runtime_error {
 public:
  Exception(funlib_status status, const char* text) : std::runtime_error(text), status_(status) {}
  funlib_status status() const noexcept { return status_; }

 private:
  funlib_status status_;
};

inline void check(funlib_status status) {
  if (status != FUNLIB_SUCCESS) throw Exception(status, funlib_last_error());
}

namespace detail {

// Owns one reference to a handle.
template <typename Handle, funlib_status (*Retain)(Handle*), void (*Release)(Handle*)>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle* handle) noexcept : handle_(handle) {}
  Owner(const Owner& other) : handle_(other.handle_) {
    if (handle_ != nullptr) check(Retain(handle_));
  }
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owner() { Release(handle_); }
  Handle* get() const noexcept { return handle_; }

 private:
  Handle* handle_ = nullptr;
};

template <typename T>
struct DtypeOf;
template <>
struct DtypeOf<float> {
  static constexpr funlib_dtype value = FUNLIB_FLOAT32;
};
template <>
struct DtypeOf<double> {
  static constexpr funlib_dtype value = FUNLIB_FLOAT64;
};
template <>
struct DtypeOf<std::int32_t> {
  static constexpr funlib_dtype value = FUNLIB_INT32;
};

}  // namespace detail

class Event {
 public:
  Event() = default;
  explicit Event(funlib_event* handle) : owner_(handle) {}  // takes the reference over

  void wait() const { check(funlib_event_wait(owner_.get())); }
  bool is_complete() const {
    std::int32_t complete = 0;
    check(funlib_event_is_complete(owner_.get(), &complete));
    return complete != 0;
  }
  funlib_event_times times() const {
    funlib_event_times times;
    check(funlib_event_get_times(owner_.get(), &times));
    return times;
  }
  funlib_event* handle() const noexcept { return owner_.get(); }

 private:
  detail::Owner<funlib_event, funlib_event_retain, funlib_event_release> owner_;
};

class Queue {
 public:
  Queue() = default;  // no queue: functions that take it mean the default queue
  explicit Queue(funlib_queue* handle) : owner_(handle) {}  // takes the reference over

  void wait() const { check(funlib_queue_wait(owner_.get())); }
  funlib_device_info device() const {
    funlib_queue_info info;
    funlib_device_info device;
    check(funlib_queue_get_info(owner_.get(), &info));
    check(funlib_device_get_info(info.device, &device));
    return device;
  }
  funlib_queue* handle() const noexcept { return owner_.get(); }

 private:
  detail::Owner<funlib_queue, funlib_queue_retain, funlib_queue_release> owner_;
};

struct QueueOptions {
  std::string device = "any";  // "gpu", "cpu", "accelerator", "any"
  std::string vendor = "any";
  std::string backend = "any";
  bool profiling = true;
  int64_t index = -1;  // of one device, as funlib_device_get_info counts; -1 leaves it open
};

inline Queue register_queue(const std::string& name, const QueueOptions& options = {}) {
  const funlib_queue_options plain{options.device.c_str(), options.vendor.c_str(),
                                   options.backend.c_str(), options.profiling ? 1 : 0,
                                   options.index >= 0 ? &options.index : nullptr};
  funlib_queue* handle = nullptr;
  check(funlib_queue_register(name.c_str(), &plain, &handle));
  return Queue(handle);
}

inline Queue get_queue(const std::string& name = "default") {
  funlib_queue* handle = nullptr;
  check(funlib_queue_get(name.c_str(), &handle));
  return Queue(handle);
}

inline void unregister_queue(const std::string& name) {
  check(funlib_queue_unregister(name.c_str()));
}

template <typename T>
class Tensor {
 public:
  explicit Tensor(funlib_tensor* handle) : owner_(handle) {}  // takes the reference over

  // C-contiguous, contents undefined.
  explicit Tensor(const std::vector<std::int64_t>& shape, const Queue& queue = {}) {
    funlib_tensor* handle = nullptr;
    check(funlib_tensor_create(queue.handle(), detail::DtypeOf<T>::value,
                               std::int64_t(shape.size()), shape.data(), &handle));
    owner_ = Owner(handle);
  }

  // The host memory must stay as it is until the event is complete.
  Event copy_from(const std::vector<T>& host) { return copy_from(host.data(), host.size()); }
  Event copy_from(const T* host, std::size_t count) {
    funlib_event* event = nullptr;
    check(
        funlib_tensor_copy_from_host(owner_.get(), host, std::int64_t(count * sizeof(T)), &event));
    return Event(event);
  }
  Event copy_to(T* host, std::size_t count) const {
    funlib_event* event = nullptr;
    check(funlib_tensor_copy_to_host(owner_.get(), host, std::int64_t(count * sizeof(T)), &event));
    return Event(event);
  }
  std::vector<T> to_host() const {
    std::vector<T> host(std::size_t(info().size));
    copy_to(host.data(), host.size()).wait();
    return host;
  }
  Event fill(T value) {
    funlib_event* event = nullptr;
    check(funlib_tensor_fill(owner_.get(), &value, &event));
    return Event(event);
  }

  Tensor transposed() const {
    funlib_tensor* handle = nullptr;
    check(funlib_tensor_transpose(owner_.get(), nullptr, &handle));
    return Tensor(handle);
  }

  std::vector<std::int64_t> shape() const {
    const funlib_tensor_info all = info();
    return std::vector<std::int64_t>(all.shape, all.shape + all.ndim);
  }
  funlib_tensor_info info() const {
    funlib_tensor_info all;
    check(funlib_tensor_get_info(owner_.get(), &all));
    return all;
  }
  // The last operation that wrote the tensor's memory; none for a new tensor.
  Event event() const {
    funlib_event* handle = nullptr;
    check(funlib_tensor_get_event(owner_.get(), &handle));
    return Event(handle);
  }
  funlib_tensor* handle() const noexcept { return owner_.get(); }

 private:
  using Owner = detail::Owner<funlib_tensor, funlib_tensor_retain, funlib_tensor_release>;
  Owner owner_;
};

struct GemmOptions {
  double alpha = 1;
  double beta = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  const char* kernel = nullptr;  // a name of the registry; nullptr: chosen by device and shape
};

namespace detail {
inline funlib_gemm_options plain(const GemmOptions& options) {
  funlib_gemm_options all;
  check(funlib_gemm_options_init(&all));
  all.alpha = options.alpha;
  all.beta = options.beta;
  all.transpose_a = options.transpose_a ? 1 : 0;
  all.transpose_b = options.transpose_b ? 1 : 0;
  all.kernel = options.kernel;
  return all;
}
}  // namespace detail

// alpha * op(A) @ op(B), on the queue of A.
template <typename T>
Tensor<T> gemm(const Tensor<T>& a, const Tensor<T>& b, const GemmOptions& options = {}) {
  const funlib_gemm_options all = detail::plain(options);
  funlib_tensor* c = nullptr;
  check(funlib_gemm(a.handle(), b.handle(), &all, &c, nullptr));
  return Tensor<T>(c);
}

// C = alpha * op(A) @ op(B) + beta * C.
template <typename T>
Event gemm_into(Tensor<T>& c, const Tensor<T>& a, const Tensor<T>& b,
                const GemmOptions& options = {}) {
  const funlib_gemm_options all = detail::plain(options);
  funlib_tensor* target = c.handle();
  funlib_event* event = nullptr;
  check(funlib_gemm(a.handle(), b.handle(), &all, &target, &event));
  return Event(event);
}

// The first rungs of the ladder by name; GemmOptions::kernel takes any name of the registry.
#define FUNLIB_NAMED_GEMM(name)                                                      \
  template <typename T>                                                              \
  Tensor<T> name(const Tensor<T>& a, const Tensor<T>& b, GemmOptions options = {}) { \
    options.kernel = #name;                                                          \
    return gemm(a, b, options);                                                      \
  }
FUNLIB_NAMED_GEMM(gemm_tiled)
FUNLIB_NAMED_GEMM(gemm_blocked2x2)
FUNLIB_NAMED_GEMM(gemm_tiled_blocked2x2)
#undef FUNLIB_NAMED_GEMM

}  // namespace funlib

#endif
