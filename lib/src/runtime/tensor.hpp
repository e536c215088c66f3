// Tensors: strided views of shared allocations, and the operations that keep track of who uses them.
#pragma once

#include <functional>
#include <vector>

#include "runtime/queue.hpp"

struct funlib_tensor;

namespace funlib {

using Tensor = ::funlib_tensor;

// A device allocation shared by the tensors that view it. What changes after construction is guarded
// by the device's submission lock: whoever checks, submits and records does it under one hold of it.
class Storage : public RefCounted {
 public:
  Storage(Ref<Queue> queue, size_t bytes);
  ~Storage() override;

  void* data() const noexcept { return block_.data; }
  size_t bytes() const noexcept { return bytes_; }

  // Throws FUNLIB_ERROR_BUSY if an open mapping forbids the access.
  void check_access(bool writes) const;
  // Adds the operations that an access from `queue` has to wait for.
  void add_dependencies(const Queue& queue, bool writes, std::vector<sycl::event>& events);
  void record(const Queue& queue, bool writes, const Ref<Event>& event);
  Ref<Event> last_write() const { return last_write_; }
  std::vector<sycl::event> events() const;

  // A host view of one tensor, which it keeps alive.
  struct Mapping {
    bool writes;
    void* data;
    bool staged;  // data is a buffer of its own, not the allocation
    Ref<Tensor> tensor;
  };
  void open_mapping(Mapping mapping);
  const Mapping& find_mapping(void* data) const;
  Mapping close_mapping(void* data);

 private:
  const Ref<Queue> queue_;
  const size_t bytes_;
  Block block_;
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

Ref<Tensor> create_tensor(Ref<Queue> queue, funlib_dtype dtype, int64_t ndim, const int64_t* shape);
// Whether two tensors may share an element. Never misses one; exact for matrices whose rows (or
// columns) are contiguous and equally far apart, such as blocks of one matrix.
bool may_overlap(const Tensor& a, const Tensor& b);
// Throws unless each element of a tensor that is to be written has an address of its own.
void check_writable(const Tensor& tensor, const char* name);
// Throws if the queue's device can't reach the tensor. `name` is the argument's name for the message.
void check_reach(const Queue& queue, const Tensor& tensor, const char* name);

// One operation in a queue. It is composed first, which may compile kernels and allocate, and then
// submitted as a whole by finish(): access checks, dependencies, commands and records form one step
// that no other operation, mapping or queue of the device can come between.
class Operation {
 public:
  Operation(Ref<Queue> queue, const Label& label);

  // `name` is the argument's name for messages.
  void reads(const Tensor& tensor, const char* name) { access(tensor, name, false); }
  void writes(const Tensor& tensor, const char* name) { access(tensor, name, true); }
  // Lets the operation pass the mapping that it serves.
  void serve_mapping() { serves_mapping_ = true; }
  // Memory for the operation alone.
  Ref<Storage> workspace(size_t bytes);
  // Adds a command; whatever it refers to must live until finish() returns.
  void add(std::function<void(sycl::handler&)> command);
  // Adds a copy of contiguous bytes.
  void add_copy(void* target, const void* source, size_t bytes);

  Device& device() const noexcept { return queue_->device; }
  // Submits. Without commands nothing is recorded, and the event is complete from the start.
  Ref<Event> finish();

 private:
  void access(const Tensor& tensor, const char* name, bool writes);
  struct Access {
    Ref<Storage> storage;
    bool writes;
  };
  const Ref<Queue> queue_;
  const Label label_;
  bool serves_mapping_ = false;
  std::vector<Access> accesses_;
  // Submit a command that waits for the given events.
  using Command = std::function<sycl::event(sycl::queue&, const std::vector<sycl::event>&)>;
  std::vector<Command> commands_;
};

// Copies element by element between views of one shape and item size. The caller has declared the
// accesses.
void copy_elements(Operation& operation, int64_t ndim, const int64_t* shape, int64_t itemsize,
                   void* destination, const int64_t* destination_strides, const void* source,
                   const int64_t* source_strides);

// C-order strides of a shape.
void contiguous_strides(int64_t ndim, const int64_t* shape, int64_t* strides);

}  // namespace funlib
