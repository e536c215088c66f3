// Explicit vectors for the CPU kernels: FUNLIB_LANES elements of the type of the sums.
#pragma once

#include "gemm_common.hpp"

namespace funlib {

constexpr int lanes = FUNLIB_LANES;

using Vector = VectorOf<Acc, lanes>;

template <typename Element, int Count>
struct __attribute__((packed, aligned(alignof(Element)))) Unaligned {
  VectorOf<Element, Count> value;
};

// Elements of a tensor, as sums hold them.
template <typename Element>
inline Vector load(const Element* from) {
  return widen<Element, lanes>(reinterpret_cast<const Unaligned<Element, lanes>*>(from)->value);
}
template <typename Element>
inline void store(Element* to, Vector value) {
  reinterpret_cast<Unaligned<Element, lanes>*>(to)->value = narrow<Element, lanes>(value);
}

// Fewer elements than a register has.
template <int Count>
using Short = VectorOf<Acc, Count>;

template <int Count>
inline Short<Count> load_short(const T* from) {
  return widen<T, Count>(reinterpret_cast<const Unaligned<T, Count>*>(from)->value);
}
template <int Count>
inline void store_short(Acc* to, Short<Count> value) {
  reinterpret_cast<Unaligned<Acc, Count>*>(to)->value = value;
}

// Count consecutive elements, an even number.
template <int Count>
inline void copy(const T* from, Acc* to) {
  constexpr int whole = Count / 4 * 4;
#pragma unroll
  for (int i = 0; i < whole; i += 4) store_short<4>(to + i, load_short<4>(from + i));
  if constexpr (whole < Count) store_short<2>(to + whole, load_short<2>(from + whole));
}

// Rows lines (2 or 4) of 4 elements become 4 lines of Rows elements.
template <int Rows>
inline void transpose(const T* from, int64 from_stride, Acc* to, int64 to_stride) {
  const auto a = load_short<4>(from), b = load_short<4>(from + from_stride);
  const auto low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const auto high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  if constexpr (Rows == 2) {
    store_short<2>(to, __builtin_shufflevector(low, low, 0, 1));
    store_short<2>(to + to_stride, __builtin_shufflevector(low, low, 2, 3));
    store_short<2>(to + 2 * to_stride, __builtin_shufflevector(high, high, 0, 1));
    store_short<2>(to + 3 * to_stride, __builtin_shufflevector(high, high, 2, 3));
  } else {
    const auto c = load_short<4>(from + 2 * from_stride), d = load_short<4>(from + 3 * from_stride);
    const auto low2 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const auto high2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store_short<4>(to, __builtin_shufflevector(low, low2, 0, 1, 4, 5));
    store_short<4>(to + to_stride, __builtin_shufflevector(low, low2, 2, 3, 6, 7));
    store_short<4>(to + 2 * to_stride, __builtin_shufflevector(high, high2, 0, 1, 4, 5));
    store_short<4>(to + 3 * to_stride, __builtin_shufflevector(high, high2, 2, 3, 6, 7));
  }
}

inline Vector multiply_add(Vector a, Vector b, Vector c) {
#if FUNLIB_INTEGER
  return a * b + c;
#else
  return __builtin_elementwise_fma(a, b, c);
#endif
}

}  // namespace funlib
