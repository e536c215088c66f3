// Tensors: strided views of shared allocations, and the operations that keep track of who uses them.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/queue.hpp"

namespace funlib {

// A device allocation shared by the tensors that view it.
class Storage : public RefCounted {
 public:
  Storage(Ref<Queue> queue, size_t bytes);
  ~Storage() override;

  void* data() const noexcept { return block_.data; }
  size_t bytes() const noexcept { return bytes_; }
  Device& device() const noexcept { return queue_->device; }

  // Throws FUNLIB_ERROR_BUSY if an open mapping forbids the access.
  void check_access(bool writes);
  // Adds the operations that an access from `queue` has to wait for.
  void add_dependencies(const Queue& queue, bool writes, std::vector<sycl::event>& events);
  void record(const Queue& queue, bool writes, const Ref<Event>& event);
  Ref<Event> last_write();
  // Waits for every operation on the allocation.
  void wait();

  void open_mapping(bool writes, void* data, void* staging);
  struct Mapping {
    bool writes;
    void* data;
    void* staging;  // null when data is the allocation itself
  };
  Mapping close_mapping(void* data);

 private:
  void check_access_locked(bool writes) const;

  const Ref<Queue> queue_;
  const size_t bytes_;
  Block block_;
  std::mutex mutex_;
  Ref<Event> last_write_;
  std::vector<Mapping> mappings_;
};

}  // namespace funlib

struct funlib_tensor : funlib::RefCounted {
  funlib::Ref<funlib::Queue> queue;
  funlib::Ref<funlib::Storage> storage;
  funlib_dtype dtype = FUNLIB_FLOAT32;
  int64_t ndim = 0;
  int64_t shape[FUNLIB_MAX_DIMS] = {};
  int64_t strides[FUNLIB_MAX_DIMS] = {};  // elements
  int64_t offset = 0;                     // elements from the start of the storage
  int64_t size = 1;
  bool contiguous = true;

  const funlib::Dtype& type() const { return funlib::dtypes[dtype]; }
  int64_t nbytes() const { return size * type().itemsize; }
  void* data() const;
  // Sets size and contiguous from shape and strides.
  void summarise();
  std::string shape_text() const;
};

namespace funlib {

using Tensor = ::funlib_tensor;

Ref<Tensor> create_tensor(Ref<Queue> queue, funlib_dtype dtype, int64_t ndim, const int64_t* shape);
// Address range [first, last) of the elements; both null when empty.
std::pair<const char*, const char*> extent(const Tensor& tensor);
// Whether two tensors may share an element. Never misses one; resolves interleaved rows exactly.
bool may_overlap(const Tensor& a, const Tensor& b);

// One operation in a queue: checks access, waits for other queues, and leaves its event with the
// allocations that it used, whatever happens in between.
class Operation {
 public:
  Operation(Ref<Queue> queue, const Label& label);
  Operation(const Operation&) = delete;
  ~Operation();

  // Declare all accesses before the first command. `name` is the argument's name for messages.
  void reads(const Tensor& tensor, const char* name) { access(tensor, name, false); }
  void writes(const Tensor& tensor, const char* name) { access(tensor, name, true); }
  // Memory for the operation alone.
  Ref<Storage> workspace(size_t bytes);

  // Submits one command: `fill` gets the sycl::handler.
  template <typename Fill>
  void submit(Fill&& fill) {
    sycl::event event = queue_->handle.submit([&](sycl::handler& handler) {
      handler.depends_on(dependencies_);
      fill(handler);
    });
    dependencies_.clear();
    if (submitted_) earlier_.push_back(std::move(last_));
    last_ = std::move(event);
    submitted_ = true;
  }

  Device& device() const noexcept { return queue_->device; }
  const Ref<Queue>& queue() const noexcept { return queue_; }
  Ref<Event> finish();

 private:
  void access(const Tensor& tensor, const char* name, bool writes);
  struct Access {
    Ref<Storage> storage;
    bool writes;
  };
  const Ref<Queue> queue_;
  const Label label_;
  std::vector<Access> accesses_;
  std::vector<sycl::event> dependencies_, earlier_;
  sycl::event last_;
  bool submitted_ = false, finished_ = false;
};

// Copies element by element between views of one shape and item size. The caller has declared the
// accesses.
void copy_elements(Operation& operation, int64_t ndim, const int64_t* shape, int64_t itemsize,
                   void* destination, const int64_t* destination_strides, const void* source,
                   const int64_t* source_strides);

// C-order strides of a shape.
void contiguous_strides(int64_t ndim, const int64_t* shape, int64_t* strides);

}  // namespace funlib
