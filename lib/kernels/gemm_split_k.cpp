// gemm_split_k: few outputs, long K: several work-groups share the sum of one output tile.
//
//            B [ 0 ]      Tiles of C alone would give too few work-groups to fill the device, each
//              [ 1 ]      with a long way along K. So K is cut into slices of `depth`, and each slice
//              [ 2 ]      of each tile is the work of one work-group:
//   A                         group = slice * tiles + tile
//   [ 0 | 1 | 2 ]  [C]    Slice s writes its product at C + s * M * ldc, which is a workspace;
//                         gemm_sum_slices then adds them up in the order of s. No atomics: the same
//                         call gives the same bits.
//
// Within a slice this is gemm_tiled_blocked2x2. One slice means that there were tiles enough: C is
// then the result itself. How many slices there are is for the host to say (split_k_plan).
//
// Parameters: FUNLIB_EDGE, the edge of the square work-group and the step along K. FUNLIB_DEPTH, the
// least depth of a slice, is the host's.
#include "gemm_block.hpp"

FUNLIB_KERNEL(2, FUNLIB_EDGE, FUNLIB_EDGE)
void gemm_split_k(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  const int64 depth = shape.extra[0], slices = shape.extra[1];
  constexpr int edge = FUNLIB_EDGE, size = 2, width = size * edge;
  FUNLIB_LOCAL(Acc[width][edge]) a_tile;
  FUNLIB_LOCAL(Acc[edge][width]) b_tile;
  const int64 tiles = (M + width - 1) / width * ((N + width - 1) / width);
  const int64 group = group_id<2>(1), slice = group / tiles % slices;
  const Tile tile = output_tile(M, N, width, width, batches, A, B, C,
                                group / (tiles * slices) * tiles + group % tiles);
  const Output output(C + slice * M * ldc, ldc, alpha, beta, bias);
  const int64 end = min(K, (slice + 1) * depth);
  const int row = local_id<2>(0), column = local_id<2>(1);
  const int64 i = tile.row + row, j = tile.column + column;
  Block<size, size> block;
  for (int64 k0 = slice * depth; k0 < end; k0 += edge) {
    const int64 ka = k0 + column, kb = k0 + row;
#pragma unroll
    for (int e = 0; e < width; e += edge) {
      a_tile[row + e][column] = i + e < M && ka < end ? element_a(A, lda, i + e, ka) : Acc(0);
      b_tile[row][column + e] = kb < end && j + e < N ? element_b(B, ldb, kb, j + e) : Acc(0);
    }
    barrier<2>();
    for (int k = 0; k < edge; ++k)
      block.multiply_add({a_tile[row][k], a_tile[row + edge][k]},
                         {b_tile[k][column], b_tile[k][column + edge]});
    barrier<2>();
  }
  block.store(output, M, N, i, edge, j, edge);
}
