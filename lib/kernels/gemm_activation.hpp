// Activation functions of the epilogue, for single values and for vectors.
//
// For float32 they are made of arithmetic that vectorises and needs no library on any device; for
// float64 of the runtime's functions. NaN propagates; infinities give what the formula gives.
#pragma once

#include "funlib_types.hpp"
#include "gemm_shape.hpp"

#if FUNLIB_ACTIVATION >= FUNLIB_GELU
#include <sycl/builtins.hpp>
#endif

namespace funlib {

// What a value is made of: itself, or the elements of a vector.
template <typename Value>
struct ValueTraits {
  using Element = Value;
  using Integers = int;
  static constexpr int lanes = 0;
};
template <typename Scalar, int Lanes>
struct ValueTraits<Scalar __attribute__((ext_vector_type(Lanes)))> {
  using Element = Scalar;
  using Integers = int __attribute__((ext_vector_type(Lanes)));
  static constexpr int lanes = Lanes;
};

#if FUNLIB_ACTIVATION >= FUNLIB_GELU

// a / b. On NVIDIA GPUs within two units in the last place: the exact division has a branch for rare
// values, across which the compiler does not interleave outputs.
template <typename Value>
inline Value quotient(Value a, Value b) {
#if defined(__NVPTX__)
  if constexpr (__is_same(Value, float)) {
    float result;
    asm("div.full.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
#endif
  return a / b;
}

// e^x, float32: x = n ln 2 + r, and a polynomial for e^r; the coefficients are those of Cephes (Moshier).
template <typename Value>
inline Value exponential(Value x) {
  using Integers = typename ValueTraits<Value>::Integers;
  // Beyond these the result is 0 or infinity; NaN passes.
  x = x > 89.0f ? Value(89.0f) : x;
  x = x < -105.0f ? Value(-105.0f) : x;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  const Value shifter = Value(12582912.0f);
  const Value shifted = __builtin_elementwise_fma(x, Value(1.44269504088896341f), shifter);
  const Value n = shifted - shifter;
  const Integers whole =
      __builtin_bit_cast(Integers, shifted) - __builtin_bit_cast(Integers, shifter);
  Value r = __builtin_elementwise_fma(n, Value(-0.693359375f), x);
  r = __builtin_elementwise_fma(n, Value(2.12194440e-4f), r);
  Value p = Value(1.9875691500e-4f);
  p = __builtin_elementwise_fma(p, r, Value(1.3981999507e-3f));
  p = __builtin_elementwise_fma(p, r, Value(8.3334519073e-3f));
  p = __builtin_elementwise_fma(p, r, Value(4.1665795894e-2f));
  p = __builtin_elementwise_fma(p, r, Value(1.6666665459e-1f));
  p = __builtin_elementwise_fma(p, r, Value(5.0000001201e-1f));
  p = __builtin_elementwise_fma(p, r * r, r + Value(1.0f));
  // 2^n in two factors: at the ends of the range it is no normal number.
  const Integers half = whole >> 1;
  p *= __builtin_bit_cast(Value, (half + 127) << 23);
  return p * __builtin_bit_cast(Value, (whole - half + 127) << 23);
}

// tanh(x), float32, absolute error 2^-23.
template <typename Value>
inline Value hyperbolic_tangent(Value x) {
  return Value(1.0f) - quotient(Value(2.0f), exponential(x + x) + Value(1.0f));
}

// erf(x), float32: a rational function on [-4, 4], outside of which the result is 1 or -1; the
// coefficients are Eigen's.
template <typename Value>
inline Value error_function(Value x) {
  x = x > 4.0f ? Value(4.0f) : x;
  x = x < -4.0f ? Value(-4.0f) : x;
  const Value s = x * x;
  Value p = Value(-2.72614225801306e-10f);
  p = __builtin_elementwise_fma(p, s, Value(2.77068142495902e-08f));
  p = __builtin_elementwise_fma(p, s, Value(-2.10102402082508e-06f));
  p = __builtin_elementwise_fma(p, s, Value(-5.69250639462346e-05f));
  p = __builtin_elementwise_fma(p, s, Value(-7.34990630326855e-04f));
  p = __builtin_elementwise_fma(p, s, Value(-2.95459980854025e-03f));
  p = __builtin_elementwise_fma(p, s, Value(-1.60960333262415e-02f));
  Value q = Value(-1.45660718464996e-05f);
  q = __builtin_elementwise_fma(q, s, Value(-2.13374055278905e-04f));
  q = __builtin_elementwise_fma(q, s, Value(-1.68282697438203e-03f));
  q = __builtin_elementwise_fma(q, s, Value(-7.37332916720468e-03f));
  q = __builtin_elementwise_fma(q, s, Value(-1.42647390514189e-02f));
  return quotient(x * p, q);
}

inline double exponential(double x) { return sycl::exp(x); }
inline double hyperbolic_tangent(double x) { return sycl::tanh(x); }
inline double error_function(double x) { return sycl::erf(x); }

#endif

template <int Activation, typename Value>
inline Value activate(Value x) {
  using Traits = ValueTraits<Value>;
  using Element = typename Traits::Element;
  if constexpr (Activation == 0) {
    return x;
  } else if constexpr (Activation == FUNLIB_RELU) {
    if constexpr (__is_same(Element, unsigned)) {
      // Sums of integers are kept without their sign.
      return x > 0x7fffffffu ? Value(0u) : x;
    } else {
      return x < Value(0) ? Value(0) : x;
    }
  } else if constexpr (Traits::lanes > 0 && __is_same(Element, double)) {
    for (int l = 0; l < Traits::lanes; ++l) x[l] = activate<Activation>(double(x[l]));
    return x;
  }
#if FUNLIB_ACTIVATION >= FUNLIB_GELU
  else if constexpr (Activation == FUNLIB_GELU) {
    const Value half = Value(Element(0.5)) * x;
    return half + half * error_function(x * Value(Element(0.70710678118654752440)));
  } else if constexpr (Activation == FUNLIB_GELU_TANH) {
    const Value half = Value(Element(0.5)) * x;
    const Value inner =
        (x + x * x * x * Value(Element(0.044715))) * Value(Element(0.79788456080286535588));
    return half + half * hyperbolic_tangent(inner);
  } else if constexpr (Activation == FUNLIB_SILU) {
    return quotient(x, Value(Element(1)) + exponential(-x));
  }
#endif
}

}  // namespace funlib
