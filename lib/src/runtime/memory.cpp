#include "runtime/memory.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "runtime/device.hpp"

namespace funlib {
namespace {

constexpr size_t alignment = 256;
constexpr size_t huge_page = size_t(2) << 20;
// A cached block serves a request that leaves at most a quarter of it unused.
constexpr size_t slack(size_t bytes) { return bytes + bytes / 4; }

// Four sizes to a power of two up to 1 MiB, then multiples of 64 KiB: few distinct sizes, so that
// blocks find a second use, and little waste for large ones.
size_t rounded(size_t bytes) {
  constexpr size_t small_limit = size_t(1) << 20;
  size_t step = alignment;
  if (bytes > small_limit) {
    step = size_t(64) << 10;
  } else {
    while (step * 8 < bytes) step *= 2;
  }
  return (bytes + step - 1) / step * step;
}

}  // namespace

void drop_finished(std::vector<Use>& uses) {
  const auto finished = [](const Use& use) {
    return use.event.get_info<sycl::info::event::command_execution_status>() ==
           sycl::info::event_command_status::complete;
  };
  uses.erase(std::remove_if(uses.begin(), uses.end(), finished), uses.end());
}

int64_t Pool::free_bytes() {
  if (device_.handle().has(sycl::aspect::ext_intel_free_memory))
    return int64_t(device_.handle().get_info<sycl::ext::intel::info::device::free_memory>());
  return std::max<int64_t>(
      0, device_.info().global_memory_bytes - int64_t(live_bytes_ + cached_bytes_));
}

void* Pool::driver_allocate(size_t bytes) {
  const auto kind =
      device_.info().host_accessible ? sycl::usm::alloc::shared : sycl::usm::alloc::device;
  // A CPU walks through large matrices by rows and columns: with pages of 4 KiB that costs it 2 to 4 %
  // of a GEMM's time in address translation.
  const bool huge = device_.info().type == std::string("cpu") && bytes >= huge_page;
  try {
    void* data = sycl::aligned_alloc(huge ? huge_page : alignment, bytes, device_.handle(),
                                     device_.context(), kind);
    if (huge && data != nullptr) madvise(data, bytes, MADV_HUGEPAGE);
    return data;
  } catch (const sycl::exception& error) {
    if (error.code() != sycl::errc::memory_allocation) throw;
    return nullptr;
  }
}

void Pool::driver_free(Block& block) noexcept {
  try {
    for (auto& use : block.uses) use.event.wait();
    sycl::free(block.data, device_.context());
  } catch (const sycl::exception&) {
    // A device that is lost has nothing to give back; its error surfaced at the operation's wait.
  }
}

size_t Pool::trim_locked(size_t keep) noexcept {
  size_t freed = 0;
  while (cached_bytes_ > keep && !cached_.empty()) {
    const auto largest = std::prev(cached_.end());
    driver_free(largest->second);
    cached_bytes_ -= largest->first;
    freed += largest->first;
    cached_.erase(largest);
  }
  return freed;
}

Block Pool::allocate(size_t bytes) {
  if (bytes == 0) return {};
  const size_t total = size_t(device_.info().global_memory_bytes);
  if (bytes > size_t(device_.info().max_allocation_bytes))
    fail(FUNLIB_ERROR_OUT_OF_MEMORY, "out of memory on ", device_.info().name, ": requested ",
         bytes, " bytes; one allocation holds at most ", device_.info().max_allocation_bytes,
         " bytes there, free ", info().free_bytes);
  std::lock_guard<std::mutex> lock(mutex_);
  ++allocations_;
  const size_t size = bytes > total ? bytes : rounded(bytes);
  const auto fit = cached_.lower_bound(size);
  if (fit != cached_.end() && fit->first <= slack(size)) {
    Block block = std::move(fit->second);
    cached_bytes_ -= fit->first;
    live_bytes_ += fit->first;
    cached_.erase(fit);
    drop_finished(block.uses);
    return block;
  }
  // The CPU device promises more than the machine has and is killed when the pages are touched, so
  // what can't fit is refused here.
  const auto fits = [&] { return size <= total && live_bytes_ + cached_bytes_ <= total - size; };
  if (!fits()) trim_locked(size > total || live_bytes_ > total - size ? cached_bytes_ : 0);
  void* data = nullptr;
  if (fits()) {
    ++driver_allocations_;
    data = driver_allocate(size);
    if (data == nullptr && !cached_.empty()) {
      trim_locked(0);
      data = driver_allocate(size);
    }
  }
  if (data == nullptr)
    fail(FUNLIB_ERROR_OUT_OF_MEMORY, "out of memory on ", device_.info().name, ": requested ",
         bytes, " bytes, free ", free_bytes() + int64_t(cached_bytes_), " bytes of ", total);
  live_bytes_ += size;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_ + cached_bytes_);
  Block block;
  block.data = data;
  block.size = size;
  return block;
}

void Pool::give_back(Block&& block) noexcept {
  if (block.data == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t size = block.size;
  live_bytes_ -= size;
  try {
    cached_.emplace(size, std::move(block));
    cached_bytes_ += size;
  } catch (const std::bad_alloc&) {
    driver_free(block);
  }
  // A process that once used much does not keep it all.
  trim_locked(size_t(device_.info().global_memory_bytes) / 4);
}

size_t Pool::trim() {
  std::lock_guard<std::mutex> lock(mutex_);
  return trim_locked(0);
}

funlib_memory_info Pool::info() {
  std::lock_guard<std::mutex> lock(mutex_);
  funlib_memory_info info{};
  info.live_bytes = int64_t(live_bytes_);
  info.cached_bytes = int64_t(cached_bytes_);
  info.peak_bytes = int64_t(peak_bytes_);
  info.allocations = allocations_;
  info.driver_allocations = driver_allocations_;
  info.free_bytes = free_bytes();
  return info;
}

void* StagingPool::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = cached_.find(rounded(bytes));
    if (found != cached_.end()) {
      void* const data = found->second;
      cached_bytes_ -= found->first;
      cached_.erase(found);
      return data;
    }
  }
  void* const data = sycl::malloc_host(rounded(bytes), device_.context());
  if (data == nullptr)
    fail(FUNLIB_ERROR_OUT_OF_MEMORY, "no pinned host memory for a staging buffer of ", bytes,
         " bytes");
  return data;
}

void StagingPool::give_back(void* data, size_t bytes) noexcept {
  constexpr size_t most_cached = size_t(64) << 20;
  if (data == nullptr) return;
  const size_t size = rounded(bytes);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (cached_bytes_ + size <= most_cached) {
      try {
        cached_.emplace(size, data);
        cached_bytes_ += size;
        return;
      } catch (const std::bad_alloc&) {
      }
    }
  }
  driver_free(data);
}

void StagingPool::trim() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [size, data] : cached_) driver_free(data);
  cached_.clear();
  cached_bytes_ = 0;
}

void StagingPool::driver_free(void* data) noexcept {
  try {
    sycl::free(data, device_.context());
  } catch (const sycl::exception&) {
    // As in Pool::driver_free.
  }
}

}  // namespace funlib
