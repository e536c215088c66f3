// Copies from global to local memory that go on while the work-item does something else.
//
//     copy_to_local<16>(to, from);     // any number of these
//     commit_copies();                 // together they are a group
//     ..
//     wait_for_copies<1>();            // all groups but the last one have arrived
//     barrier<2>();                    // and those of the other work-items
//
// On NVIDIA from compute capability 8.0 on this is cp.async, which needs no registers for what is on its
// way. Elsewhere a copy is done at once.
#pragma once

#include "funlib_device.hpp"

namespace funlib {

#if defined(__NVPTX__) && __SYCL_CUDA_ARCH__ >= 800

// An address in local memory, to which bytes can be added.
using LocalAddress = unsigned;

inline LocalAddress local_address(void* pointer) {
  LocalAddress address;
  asm("{ .reg .u64 local; cvta.to.shared.u64 local, %1; cvt.u32.u64 %0, local; }"
      : "=r"(address)
      : "l"(pointer));
  return address;
}

// Bytes: 4, 8 or 16, to and from multiples of it.
template <int Bytes>
inline void copy_to_local(LocalAddress to, const void* from) {
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(Bytes)
                 : "memory");
}
// Zeros if there is nothing: `from` is not read then.
template <int Bytes>
inline void copy_to_local(LocalAddress to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Bytes),
               "r"(there ? Bytes : 0)
               : "memory");
}
inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Groups>
inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

#else

using LocalAddress = char*;

inline LocalAddress local_address(void* pointer) { return static_cast<char*>(pointer); }

template <int Bytes>
inline void copy_to_local(LocalAddress to, const void* from, bool there = true) {
  using Words = unsigned __attribute__((ext_vector_type(Bytes / 4)));
  *reinterpret_cast<Words*>(to) = there ? *static_cast<const Words*>(from) : Words(0u);
}
inline void commit_copies() {}
template <int Groups>
inline void wait_for_copies() {}

#endif

}  // namespace funlib
