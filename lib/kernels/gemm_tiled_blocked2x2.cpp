// gemm_tiled_blocked2x2: 2 x 2 outputs a work-item in registers, operands from local memory.
//
//                   B  [  k0 .. k0+EDGE  ]        The work-group (EDGE x EDGE work-items) computes
//                      [   EDGE x 2*EDGE ]        a 2*EDGE x 2*EDGE tile. A step along K loads
//                              |                  2*EDGE x EDGE of A and EDGE x 2*EDGE of B, two
//  A [ 2*EDGE x EDGE ] ->  [ c00 | c01 ]          elements of each a work-item; from there, four
//    [ k0 .. k0+EDGE ]     [ c10 | c11 ]          loads feed four multiply-adds, where gemm_tiled
//                                                 needs eight. With EDGE 16: 32 x 32 outputs, local
//                                                 tiles of 32 x 16 and 16 x 32.
//
// Rows and columns of a work-item are EDGE apart, which keeps global loads and stores coalesced and
// local loads free of bank conflicts. Zeros fill what is outside, as in gemm_tiled.
//
// Parameters: FUNLIB_EDGE, the edge of the square work-group and the step along K.
#include "gemm_common.hpp"

FUNLIB_KERNEL(2, FUNLIB_EDGE, FUNLIB_EDGE)
void gemm_tiled_blocked2x2(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  constexpr int edge = FUNLIB_EDGE;
  FUNLIB_LOCAL(Acc[2 * edge][edge]) a_tile;
  FUNLIB_LOCAL(Acc[edge][2 * edge]) b_tile;
  const Tile tile = output_tile(M, N, 2 * edge, 2 * edge, batches, A, B, C);
  const Output output(C, ldc, alpha, beta, bias);
  const int row = local_id<2>(0), column = local_id<2>(1);
  const int64 i0 = tile.row + row, i1 = i0 + edge;
  const int64 j0 = tile.column + column, j1 = j0 + edge;
  Acc c00 = 0, c01 = 0, c10 = 0, c11 = 0;
  for (int64 k0 = 0; k0 < K; k0 += edge) {
    const int64 ka = k0 + column, kb = k0 + row;
    a_tile[row][column] = i0 < M && ka < K ? element_a(A, lda, i0, ka) : Acc(0);
    a_tile[row + edge][column] = i1 < M && ka < K ? element_a(A, lda, i1, ka) : Acc(0);
    b_tile[row][column] = kb < K && j0 < N ? element_b(B, ldb, kb, j0) : Acc(0);
    b_tile[row][column + edge] = kb < K && j1 < N ? element_b(B, ldb, kb, j1) : Acc(0);
    barrier<2>();
    for (int k = 0; k < edge; ++k) {
      const Acc a0 = a_tile[row][k], a1 = a_tile[row + edge][k];
      const Acc b0 = b_tile[k][column], b1 = b_tile[k][column + edge];
      c00 += a0 * b0;
      c01 += a0 * b1;
      c10 += a1 * b0;
      c11 += a1 * b1;
    }
    barrier<2>();
  }
  if (i0 < M && j0 < N) output.store(i0, j0, c00);
  if (i0 < M && j1 < N) output.store(i0, j1, c01);
  if (i1 < M && j0 < N) output.store(i1, j0, c10);
  if (i1 < M && j1 < N) output.store(i1, j1, c11);
}
