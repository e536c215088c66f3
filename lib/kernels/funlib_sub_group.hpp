// Sub-groups: the work-items that run as the lanes of one vector or warp.
//
// A kernel that exchanges values within them fixes their size, so that loops over lanes are unrolled:
//
//     FUNLIB_KERNEL(2, groups, size) FUNLIB_SUB_GROUP_SIZE(size) void name(arguments) { ... }
//
// With the sub-group's size as the extent of the last dimension, local_id<2>(1) is the lane.
#pragma once

#include <sycl/group_algorithm.hpp>

#include "funlib_device.hpp"

#define FUNLIB_SUB_GROUP_SIZE(size) \
  SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::sub_group_size<size>))

namespace funlib {

// The value that `lane` holds. All lanes call it together, with the same lane.
template <typename Value>
inline Value value_of_lane(Value value, int lane) {
  return sycl::select_from_group(sycl::ext::oneapi::this_work_item::get_sub_group(), value,
                                 sycl::id<1>(size_t(lane)));
}

}  // namespace funlib
