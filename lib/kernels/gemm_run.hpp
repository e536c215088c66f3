// Runs of V elements next to each other in global memory, 16 bytes of sums.
#pragma once

#include "gemm_block.hpp"

namespace funlib {

constexpr int V = 16 / sizeof(Acc);
using Vector = VectorOf<Acc, V>;

// V elements of a tensor.
template <typename Element>
using Elements = VectorOf<Element, V>;

template <typename Element>
inline bool is_aligned(const Element* data, int64 leading_dimension) {
  return reinterpret_cast<uint64>(data) % sizeof(Elements<Element>) == 0 &&
         leading_dimension % V == 0;
}

// V outputs in a row, all of them inside and at a multiple of their size.
inline void store_vector(const Output& output, int64 i, int64 j, const Acc* sum) {
  Vector value;
#pragma unroll
  for (int e = 0; e < V; ++e) value[e] = output.value(i, j + e, sum[e]);
  *reinterpret_cast<Elements<Out>*>(output.C + i * output.ldc + j) = narrow<Out, V>(value);
}

// Those of V outputs in a row that are inside.
inline void store_elements(const Output& output, int64 M, int64 N, int64 i, int64 j,
                           const Acc* sum) {
  if (i >= M) return;
#pragma unroll
  for (int e = 0; e < V; ++e)
    if (j + e < N) output.store(i, j + e, sum[e]);
}

inline void store_run(const Output& output, int64 M, int64 N, int64 i, int64 j, const Acc* sum,
                      bool aligned) {
  if (aligned && output.beta == Acc(0) && i < M && j + V <= N)
    store_vector(output, i, j, sum);
  else
    store_elements(output, M, N, i, j, sum);
}

}  // namespace funlib
