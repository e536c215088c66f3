// Matrix engines in plain code, for devices without: takes the place of lib/kernels/funlib_matrix.hpp
// while the kernels are tested. Each lane keeps whole operands and every lanes-th of the sums.
#pragma once

#include "funlib_sub_group.hpp"
#include "funlib_types.hpp"

namespace funlib {

template <typename Element, int Rows, int Columns, bool Turned>
struct OperandTile {
  using Sum = typename Accumulation<Element>::Sum;
  Sum value[Rows][Columns];

  void load(const Element* local, int pitch) {
    for (int i = 0; i < Rows; ++i)
      for (int j = 0; j < Columns; ++j)
        value[i][j] = Sum(Turned ? local[j * pitch + i] : local[i * pitch + j]);
  }
};
template <typename Element, int M, int K, bool Turned>
using TileA = OperandTile<Element, M, K, Turned>;
template <typename Element, int K, int N, bool Turned>
using TileB = OperandTile<Element, K, N, Turned>;

template <typename Element, int M, int N>
struct SumTile {
  using Sum = typename Accumulation<Element>::Sum;
  static constexpr int lanes = FUNLIB_SUB_GROUP;
  Sum value[M * N / lanes];

  void clear() {
    for (int n = 0; n < M * N / lanes; ++n) value[n] = Sum(0);
  }
  template <int K, bool TurnedA, bool TurnedB>
  void multiply_add(const OperandTile<Element, M, K, TurnedA>& a,
                    const OperandTile<Element, K, N, TurnedB>& b) {
    for (int n = 0; n < M * N / lanes; ++n) {
      const int element = n * lanes + local_id<2>(1);
      for (int k = 0; k < K; ++k)
        value[n] += a.value[element / N][k] * b.value[k][element % N];
    }
  }
  void store(Sum* local, int pitch) const {
    for (int n = 0; n < M * N / lanes; ++n) {
      const int element = n * lanes + local_id<2>(1);
      local[element / N * pitch + element % N] = value[n];
    }
  }
};

}  // namespace funlib
