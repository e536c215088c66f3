// What the GEMM kernels share: operand access by layout, accumulation, and the epilogue.
//
//     C = alpha * op(A) @ op(B) + beta * C        op(A): M x K, op(B): K x N, C: M x N
//
// A, B and C are row-major with leading dimensions lda, ldb, ldc; FUNLIB_TRANSPOSE_A means that A is
// stored as K x M, FUNLIB_TRANSPOSE_B that B is stored as N x K.
//
// Work-groups are numbered along the last launch dimension alone, row by row of output tiles, since
// some backends bound the other dimensions to 65,535 groups.
#pragma once

#include "funlib_device.hpp"

namespace funlib {

using T = FUNLIB_T;

template <typename Element>
struct Accumulator {
  using Type = Element;
};
// Signed overflow is undefined in C++; int32 wraps.
template <>
struct Accumulator<int> {
  using Type = unsigned;
};
using Acc = Accumulator<T>::Type;

inline Acc element_a(const T* A, int64 lda, int64 i, int64 k) {
#if FUNLIB_TRANSPOSE_A
  return Acc(A[k * lda + i]);
#else
  return Acc(A[i * lda + k]);
#endif
}

inline Acc element_b(const T* B, int64 ldb, int64 k, int64 j) {
#if FUNLIB_TRANSPOSE_B
  return Acc(B[j * ldb + k]);
#else
  return Acc(B[k * ldb + j]);
#endif
}

// Writes one output. With beta == 0, C is not read: NaN in it does not matter.
inline void store_c(T* C, int64 ldc, int64 i, int64 j, Acc sum, T alpha, T beta) {
  Acc value = Acc(alpha) * sum;
  if (beta != T(0)) value += Acc(beta) * Acc(C[i * ldc + j]);
  C[i * ldc + j] = T(value);
}

// First row and column of an output tile, that of this work-group unless its number is given.
struct Tile {
  int64 row, column;
};
inline Tile output_tile(int64 N, int rows, int columns, int64 group) {
  const int64 across = (N + columns - 1) / columns;
  return {group / across * rows, group % across * columns};
}
inline Tile output_tile(int64 N, int rows, int columns) {
  return output_tile(N, rows, columns, group_id<2>(1));
}

}  // namespace funlib

#define FUNLIB_GEMM_ARGUMENTS                                                                 \
  funlib::int64 M, funlib::int64 N, funlib::int64 K, funlib::T alpha, const funlib::T *A,     \
      funlib::int64 lda, const funlib::T *B, funlib::int64 ldb, funlib::T beta, funlib::T *C, \
      funlib::int64 ldc
