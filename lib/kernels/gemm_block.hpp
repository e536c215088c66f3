// A block of outputs that one work-item keeps in registers.
#pragma once

#include "gemm_common.hpp"

namespace funlib {

template <int Rows, int Columns>
struct Block {
  Acc sum[Rows][Columns] = {};

  // Rows + Columns operands feed Rows * Columns multiply-adds.
  void multiply_add(const Acc (&a)[Rows], const Acc (&b)[Columns]) {
#pragma unroll
    for (int r = 0; r < Rows; ++r)
#pragma unroll
      for (int c = 0; c < Columns; ++c) sum[r][c] += a[r] * b[c];
  }

  // Element (r, c) goes to row i + r * row_step, column j + c * column_step, if that is inside.
  void store(const Output& output, int64 M, int64 N, int64 i, int row_step, int64 j,
             int column_step) const {
#pragma unroll
    for (int r = 0; r < Rows; ++r)
#pragma unroll
      for (int c = 0; c < Columns; ++c)
        if (i + r * row_step < M && j + c * column_step < N)
          output.store(i + r * row_step, j + c * column_step, sum[r][c]);
  }
};

}  // namespace funlib
