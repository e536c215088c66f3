// Data types: one row each. A new type is a row here and an enumerator in funlib.h.
#pragma once

#include "runtime/error.hpp"

namespace funlib {

struct Dtype {
  const char* name;         // NumPy's name
  const char* device_type;  // how a kernel source spells it
  int64_t itemsize;         // bytes
  bool is_integer;
  bool needs_fp64;
  funlib_dtype sums;        // what products of it are summed in
  const char* matrix_type;  // what matrix engines take it as; "" if none do
};

inline constexpr Dtype dtypes[] = {
    {"float32", "float", 4, false, false, FUNLIB_FLOAT32, "tf32"},
    {"float64", "double", 8, false, true, FUNLIB_FLOAT64, "fp64"},
    {"int32", "int", 4, true, false, FUNLIB_INT32, ""},
    {"float16", "funlib::float16", 2, false, false, FUNLIB_FLOAT32, "fp16"},
    {"bfloat16", "funlib::bfloat16", 2, false, false, FUNLIB_FLOAT32, "bf16"},
    {"int8", "funlib::int8", 1, true, false, FUNLIB_INT32, "int8"},
};
inline constexpr int64_t dtype_count = sizeof dtypes / sizeof dtypes[0];

inline const Dtype& dtype_of(funlib_dtype dtype) {
  if (dtype < 0 || dtype >= dtype_count) invalid("unknown data type number ", int(dtype));
  return dtypes[dtype];
}

}  // namespace funlib
