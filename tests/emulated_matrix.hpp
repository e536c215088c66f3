// Matrix engines in plain code, for devices without: takes the place of lib/kernels/funlib_matrix.hpp
// while the kernels are tested. Each lane keeps whole operands, and every lanes-th of the sums. Loops are
// not unrolled: compiling would take minutes.
#pragma once

#include "funlib_sub_group.hpp"
#include "funlib_types.hpp"

namespace funlib {

enum class Order { by_rows, by_columns, interleaved };

template <typename Element, int Rows, int Columns, Order order>
struct OperandTile {
  using Sum = typename Accumulation<Element>::Sum;
  static constexpr int factor = sizeof(Element) < 4 ? 4 / sizeof(Element) : 1;
  Sum value[Rows][Columns];

  void load(const Element* local, int pitch) {
#pragma nounroll
    for (int i = 0; i < Rows; ++i)
#pragma nounroll
      for (int j = 0; j < Columns; ++j)
        value[i][j] =
            Sum(local[order == Order::by_rows      ? i * pitch + j
                      : order == Order::by_columns ? j * pitch + i
                                                   : i / factor * pitch + j * factor + i % factor]);
  }
};
template <typename Element, int M, int K, Order order>
using TileA = OperandTile<Element, M, K, order>;
template <typename Element, int K, int N, Order order>
using TileB = OperandTile<Element, K, N, order>;

template <typename Element, int M, int N>
struct SumTile {
  using Sum = typename Accumulation<Element>::Sum;
  static constexpr int lanes = FUNLIB_SUB_GROUP;
  Sum value[M * N / lanes];

  void clear() {
#pragma nounroll
    for (int n = 0; n < M * N / lanes; ++n) value[n] = Sum(0);
  }
  template <int K, Order order_a, Order order_b>
  void multiply_add(const TileA<Element, M, K, order_a>& a,
                    const TileB<Element, K, N, order_b>& b) {
#pragma nounroll
    for (int n = 0; n < M * N / lanes; ++n) {
      const int element = n * lanes + local_id<2>(1);
#pragma nounroll
      for (int k = 0; k < K; ++k) value[n] += a.value[element / N][k] * b.value[k][element % N];
    }
  }
  void store(Sum* local, int pitch) const {
#pragma nounroll
    for (int n = 0; n < M * N / lanes; ++n) {
      const int element = n * lanes + local_id<2>(1);
      local[element / N * pitch + element % N] = value[n];
    }
  }
};

}  // namespace funlib
