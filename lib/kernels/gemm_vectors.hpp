// Explicit vectors for the CPU kernels: FUNLIB_LANES elements of the accumulator type.
#pragma once

#include "gemm_common.hpp"

namespace funlib {

constexpr int lanes = FUNLIB_LANES;

using Vector = Acc __attribute__((ext_vector_type(lanes)));
struct __attribute__((packed, aligned(alignof(Acc)))) UnalignedVector {
  Vector value;
};

inline Vector load(const Acc* from) {
  return reinterpret_cast<const UnalignedVector*>(from)->value;
}
inline void store(Acc* to, Vector value) { reinterpret_cast<UnalignedVector*>(to)->value = value; }

inline Vector multiply_add(Vector a, Vector b, Vector c) {
#if FUNLIB_INTEGER
  return a * b + c;
#else
  return __builtin_elementwise_fma(a, b, c);
#endif
}

}  // namespace funlib
