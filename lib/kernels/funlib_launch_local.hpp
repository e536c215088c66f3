// Local memory of a size that the launch says, a kernel's last argument. On NVIDIA, variables of a fixed size
// (FUNLIB_LOCAL) end at 48 KiB; elsewhere they may be as large as local memory is.
#pragma once

#include "funlib_device.hpp"

#if defined(__NVPTX__)

#include <sycl/ext/oneapi/experimental/work_group_memory.hpp>

namespace funlib {

using LocalMemory = sycl::ext::oneapi::experimental::work_group_memory<unsigned char[]>;

// Its first address that is a multiple of `alignment`.
inline unsigned local_address(const LocalMemory& memory, unsigned alignment) {
  uint64 first;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(first) : "l"(&memory));
  return (unsigned(first) + alignment - 1) / alignment * alignment;
}

}  // namespace funlib

#endif
