// What a kernel needs of the device, spelled the same for every backend.
//
// A kernel is a free function without a namespace:
//
//     FUNLIB_KERNEL(2, 16, 16) void name(arguments) { ... }     // 2 dimensions, work-groups 16 x 16
//
// The last dimension runs fastest. Local memory is a FUNLIB_LOCAL(type[rows][columns]) variable at
// the top of the kernel: of the ways that SYCL offers it is one that works in every run-time
// compiler. Only these small headers are included: parsing <sycl/sycl.hpp> takes seconds.
//
// A struct as an argument is declared and received through macros, with its size in pieces of 16 bytes
// (those at the end that the kernel does not read may be left out):
//
//     void name(FUNLIB_STRUCT(7, Shape, shape), ...) { FUNLIB_RECEIVE(7, Shape, shape) ... shape.m ... }
//
// since the compiler for PTX crashes over arguments of class type: there they come in pieces.
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

// For a function with much in it that has to be part of its caller, whatever the compiler thinks.
#define FUNLIB_INLINE __attribute__((always_inline))

// Fixes the size of the sub-groups, after FUNLIB_KERNEL. Small ones leave more registers to each
// work-item.
#define FUNLIB_SUB_GROUP_SIZE(size) \
  SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::sub_group_size<size>))

#define FUNLIB_LOCAL(...) sycl::ext::oneapi::experimental::work_group_static<__VA_ARGS__>

namespace funlib {

using int64 = long long;
using uint64 = unsigned long long;

#if defined(__NVPTX__)

using Piece = unsigned __int128;

template <typename Struct, typename... Pieces>
inline Struct joined(Pieces... pieces) {
  static_assert(sizeof...(Pieces) * sizeof(Piece) <= sizeof(Struct));
  const Piece all[] = {pieces...};
  Struct value{};
  __builtin_memcpy(&value, all, sizeof all);
  return value;
}

#define FUNLIB_7(prefix, x) \
  prefix x##0, prefix x##1, prefix x##2, prefix x##3, prefix x##4, prefix x##5, prefix x##6
#define FUNLIB_13(prefix, x)                                                              \
  FUNLIB_7(prefix, x), prefix x##7, prefix x##8, prefix x##9, prefix x##10, prefix x##11, \
      prefix x##12
#define FUNLIB_20(prefix, x)                                                                  \
  FUNLIB_13(prefix, x), prefix x##13, prefix x##14, prefix x##15, prefix x##16, prefix x##17, \
      prefix x##18, prefix x##19
#define FUNLIB_PASTE(n) FUNLIB_##n
#define FUNLIB_STRUCT(n, Struct, name) FUNLIB_PASTE(n)(funlib::Piece, name##_piece)
#define FUNLIB_RECEIVE(n, Struct, name) \
  const Struct name = funlib::joined<Struct>(FUNLIB_PASTE(n)(, name##_piece));

// Work-item numbers from their registers: the runtime's functions are not inlined. The last dimension
// is x.
template <int Dimensions>
inline int64 group_id(int dimension) {
  const int axis = Dimensions - 1 - dimension;
  return axis == 0   ? __nvvm_read_ptx_sreg_ctaid_x()
         : axis == 1 ? __nvvm_read_ptx_sreg_ctaid_y()
                     : __nvvm_read_ptx_sreg_ctaid_z();
}
template <int Dimensions>
inline int local_id(int dimension) {
  const int axis = Dimensions - 1 - dimension;
  return axis == 0   ? __nvvm_read_ptx_sreg_tid_x()
         : axis == 1 ? __nvvm_read_ptx_sreg_tid_y()
                     : __nvvm_read_ptx_sreg_tid_z();
}
template <int Dimensions>
inline int64 global_id(int dimension) {
  const int axis = Dimensions - 1 - dimension;
  const int64 extent = axis == 0   ? __nvvm_read_ptx_sreg_ntid_x()
                       : axis == 1 ? __nvvm_read_ptx_sreg_ntid_y()
                                   : __nvvm_read_ptx_sreg_ntid_z();
  return group_id<Dimensions>(dimension) * extent + local_id<Dimensions>(dimension);
}
template <int Dimensions>
inline void barrier() {
  asm volatile("bar.sync 0;" ::: "memory");
}

// 16 bytes of global memory that are not needed again: they leave the caches first.
template <typename Value>
inline Value read_once(const Value* from) {
  static_assert(sizeof(Value) == 16, "16 bytes");
  using Words = unsigned __attribute__((ext_vector_type(4)));
  Words words;
  asm("ld.global.cs.v4.b32 {%0, %1, %2, %3}, [%4];"
      : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
      : "l"(from));
  return __builtin_bit_cast(Value, words);
}

#else

#define FUNLIB_STRUCT(n, Struct, name) Struct name
#define FUNLIB_RECEIVE(n, Struct, name)

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

template <typename Value>
inline Value read_once(const Value* from) {
  return *from;
}

#endif

inline int64 min(int64 a, int64 b) { return a < b ? a : b; }

}  // namespace funlib
