// A caching allocator of USM memory, one a device.
//
// Blocks go back to the pool when their last tensor is gone, together with the operations that may
// still be in flight on them. Whoever takes a block out again inherits these as dependencies, so
// that reuse never waits on the host and memory is never handed to the driver under a running
// kernel.
#pragma once

#include <map>
#include <mutex>
#include <sycl/sycl.hpp>
#include <vector>

#include "runtime/error.hpp"

namespace funlib {

class Device;

// An operation in flight on a block: the last of its kind in its queue.
struct Use {
  uint64_t queue_id;
  bool writes;
  sycl::event event;
};

// Forgets the operations that are done: those of queues long gone would be carried along for ever.
void drop_finished(std::vector<Use>& uses);

struct Block {
  void* data = nullptr;
  size_t size = 0;  // bytes
  std::vector<Use> uses;
};

class Pool {
 public:
  explicit Pool(Device& device) : device_(device) {}

  // At least `bytes` bytes; no memory for 0. Throws FUNLIB_ERROR_OUT_OF_MEMORY.
  Block allocate(size_t bytes);
  void give_back(Block&& block) noexcept;
  // Frees cached blocks; returns the bytes freed.
  size_t trim();
  funlib_memory_info info();

 private:
  void* driver_allocate(size_t bytes);
  void driver_free(Block& block) noexcept;
  int64_t free_bytes();  // with the lock held
  size_t trim_locked(size_t keep) noexcept;

  Device& device_;
  std::mutex mutex_;
  std::multimap<size_t, Block> cached_;
  size_t live_bytes_ = 0, cached_bytes_ = 0, peak_bytes_ = 0;
  int64_t allocations_ = 0, driver_allocations_ = 0;
};

// Pinned host memory, for views of tensors that the host can't reach. Pinning takes longer than copying
// what most views hold, so some of it is kept.
class StagingPool {
 public:
  explicit StagingPool(Device& device) : device_(device) {}

  // At least `bytes` bytes; no memory for 0. Throws FUNLIB_ERROR_OUT_OF_MEMORY.
  void* allocate(size_t bytes);
  // bytes: as it was asked for.
  void give_back(void* data, size_t bytes) noexcept;
  void trim() noexcept;

 private:
  void driver_free(void* data) noexcept;

  Device& device_;
  std::mutex mutex_;
  std::multimap<size_t, void*> cached_;
  size_t cached_bytes_ = 0;
};

}  // namespace funlib
