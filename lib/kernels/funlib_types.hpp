// Element types of tensors, and the types that sums of their products are kept in.
#pragma once

namespace funlib {

using float16 = _Float16;
using int8 = signed char;

// The upper half of a float32. Conversion to it rounds to nearest, ties to even.
struct bfloat16 {
  unsigned short bits;

  bfloat16() = default;
  explicit bfloat16(float value) {
    const unsigned whole = __builtin_bit_cast(unsigned, value);
    // A NaN must not be rounded to infinity, nor lose what makes it one.
    bits = value != value ? static_cast<unsigned short>(whole >> 16 | 0x40)
                          : static_cast<unsigned short>((whole + 0x7fff + (whole >> 16 & 1)) >> 16);
  }
  explicit operator float() const { return __builtin_bit_cast(float, unsigned(bits) << 16); }
};

// What products of the type are summed in, and the type of alpha and beta.
template <typename Element>
struct Accumulation {
  using Sum = Element;
  using Scalar = Element;
};
template <>
struct Accumulation<float16> {
  using Sum = float;
  using Scalar = float;
};
template <>
struct Accumulation<bfloat16> {
  using Sum = float;
  using Scalar = float;
};
// Signed overflow is undefined in C++; int32 wraps.
template <>
struct Accumulation<int> {
  using Sum = unsigned;
  using Scalar = int;
};
template <>
struct Accumulation<int8> {
  using Sum = unsigned;
  using Scalar = int;
};

// The type as vectors can hold it.
template <typename Element>
struct VectorElement {
  using Type = Element;
};
template <>
struct VectorElement<bfloat16> {
  using Type = unsigned short;
};

template <typename Element, int Lanes>
using VectorOf = typename VectorElement<Element>::Type __attribute__((ext_vector_type(Lanes)));

// The elements of a vector in the type of their sums.
template <typename Element, int Lanes>
inline VectorOf<typename Accumulation<Element>::Sum, Lanes> widen(VectorOf<Element, Lanes> value) {
  using Sums = VectorOf<typename Accumulation<Element>::Sum, Lanes>;
  if constexpr (__is_same(Element, bfloat16))
    return __builtin_bit_cast(Sums, __builtin_convertvector(value, VectorOf<unsigned, Lanes>)
                                        << 16u);
  else
    return __builtin_convertvector(value, Sums);
}

// Sums in the type of an output.
template <typename Element, int Lanes>
inline VectorOf<Element, Lanes> narrow(VectorOf<typename Accumulation<Element>::Sum, Lanes> value) {
  if constexpr (__is_same(Element, bfloat16)) {
    const auto whole = __builtin_bit_cast(VectorOf<unsigned, Lanes>, value);
    const auto rounded = (whole + 0x7fffu + (whole >> 16u & 1u)) >> 16u;
    const auto nan = whole >> 16u | 0x40u;
    return __builtin_convertvector(value != value ? nan : rounded, VectorOf<Element, Lanes>);
  } else {
    return __builtin_convertvector(value, VectorOf<Element, Lanes>);
  }
}

}  // namespace funlib
