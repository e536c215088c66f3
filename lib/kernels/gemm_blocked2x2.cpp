// gemm_blocked2x2: 2 x 2 outputs a work-item, held in registers, from global memory.
//
//               B  |.......|.......|        A work-item owns rows i, i + EDGE and columns
//                  | j     | j+EDGE|        j, j + EDGE of its work-group's 2*EDGE x 2*EDGE tile:
//   A            +-------+-------+          columns of neighbours stay neighbours, so loads of B
//   i      ----> | c00   | c01   |          remain coalesced. Two elements of A and two of B feed
//                +-------+-------+          four multiply-adds: half the loads of gemm for each.
//   i+EDGE ----> | c10   | c11   |
//                +-------+-------+
//
// The second row, where it is outside the matrix, is replaced by the last one inside, and the second
// column reads as zero: neither is stored. The column is not replaced too, because neighbours would
// no longer read neighbouring addresses, and on a CPU every load of B would become a gather.
//
// Parameters: FUNLIB_EDGE, the edge of the square work-group.
#include "gemm_common.hpp"

FUNLIB_KERNEL(2, FUNLIB_EDGE, FUNLIB_EDGE)
void gemm_blocked2x2(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  constexpr int edge = FUNLIB_EDGE;
  const Tile tile = output_tile(M, N, 2 * edge, 2 * edge, batches, A, B, C);
  const Output output(C, ldc, alpha, beta, bias);
  const int64 i0 = tile.row + local_id<2>(0), i1 = i0 + edge;
  const int64 j0 = tile.column + local_id<2>(1), j1 = j0 + edge;
  if (i0 >= M || j0 >= N) return;
  const int64 row1 = min(i1, M - 1);
  const bool inside1 = j1 < N;
  Acc c00 = 0, c01 = 0, c10 = 0, c11 = 0;
  for (int64 k = 0; k < K; ++k) {
    const Acc a0 = element_a(A, lda, i0, k), a1 = element_a(A, lda, row1, k);
    const Acc b0 = element_b(B, ldb, k, j0);
    const Acc b1 = inside1 ? element_b(B, ldb, k, j1) : Acc(0);
    c00 += a0 * b0;
    c01 += a0 * b1;
    c10 += a1 * b0;
    c11 += a1 * b1;
  }
  output.store(i0, j0, c00);
  if (inside1) output.store(i0, j1, c01);
  if (i1 < M) output.store(i1, j0, c10);
  if (i1 < M && inside1) output.store(i1, j1, c11);
}
