// gemm_padded: as gemm_tiled_blocked2x2, with tiles turned on the way in and their rows padded.
//
//   stored K x M:                    local a_tile, PAD = 0       a_tile, PAD = 1
//   A [ k0   | m m+1 m+2 ... ]       m    | 0 1 2 .. 15 |        m    | 0 1 2 .. 15 |x|
//     [ k0+1 | ->  lanes     ]       m+1  | 0 .         |        m+1  | 1 .         |x|
//                                    m+2  | 0 .         |        m+2  | 2 .         |x|
//                                          ^ one bank             ^ a bank each
//
// gemm_tiled loads element (row, column) of a tile by work-item (row, column), however the operand is
// stored: a transposed one is then read across its rows, one memory transaction an element. Here
// neighbouring work-items always read neighbouring addresses, and a transposed tile is turned as it
// is written to local memory. That write goes down a column of the tile: with rows of 2^n elements
// all of it falls into one bank of local memory, and the work-items take turns. PAD more elements a
// row put neighbours in different banks: element (r, c) lies in bank (r * (width + PAD) + c) mod 32.
//
// The multiplication is gemm_tiled_blocked2x2's, and for A and B stored as they are so is all else:
// what padding gains shows in the transposed layouts, against PAD = 0.
//
// Parameters: FUNLIB_EDGE, the edge of the square work-group and the step along K; FUNLIB_PAD, unused
// elements at the end of each row of a tile.
#include "gemm_block.hpp"

FUNLIB_KERNEL(2, FUNLIB_EDGE, FUNLIB_EDGE)
void gemm_padded(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  constexpr int edge = FUNLIB_EDGE, size = 2;
  FUNLIB_LOCAL(Acc[size * edge][edge + FUNLIB_PAD]) a_tile;
  FUNLIB_LOCAL(Acc[edge][size * edge + FUNLIB_PAD]) b_tile;
  const Tile tile = output_tile(M, N, size * edge, size * edge, batches, A, B, C);
  const Output output(C, ldc, alpha, beta, bias);
  const int row = local_id<2>(0), column = local_id<2>(1);
  // Which element of a tile this work-item loads: its column runs along the storage.
#if FUNLIB_TRANSPOSE_A
  const int a_row = column, a_column = row;
#else
  const int a_row = row, a_column = column;
#endif
#if FUNLIB_TRANSPOSE_B
  const int b_row = column, b_column = row;
#else
  const int b_row = row, b_column = column;
#endif
  Block<size, size> block;
  for (int64 k0 = 0; k0 < K; k0 += edge) {
    const int64 ka = k0 + a_column, kb = k0 + b_row;
#pragma unroll
    for (int r = 0; r < size * edge; r += edge) {
      const int64 i = tile.row + a_row + r, j = tile.column + b_column + r;
      a_tile[a_row + r][a_column] = i < M && ka < K ? element_a(A, lda, i, ka) : Acc(0);
      b_tile[b_row][b_column + r] = kb < K && j < N ? element_b(B, ldb, kb, j) : Acc(0);
    }
    barrier<2>();
    for (int k = 0; k < edge; ++k)
      block.multiply_add({a_tile[row][k], a_tile[row + edge][k]},
                         {b_tile[k][column], b_tile[k][column + edge]});
    barrier<2>();
  }
  block.store(output, M, N, tile.row + row, edge, tile.column + column, edge);
}
