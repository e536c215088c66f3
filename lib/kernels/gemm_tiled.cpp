// gemm_tiled: one output a work-item; the work-group stages tiles of A and B in local memory.
//
//              B   [  tile  ]  EDGE x EDGE       For each step of EDGE along K the work-group loads
//                  [  k0 .. ]                    one tile of A and one of B, an element of each a
//                      |                         work-item, then multiplies them from local memory.
//  A [tile|k0 ..] -> [ C ]  EDGE x EDGE          Each element is read from global memory once a
//                                                work-group instead of EDGE times; but two loads
//                                                from local memory still feed every multiply-add.
//
// Parts of a tile outside the matrix are zeros, so the inner loop has no edge. A zero times NaN can't
// arise: what is out of range in K is zero on both sides, and what is out of range in M or N only
// reaches outputs that are not stored.
//
// Parameters: FUNLIB_EDGE, the edge of the tiles and of the square work-group.
#include "gemm_common.hpp"

FUNLIB_KERNEL(2, FUNLIB_EDGE, FUNLIB_EDGE)
void gemm_tiled(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  constexpr int edge = FUNLIB_EDGE;
  FUNLIB_LOCAL(Acc[edge][edge]) a_tile;
  FUNLIB_LOCAL(Acc[edge][edge]) b_tile;
  const Tile tile = output_tile(M, N, edge, edge, batches, A, B, C);
  const Output output(C, ldc, alpha, beta, bias);
  const int row = local_id<2>(0), column = local_id<2>(1);
  const int64 i = tile.row + row, j = tile.column + column;
  Acc sum = 0;
  for (int64 k0 = 0; k0 < K; k0 += edge) {
    a_tile[row][column] = i < M && k0 + column < K ? element_a(A, lda, i, k0 + column) : Acc(0);
    b_tile[row][column] = k0 + row < K && j < N ? element_b(B, ldb, k0 + row, j) : Acc(0);
    barrier<2>();
    for (int k = 0; k < edge; ++k) sum += a_tile[row][k] * b_tile[k][column];
    barrier<2>();
  }
  if (i < M && j < N) output.store(i, j, sum);
}
