// Sub-groups: the work-items that run as the lanes of one vector or warp.
//
// A kernel that exchanges values within them fixes their size and makes it the extent of the last
// dimension, so that local_id<2>(1) is the lane:
//
//     FUNLIB_KERNEL(2, groups, size) FUNLIB_SUB_GROUP_SIZE(size) void name(arguments) { ... }
#pragma once

#include <sycl/group_algorithm.hpp>

#include "funlib_device.hpp"

namespace funlib {

// The value that `lane` holds. All lanes call it together, with the same lane.
template <typename Value>
inline Value value_of_lane(Value value, int lane) {
  return sycl::select_from_group(sycl::ext::oneapi::this_work_item::get_sub_group(), value,
                                 sycl::id<1>(size_t(lane)));
}

// The sum over the lanes, told to all of them. All lanes call it together.
template <typename Value>
inline Value sum_of_lanes(Value value) {
  return sycl::reduce_over_group(sycl::ext::oneapi::this_work_item::get_sub_group(), value,
                                 sycl::plus<Value>());
}

// What the lane whose number differs in the bits of `distance` holds, a vector. All lanes call it together.
template <typename Vector>
inline Vector value_across(Vector value, int distance) {
  constexpr int elements = sizeof value / sizeof value[0];
#pragma unroll
  for (int e = 0; e < elements; ++e)
    value[e] = sycl::permute_group_by_xor(sycl::ext::oneapi::this_work_item::get_sub_group(),
                                          value[e], sycl::id<1>(size_t(distance)));
  return value;
}

// Adds up what lanes hold that are Distance, half of it, .. Least apart, Count vectors: each time, a lane
// gives half of them away. Writes sum n to to[n * pitch]. (Lanes that share the last sum write the same
// there.) All lanes call it together.
template <int Distance, int Least, int Count, typename Vector, int All>
FUNLIB_INLINE inline void meet(Vector (&sum)[All], int lane, Vector* to, int pitch) {
  if constexpr (Distance < Least) {
#pragma unroll
    for (int n = 0; n < Count; ++n) to[n * pitch] = sum[n];
  } else {
    constexpr int half = (Count + 1) / 2;
    const bool upper = Count > 1 && (lane & Distance) != 0;
#pragma unroll
    for (int n = 0; n < half; ++n) {
      const Vector low = sum[n], high = sum[Count - half + n];
      sum[n] = (upper ? high : low) + value_across(upper ? low : high, Distance);
    }
    meet<Distance / 2, Least, half>(sum, lane, to + (upper ? half * pitch : 0), pitch);
  }
}

// Waits for the sub-group and makes its local memory writes visible to it.
inline void sub_group_barrier() {
#if defined(__NVPTX__)
  asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");  // the runtime's is a call
#else
  sycl::group_barrier(sycl::ext::oneapi::this_work_item::get_sub_group());
#endif
}

}  // namespace funlib
