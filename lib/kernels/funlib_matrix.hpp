// Matrix engines: tiles of matrices that the lanes of a sub-group hold together, and multiply at once.
//
//     TileA<T, M, K> a;            a.load(local, pitch);     element (i, k) at i * pitch + k
//     TileB<T, K, N, Factor> b;    b.load(local, pitch);     element (k, j) at
//                                                            k / Factor * pitch + j * Factor + k % Factor
//     SumTile<T, M, N> sum;        sum.clear();
//     sum.multiply_add(a, b);                                sum += a b
//     sum.store(local, pitch);                               element (i, j) to i * pitch + j
//
// Factor is 1, or as many elements as fill 32 bits. All lanes call each function together. Operands come
// from local memory and sums go there: which lane holds which element is the device's secret. Addresses
// and pitches are multiples of 32 bytes, as NVIDIA wants it; a pitch counts elements.
//
// float is multiplied as TF32: 8 bits of exponent, 10 of mantissa.
#pragma once

#include <sycl/ext/oneapi/matrix/matrix-unified.hpp>

#include "funlib_device.hpp"
#include "funlib_types.hpp"

namespace funlib {

namespace joint = sycl::ext::oneapi::experimental::matrix;

// Elements as joint_matrix spells them: multiplied, in memory, and their sums.
template <typename Element>
struct EngineTypes;
template <>
struct EngineTypes<bfloat16> {
  using Operand = sycl::ext::oneapi::bfloat16;
  using Stored = Operand;
  using Sum = float;
};
template <>
struct EngineTypes<float16> {
  using Operand = sycl::half;
  using Stored = Operand;
  using Sum = float;
};
template <>
struct EngineTypes<int8> {
  using Operand = int8_t;
  using Stored = Operand;
  using Sum = int32_t;
};
template <>
struct EngineTypes<float> {
  using Operand = joint::precision::tf32;
  using Stored = float;
  using Sum = float;
};
template <>
struct EngineTypes<double> {
  using Operand = double;
  using Stored = double;
  using Sum = double;
};

template <typename Stored, typename Element>
inline auto local_pointer(Element* local) {
  return sycl::address_space_cast<sycl::access::address_space::local_space,
                                  sycl::access::decorated::no>(reinterpret_cast<Stored*>(local));
}

inline sycl::sub_group lanes_of_engine() {
  return sycl::ext::oneapi::this_work_item::get_sub_group();
}

template <typename Element, joint::use Use, int Rows, int Columns, joint::layout Layout>
struct OperandTile {
  using Types = EngineTypes<Element>;
  joint::joint_matrix<sycl::sub_group, typename Types::Operand, Use, Rows, Columns, Layout> tile;

  void load(const Element* local, int pitch) {
    joint::joint_matrix_load(lanes_of_engine(), tile,
                             local_pointer<const typename Types::Stored>(local), size_t(pitch));
  }
};
template <typename Element, int M, int K>
using TileA = OperandTile<Element, joint::use::a, M, K, joint::layout::row_major>;
template <typename Element, int K, int N, int Factor>
using TileB = OperandTile<Element, joint::use::b, K, N,
                          Factor == 1 ? joint::layout::row_major : joint::layout::ext_intel_packed>;

template <typename Element, int M, int N>
struct SumTile {
  using Sum = typename EngineTypes<Element>::Sum;
  joint::joint_matrix<sycl::sub_group, Sum, joint::use::accumulator, M, N> tile;

  void clear() { joint::joint_matrix_fill(lanes_of_engine(), tile, Sum(0)); }
  template <typename A, typename B>
  void multiply_add(const A& a, const B& b) {
    joint::joint_matrix_mad(lanes_of_engine(), tile, a.tile, b.tile, tile);
  }
  void store(typename Accumulation<Element>::Sum* local, int pitch) const {
    joint::joint_matrix_store(lanes_of_engine(), tile, local_pointer<Sum>(local), size_t(pitch),
                              joint::layout::row_major);
  }
};

}  // namespace funlib
