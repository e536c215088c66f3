// Matrix engines: tiles of matrices that the lanes of a sub-group hold together, and multiply at once.
//
//     TileA<T, M, K, Order> a;     a.load(local, pitch);     elements in the order
//     TileB<T, K, N, Order> b;     b.load(local, pitch);
//     SumTile<T, M, N> sum;        sum.clear();
//     sum.multiply_add(a, b);                                sum += a b
//     sum.store(local, pitch);                               element (i, j) to i * pitch + j
//
// All lanes call each function together. Operands come from local memory and sums go there: which lane
// holds which element is the device's secret. Addresses and pitches are multiples of 16 bytes; a pitch
// counts elements. (For fragments of 32 bytes a lane, PTX asks for 32. The machine's instruction, ldmatrix,
// reads rows of 16 bytes, and a pitch of 32 would lead rows into the same banks.)
//
// float is multiplied as TF32: 8 bits of exponent, 10 of mantissa.
#pragma once

#include <sycl/ext/oneapi/experimental/address_cast.hpp>
#include <sycl/ext/oneapi/matrix/matrix-unified.hpp>

#include "funlib_device.hpp"
#include "funlib_types.hpp"

namespace funlib {

// Where element (i, j) of an operand lies.
enum class Order {
  by_rows,     // i * pitch + j
  by_columns,  // j * pitch + i: not for Intel's engines
  interleaved  // i / factor * pitch + j * factor + i % factor, factor elements being 32 bits: Intel's, B only
};

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

// Not sycl::address_space_cast, which asks at run time whether it may: a call on NVIDIA.
template <typename Stored, typename Element>
inline auto local_pointer(Element* local) {
  return sycl::ext::oneapi::experimental::static_address_cast<
      sycl::access::address_space::local_space>(reinterpret_cast<Stored*>(local));
}

#if defined(__NVPTX__)

// joint_matrix reads and writes local memory by generic addresses, word by word. Instructions that are told
// that it is local fill four registers at once (ldmatrix).

template <typename Pointer>
inline unsigned address_of(Pointer local) {
  return unsigned(reinterpret_cast<uint64>(local.get_decorated()));
}

// operand: a or b; the registers of a fragment are placeholders and outputs.
#define FUNLIB_LOAD_AS(operand, layout, shape, type, registers, ...)                  \
  asm volatile("wmma.load." operand ".sync.aligned." layout "." shape ".shared." type \
               " {" registers "}, [%[from]], %[pitch];"                               \
               : __VA_ARGS__                                                          \
               : [from] "r"(from), [pitch] "r"(pitch)                                 \
               : "memory")
#define FUNLIB_LOAD_OPERAND(shape, type, ...)                    \
  if constexpr (Use == joint::use::a && order == Order::by_rows) \
    FUNLIB_LOAD_AS("a", "row", shape, type, __VA_ARGS__);        \
  else if constexpr (Use == joint::use::a)                       \
    FUNLIB_LOAD_AS("a", "col", shape, type, __VA_ARGS__);        \
  else if constexpr (order == Order::by_rows)                    \
    FUNLIB_LOAD_AS("b", "row", shape, type, __VA_ARGS__);        \
  else                                                           \
    FUNLIB_LOAD_AS("b", "col", shape, type, __VA_ARGS__)

// Registers of a fragment, which lies at r.
#define FUNLIB_REGISTERS_1 "%0", "=r"(r[0])
#define FUNLIB_REGISTERS_2 "%0, %1", "=r"(r[0]), "=r"(r[1])
#define FUNLIB_REGISTERS_4 "%0, %1, %2, %3", "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
#define FUNLIB_REGISTERS_8                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7", "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), \
      "=r"(r[5]), "=r"(r[6]), "=r"(r[7])

// Fragments of Rows x Columns elements, of a product of 16 x 16 or 8 x 32 elements.
template <joint::use Use, int Rows, int Columns, Order order, typename Element>
FUNLIB_INLINE inline void load_fragment(void* fragment, unsigned from, int pitch) {
  auto* const r = static_cast<unsigned*>(fragment);
  constexpr bool narrow = (Use == joint::use::a ? Rows : Columns) == 16;  // of 16 x 16
  constexpr bool a = Use == joint::use::a;
  static_assert(narrow || (sizeof(Element) <= 2 && (a ? Rows == 8 : Columns == 32)) ||
                (sizeof(Element) == 8 && (a ? Rows : Columns) == 8));
  if constexpr (__is_same(Element, bfloat16)) {
    if constexpr (narrow)
      FUNLIB_LOAD_OPERAND("m16n16k16", "bf16", FUNLIB_REGISTERS_4);
    else if constexpr (a)
      FUNLIB_LOAD_OPERAND("m8n32k16", "bf16", FUNLIB_REGISTERS_2);
    else
      FUNLIB_LOAD_OPERAND("m8n32k16", "bf16", FUNLIB_REGISTERS_8);
  } else if constexpr (__is_same(Element, float16)) {
    if constexpr (narrow)
      FUNLIB_LOAD_OPERAND("m16n16k16", "f16", FUNLIB_REGISTERS_8);
    else
      FUNLIB_LOAD_OPERAND("m8n32k16", "f16", FUNLIB_REGISTERS_8);
  } else if constexpr (__is_same(Element, int8)) {
    if constexpr (narrow)
      FUNLIB_LOAD_OPERAND("m16n16k16", "s8", FUNLIB_REGISTERS_2);
    else if constexpr (a)
      FUNLIB_LOAD_OPERAND("m8n32k16", "s8", FUNLIB_REGISTERS_1);
    else
      FUNLIB_LOAD_OPERAND("m8n32k16", "s8", FUNLIB_REGISTERS_4);
  } else if constexpr (__is_same(Element, float)) {
    FUNLIB_LOAD_OPERAND("m16n16k8", "tf32", FUNLIB_REGISTERS_4);
  } else {
    FUNLIB_LOAD_OPERAND("m8n8k4", "f64", "%0", "=d"(*static_cast<double*>(fragment)));
  }
}

#define FUNLIB_STORE_SUMS(shape, type, registers, ...)                                        \
  asm volatile("wmma.store.d.sync.aligned.row." shape ".shared." type " [%[to]], {" registers \
               "}, %[pitch];" ::__VA_ARGS__,                                                  \
               [to] "r"(to), [pitch] "r"(pitch)                                               \
               : "memory")

#define FUNLIB_STORE_EIGHT(shape, type, kind)                                                    \
  FUNLIB_STORE_SUMS(shape, type, "%0, %1, %2, %3, %4, %5, %6, %7", kind(sums[0]), kind(sums[1]), \
                    kind(sums[2]), kind(sums[3]), kind(sums[4]), kind(sums[5]), kind(sums[6]),   \
                    kind(sums[7]))

template <int M, typename Sum>
FUNLIB_INLINE inline void store_sums(const Sum* sums, unsigned to, int pitch) {
  if constexpr (__is_same(Sum, double))
    FUNLIB_STORE_SUMS("m8n8k4", "f64", "%0, %1", "d"(sums[0]), "d"(sums[1]));
  else if constexpr (__is_same(Sum, float) && M == 16)
    FUNLIB_STORE_EIGHT("m16n16k16", "f32", "f");
  else if constexpr (__is_same(Sum, float))
    FUNLIB_STORE_EIGHT("m8n32k16", "f32", "f");
  else if constexpr (M == 16)
    FUNLIB_STORE_EIGHT("m16n16k16", "s32", "r");
  else
    FUNLIB_STORE_EIGHT("m8n32k16", "s32", "r");
}

#endif

inline sycl::sub_group lanes_of_engine() {
  return sycl::ext::oneapi::this_work_item::get_sub_group();
}

constexpr joint::layout layout_of(Order order) {
  return order == Order::by_rows      ? joint::layout::row_major
         : order == Order::by_columns ? joint::layout::col_major
                                      : joint::layout::ext_intel_packed;
}

template <typename Element, joint::use Use, int Rows, int Columns, Order order>
struct OperandTile {
  using Types = EngineTypes<Element>;
  joint::joint_matrix<sycl::sub_group, typename Types::Operand, Use, Rows, Columns,
                      layout_of(order)>
      tile;

  FUNLIB_INLINE void load(const Element* local, int pitch) {
    const auto from = local_pointer<const typename Types::Stored>(local);
#if defined(__NVPTX__)
    load_fragment<Use, Rows, Columns, order, Element>(&tile.matrix_impl.wi_marray, address_of(from),
                                                      pitch);
#else
    joint::joint_matrix_load(lanes_of_engine(), tile, from, size_t(pitch));
#endif
  }
};
template <typename Element, int M, int K, Order order>
using TileA = OperandTile<Element, joint::use::a, M, K, order>;
template <typename Element, int K, int N, Order order>
using TileB = OperandTile<Element, joint::use::b, K, N, order>;

template <typename Element, int M, int N>
struct SumTile {
  using Sum = typename EngineTypes<Element>::Sum;
  joint::joint_matrix<sycl::sub_group, Sum, joint::use::accumulator, M, N> tile;

  FUNLIB_INLINE void clear() { joint::joint_matrix_fill(lanes_of_engine(), tile, Sum(0)); }
  template <typename A, typename B>
  FUNLIB_INLINE void multiply_add(const A& a, const B& b) {
    joint::joint_matrix_mad(lanes_of_engine(), tile, a.tile, b.tile, tile);
  }
  FUNLIB_INLINE void store(typename Accumulation<Element>::Sum* local, int pitch) const {
    const auto to = local_pointer<Sum>(local);
#if defined(__NVPTX__)
    store_sums<M>(&tile.matrix_impl.wi_marray[0], address_of(to), pitch);
#else
    joint::joint_matrix_store(lanes_of_engine(), tile, to, size_t(pitch), joint::layout::row_major);
#endif
  }
};

}  // namespace funlib
