// gemm_blocked4x4: 4 x 4 outputs a work-item, held in registers, from global memory.
//
//               B   j   j+E  j+2E j+3E     A work-item owns rows i + r * EDGE and columns j + c * EDGE
//                 +----+----+----+----+    (r, c = 0 .. 3) of its work-group's 4*EDGE x 4*EDGE tile:
//   A   i    ---> |    |    |    |    |    as in gemm_blocked2x2, neighbours read neighbouring columns
//       i+E  ---> |    | c  | r,c|    |    of B. Four elements of A and four of B feed sixteen
//       i+2E ---> |    |    |    |    |    multiply-adds: half a load for each, where gemm_blocked2x2
//       i+3E ---> |    |    |    |    |    needs one and gemm two. The price is 24 registers and
//                 +----+----+----+----+    a quarter of the work-groups: small matrices no longer
//                                          fill the device.
//
// Rows outside the matrix repeat the last one inside, columns outside read as zero (gemm_blocked2x2
// says why); neither is stored.
//
// Parameters: FUNLIB_EDGE (E above), the edge of the square work-group.
#include "gemm_block.hpp"

FUNLIB_KERNEL(2, FUNLIB_EDGE, FUNLIB_EDGE)
void gemm_blocked4x4(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  constexpr int edge = FUNLIB_EDGE, size = 4;
  const Tile tile = output_tile(M, N, size * edge, size * edge, batches, A, B, C);
  const Output output(C, ldc, alpha, beta, bias);
  const int64 i = tile.row + local_id<2>(0), j = tile.column + local_id<2>(1);
  if (i >= M || j >= N) return;
  Block<size, size> block;
  for (int64 k = 0; k < K; ++k) {
    Acc a[size], b[size];
#pragma unroll
    for (int r = 0; r < size; ++r) a[r] = element_a(A, lda, min(i + r * edge, M - 1), k);
#pragma unroll
    for (int c = 0; c < size; ++c)
      b[c] = j + c * edge < N ? element_b(B, ldb, k, j + c * edge) : Acc(0);
    block.multiply_add(a, b);
  }
  block.store(output, M, N, i, edge, j, edge);
}
