// gemm_double_buffered: gemm_tiled_blocked2x2 with two tiles in turn, so that loading overlaps use.
//
//   step         0            1            2            3
//   global  -> registers: load 1       load 2       load 3        ...
//   buffer 0     [0]  multiply      store 2 [2]  multiply
//   buffer 1               store 1 [1]  multiply      store 3 [3]  ...
//                        ^ barrier    ^ barrier    ^ barrier
//
// With one buffer, a step is load, barrier, multiply, barrier: nobody multiplies while the loads are
// on their way. Here a work-item first asks for its elements of the next tile, multiplies the present
// one while they travel, and then puts them in the other buffer. That buffer was last read before the
// barrier that ended the step before, so one barrier a step suffices. The price is twice the local
// memory, and registers for the elements in flight.
//
// Zeros fill what is outside, as in gemm_tiled.
//
// Parameters: FUNLIB_EDGE, the edge of the square work-group and the step along K.
#include "gemm_block.hpp"

FUNLIB_KERNEL(2, FUNLIB_EDGE, FUNLIB_EDGE)
void gemm_double_buffered(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  constexpr int edge = FUNLIB_EDGE, size = 2;
  FUNLIB_LOCAL(Acc[2][size * edge][edge]) a_tiles;
  FUNLIB_LOCAL(Acc[2][edge][size * edge]) b_tiles;
  const Tile tile = output_tile(M, N, size * edge, size * edge, batches, A, B, C);
  const Output output(C, ldc, alpha, beta, bias);
  const int row = local_id<2>(0), column = local_id<2>(1);
  const int64 i = tile.row + row, j = tile.column + column;
  Acc a_next[size], b_next[size];
  const auto load = [&](int64 k0) {
    const int64 ka = k0 + column, kb = k0 + row;
#pragma unroll
    for (int e = 0; e < size; ++e) {
      a_next[e] = i + e * edge < M && ka < K ? element_a(A, lda, i + e * edge, ka) : Acc(0);
      b_next[e] = kb < K && j + e * edge < N ? element_b(B, ldb, kb, j + e * edge) : Acc(0);
    }
  };
  const auto store = [&](int buffer) {
#pragma unroll
    for (int e = 0; e < size; ++e) {
      a_tiles[buffer][row + e * edge][column] = a_next[e];
      b_tiles[buffer][row][column + e * edge] = b_next[e];
    }
  };
  Block<size, size> block;
  int buffer = 0;
  load(0);
  store(buffer);
  barrier<2>();
  for (int64 k0 = 0; k0 < K; k0 += edge) {
    const bool more = k0 + edge < K;
    if (more) load(k0 + edge);
    for (int k = 0; k < edge; ++k)
      block.multiply_add({a_tiles[buffer][row][k], a_tiles[buffer][row + edge][k]},
                         {b_tiles[buffer][k][column], b_tiles[buffer][k][column + edge]});
    buffer = 1 - buffer;
    if (more) store(buffer);
    barrier<2>();
  }
  block.store(output, M, N, i, edge, j, edge);
}
