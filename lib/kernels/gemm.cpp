// gemm: one work-item computes one output, straight from global memory.
//
//            j                     Every work-item walks a row of A and a column of B. Neighbours
//        B  [|]  K                 in a row of C share the row of A and read neighbouring columns
//            |                     of B, so caches do the reuse. 2*K loads for 2*K flops: bound by
//     i      v                     memory as soon as the caches are too small.
//  A [--->]  x  C(i, j)
//     K
//
// Parameters: FUNLIB_EDGE, the edge of the square work-group.
#include "gemm_common.hpp"

FUNLIB_KERNEL(2, FUNLIB_EDGE, FUNLIB_EDGE)
void gemm(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  const Tile tile = output_tile(M, N, FUNLIB_EDGE, FUNLIB_EDGE, batches, A, B, C);
  const Output output(C, ldc, alpha, beta, bias);
  const int64 i = tile.row + local_id<2>(0);
  const int64 j = tile.column + local_id<2>(1);
  if (i >= M || j >= N) return;
  Acc sum = 0;
  for (int64 k = 0; k < K; ++k) sum += element_a(A, lda, i, k) * element_b(B, ldb, k, j);
  output.store(i, j, sum);
}
