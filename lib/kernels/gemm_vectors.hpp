// Explicit vectors for the CPU kernels: FUNLIB_LANES elements of the type of the sums.
#pragma once

#include "gemm_common.hpp"

namespace funlib {

constexpr int lanes = FUNLIB_LANES;

using Vector = VectorOf<Acc, lanes>;

template <typename Element>
struct __attribute__((packed, aligned(alignof(Element)))) Unaligned {
  VectorOf<Element, lanes> value;
};

// Elements of a tensor, as sums hold them.
template <typename Element>
inline Vector load(const Element* from) {
  return widen<Element, lanes>(reinterpret_cast<const Unaligned<Element>*>(from)->value);
}
template <typename Element>
inline void store(Element* to, Vector value) {
  reinterpret_cast<Unaligned<Element>*>(to)->value = narrow<Element, lanes>(value);
}

inline Vector multiply_add(Vector a, Vector b, Vector c) {
#if FUNLIB_INTEGER
  return a * b + c;
#else
  return __builtin_elementwise_fma(a, b, c);
#endif
}

}  // namespace funlib
