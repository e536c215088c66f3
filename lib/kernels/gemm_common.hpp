// What the GEMM kernels share: operand access by layout, batches, and the epilogue.
//
//     C = act(alpha * op(A) @ op(B) + beta * C + bias)     op(A): M x K, op(B): K x N, C: M x N
//
// A, B and C are row-major with leading dimensions lda, ldb, ldc; FUNLIB_TRANSPOSE_A means that A is
// stored as K x M, FUNLIB_TRANSPOSE_B that B is stored as N x K.
//
// FUNLIB_T is the type of A and B, FUNLIB_OUT that of C and the bias; sums are of type Acc.
// FUNLIB_BIAS says whether there is a bias, and whether it is a row of N or a column of M elements (C is
// the transpose of what the caller sees, then); FUNLIB_ACTIVATION, which function is applied;
// FUNLIB_BATCHED, whether there may be more than one product: a compiler that vectorises over
// work-items gives up where it meets the steps to a batch's matrices.
//
// Work-groups are numbered along the last launch dimension alone, batch by batch, row by row of output
// tiles, since some backends bound the other dimensions to 65,535 groups.
#pragma once

#include "funlib_device.hpp"
#include "funlib_types.hpp"
#include "gemm_activation.hpp"
#include "gemm_shape.hpp"

namespace funlib {

using T = FUNLIB_T;
using Out = FUNLIB_OUT;
using Acc = Accumulation<T>::Sum;
using Scalar = Accumulation<T>::Scalar;

// From an element to another of the same tile, for kernels that know from FUNLIB_FAR whether lines are so far
// apart that this takes 64 bits, which take more registers.
#if FUNLIB_FAR
using Offset = uint64;
#else
using Offset = unsigned;
#endif

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

// An element of the bias, which nothing writes while a kernel runs: on NVIDIA GPUs, one load can then serve
// several outputs between which results are stored.
template <typename Element>
inline Acc bias_at(const Element* bias, int64 i) {
#if defined(__NVPTX__)
  if constexpr (sizeof(Element) == 8)
    return Acc(
        __builtin_bit_cast(Element, __nvvm_ldg_d(reinterpret_cast<const double*>(bias + i))));
  else if constexpr (sizeof(Element) == 4)
    return Acc(__builtin_bit_cast(Element, __nvvm_ldg_i(reinterpret_cast<const int*>(bias + i))));
  else
    return Acc(__builtin_bit_cast(Element, __nvvm_ldg_s(reinterpret_cast<const short*>(bias + i))));
#else
  return Acc(bias[i]);
#endif
}

// The epilogue, for outputs one by one.
struct Output {
  Out* C;
  int64 ldc;
  Acc alpha, beta;
  const Out* bias;

  Output(Out* C, int64 ldc, Scalar alpha, Scalar beta, const Out* bias)
      : C(C), ldc(ldc), alpha(Acc(alpha)), beta(Acc(beta)), bias(bias) {}

  // With beta == 0, C is not read: NaN in it does not matter.
  Acc value(int64 i, int64 j, Acc sum) const {
    Acc value = alpha * sum;
    if (beta != Acc(0)) value += beta * Acc(C[i * ldc + j]);
#if FUNLIB_BIAS == FUNLIB_BIAS_ROW
    value += bias_at(bias, j);
#elif FUNLIB_BIAS == FUNLIB_BIAS_COLUMN
    value += bias_at(bias, i);
#endif
    return activate<FUNLIB_ACTIVATION>(value);
  }
  void store(int64 i, int64 j, Acc sum) const { C[i * ldc + j] = Out(value(i, j, sum)); }
};

// First row and column of an output tile.
struct Tile {
  int64 row, column;
};

// The tile of a work-group, which is `group` of those that the product has; A, B and C are moved to
// the matrices of its batch.
inline Tile output_tile(int64 M, int64 N, int64 rows, int64 columns, const Batches& batches,
                        const T*& A, const T*& B, Out*& C, int64 group) {
  const int64 across = (N + columns - 1) / columns;
#if FUNLIB_BATCHED
  const int64 tiles = (M + rows - 1) / rows * across;
  int64 batch = group / tiles;
  group %= tiles;
#pragma unroll
  for (int d = Batches::most_dimensions - 1; d >= 0; --d) {
    const int64 index = batch % batches.shape[d];
    batch /= batches.shape[d];
    A += index * batches.a_strides[d];
    B += index * batches.b_strides[d];
    C += index * batches.c_strides[d];
  }
#endif
  return {group / across * rows, group % across * columns};
}
inline Tile output_tile(int64 M, int64 N, int64 rows, int64 columns, const Batches& batches,
                        const T*& A, const T*& B, Out*& C) {
  return output_tile(M, N, rows, columns, batches, A, B, C, group_id<2>(1));
}

}  // namespace funlib

// Pieces of GemmShape, without and with its batches.
#if FUNLIB_BATCHED
#define FUNLIB_SHAPE_PIECES 20
#else
#define FUNLIB_SHAPE_PIECES 7
#endif
#define FUNLIB_GEMM_SHAPE FUNLIB_STRUCT(FUNLIB_SHAPE_PIECES, funlib::GemmShape, shape)

#define FUNLIB_GEMM_ARGUMENTS                                                      \
  FUNLIB_GEMM_SHAPE, funlib::Scalar alpha, const funlib::T *A, const funlib::T *B, \
      funlib::Scalar beta, funlib::Out *C, const funlib::Out *bias

// The names of the formulas, at the top of a kernel.
#define FUNLIB_GEMM_NAMES                                                                 \
  FUNLIB_RECEIVE(FUNLIB_SHAPE_PIECES, funlib::GemmShape, shape)                           \
  [[maybe_unused]] const funlib::int64 M = shape.m, N = shape.n, K = shape.k;             \
  [[maybe_unused]] const funlib::int64 lda = shape.lda, ldb = shape.ldb, ldc = shape.ldc; \
  [[maybe_unused]] const funlib::Batches& batches = shape.batches;
