// gemm_sum_slices: adds up the partial products that slices of K left in a workspace.
//
//     C(b, i, j) = act(alpha * (P(b, 0, i, j) + P(b, 1, i, j) + ... ) + beta * C(b, i, j) + bias(j))
//
// P: batch x slices x M x N, in the type of the sums. A work-item has 16 bytes of a row, a sub-group of them
// follow each other there. The order of the sum is fixed, so the result does not depend on which slice was
// done first.
#define FUNLIB_TRANSPOSE_A 0
#define FUNLIB_TRANSPOSE_B 0
#include "gemm_common.hpp"

namespace funlib {

constexpr int rows = 4, vectors = 32, W = 16 / sizeof(Acc);  // of a work-group; outputs of a vector
using Sums = VectorOf<Acc, W>;

}  // namespace funlib

FUNLIB_KERNEL(2, funlib::rows, funlib::vectors)
void gemm_sum_slices(FUNLIB_GEMM_SHAPE, funlib::Scalar alpha, const funlib::Acc* P,
                     funlib::Scalar beta, funlib::Out* C, const funlib::Out* bias) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  const int64 slices = shape.extra[0], outputs = M * N;
  const T *a = nullptr, *b = nullptr;
  const Tile tile = output_tile(M, N, rows, vectors * W, batches, a, b, C);
  const int64 i = tile.row + local_id<2>(0), j = tile.column + local_id<2>(1) * W;
  if (i >= M || j >= N) return;
#if FUNLIB_BATCHED
  const int64 groups = (M + rows - 1) / rows * ((N + vectors * W - 1) / (vectors * W));
  P += group_id<2>(1) / groups * slices * outputs;
#endif
  const Acc* const from = P + i * N + j;
  const Output output(C, ldc, alpha, beta, bias);
  if (N % W == 0) {
    Sums sums = *reinterpret_cast<const Sums*>(from);
#pragma unroll 4
    for (int64 slice = 1; slice < slices; ++slice)
      sums += *reinterpret_cast<const Sums*>(from + slice * outputs);
#pragma unroll
    for (int e = 0; e < W; ++e) output.store(i, j + e, sums[e]);
  } else {
    for (int e = 0; e < min(W, N - j); ++e) {
      Acc sum = from[e];
      for (int64 slice = 1; slice < slices; ++slice) sum += from[slice * outputs + e];
      output.store(i, j + e, sum);
    }
  }
}
