// roof_multiply_add: how many multiply-adds a device does when nothing else holds it up.
//
//     x[i] = x[i] * a + b          i = 0 .. ACCUMULATORS - 1, all in registers
//     x[i] = x[i] * a + c          each waits for the one before it, the accumulators for none
//
// With a = -1, b = 1 and c = -1, which the compiler does not know, each pair of steps lowers x[i] by 2
// exactly, so the result tells that each step was done. On a CPU x[i] is a vector of the width that its
// registers have; elsewhere the work-items of a sub-group are the vector.
//
// Parameters: FUNLIB_T and FUNLIB_INTEGER, the data type; FUNLIB_GROUP, work-items of a work-group;
// FUNLIB_LANES, elements of a vector; FUNLIB_ACCUMULATORS, enough to fill the pipelines.
#include "funlib_device.hpp"

namespace funlib {

using T = FUNLIB_T;
// Signed overflow is undefined in C++; what the registers hold is the same.
#if FUNLIB_INTEGER
using Element = unsigned;
#else
using Element = T;
#endif

constexpr int lanes = FUNLIB_LANES, accumulators = FUNLIB_ACCUMULATORS, unroll = 8;

#if FUNLIB_LANES == 1
using Vector = Element;
#define FUNLIB_LANE(x, l) x
#else
using Vector = Element __attribute__((ext_vector_type(lanes)));
#define FUNLIB_LANE(x, l) x[l]
#endif

inline Vector multiply_add(Vector x, Vector a, Vector b) {
#if FUNLIB_INTEGER || FUNLIB_LANES == 1
  return x * a + b;
#else
  return __builtin_elementwise_fma(x, a, b);
#endif
}

}  // namespace funlib

// `steps` is a multiple of `unroll`. Each work-item stores what was added to its accumulators: -steps,
// or the value of one that disagrees with the first.
FUNLIB_KERNEL(1, FUNLIB_GROUP)
void roof_multiply_add(int steps, funlib::T a, funlib::T b, funlib::T c, funlib::T* out) {
  using namespace funlib;
  // Different from one another, so that none is computed from another.
  const int start = local_id<1>(0);
  Vector x[accumulators];
#pragma unroll
  for (int i = 0; i < accumulators; ++i)
    for (int l = 0; l < lanes; ++l) FUNLIB_LANE(x[i], l) = Element(start + i * lanes + l);
  const Vector factor = Vector(Element(a)), up = Vector(Element(b)), down = Vector(Element(c));
  for (int n = 0; n < steps; n += unroll) {
#pragma unroll
    for (int u = 0; u < unroll; u += 2) {
#pragma unroll
      for (int i = 0; i < accumulators; ++i) x[i] = multiply_add(x[i], factor, up);
#pragma unroll
      for (int i = 0; i < accumulators; ++i) x[i] = multiply_add(x[i], factor, down);
    }
  }
  const T first = T(FUNLIB_LANE(x[0], 0)) - T(start);
  T result = first;
#pragma unroll
  for (int i = 0; i < accumulators; ++i)
    for (int l = 0; l < lanes; ++l) {
      const T added = T(FUNLIB_LANE(x[i], l)) - T(start + i * lanes + l);
      if (added != first) result = added;
    }
  out[global_id<1>(0)] = result;
}
