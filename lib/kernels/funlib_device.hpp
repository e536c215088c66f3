// What a kernel needs of the device, spelled the same for every backend.
//
// A kernel is a free function without a namespace:
//
//     FUNLIB_KERNEL(2, 16, 16) void name(arguments) { ... }     // 2 dimensions, work-groups 16 x 16
//
// The last dimension runs fastest. Local memory is a FUNLIB_LOCAL(type[rows][columns]) variable at
// the top of the kernel: of the ways that SYCL offers it is one that works in every run-time
// compiler. Only these small headers are included: parsing <sycl/sycl.hpp> takes seconds.
#pragma once

#include <sycl/ext/oneapi/experimental/free_function_traits.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/kernel_properties/properties.hpp>
#include <sycl/ext/oneapi/work_group_static.hpp>
#include <sycl/group_barrier.hpp>

// extern "C" keeps the name findable in a compiled image.
#define FUNLIB_KERNEL(dimensions, ...)                                \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(                       \
      (sycl::ext::oneapi::experimental::nd_range_kernel<dimensions>)) \
      SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(                              \
          (sycl::ext::oneapi::experimental::work_group_size<__VA_ARGS__>))

// Fixes the size of the sub-groups, after FUNLIB_KERNEL. Small ones leave more registers to each
// work-item.
#define FUNLIB_SUB_GROUP_SIZE(size) \
  SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::sub_group_size<size>))

#define FUNLIB_LOCAL(...) sycl::ext::oneapi::experimental::work_group_static<__VA_ARGS__>

namespace funlib {

using int64 = long long;
using uint64 = unsigned long long;

template <int Dimensions>
inline int64 group_id(int dimension) {
  return sycl::ext::oneapi::this_work_item::get_nd_item<Dimensions>().get_group(dimension);
}
template <int Dimensions>
inline int local_id(int dimension) {
  return int(sycl::ext::oneapi::this_work_item::get_nd_item<Dimensions>().get_local_id(dimension));
}
template <int Dimensions>
inline int64 global_id(int dimension) {
  return sycl::ext::oneapi::this_work_item::get_nd_item<Dimensions>().get_global_id(dimension);
}
// Waits for the work-group and makes its local memory writes visible to it.
template <int Dimensions>
inline void barrier() {
  sycl::group_barrier(sycl::ext::oneapi::this_work_item::get_work_group<Dimensions>());
}

inline int64 min(int64 a, int64 b) { return a < b ? a : b; }

}  // namespace funlib
