// gemm_register_blocked: large tiles, 8 x 8 outputs a work-item, vectors in and out of memory.
//
//               B tile, TILE_K x TILE_N                    A work-item's BLOCK_M x BLOCK_N outputs
//              [ k0 .. k0+TILE_K ]                         lie in squares of V x V:
//                       |                                    rows     (q * down   + y) * V + e
//  A tile  [k0 ..] -> [  C tile, TILE_M x TILE_N  ]          columns  (q * across + x) * V + e
//  TILE_M x TILE_K                                         q = 0, 1, ..; e = 0 .. V-1; (y, x) is the
//                                                          work-item, down = TILE_M / BLOCK_M,
//                                                          across = TILE_N / BLOCK_N
//
// Registers are the fastest memory and the largest one on a GPU: 8 x 8 outputs need 16 operands for 64
// multiply-adds, a quarter of a load each, where 2 x 2 outputs need one. A tile of 128 x 128 reads
// each element of A and B once for 128 multiply-adds.
//
// A vector has V elements, 16 bytes. Both tiles are kept with k outermost, so that operands come from
// local memory as vectors, and neighbours (x, x+1) read neighbouring vectors. From global memory a
// work-item loads vectors along the direction in which the operand is stored; where that is k, the
// vector is spread over V rows of the tile. One vector of padding a row keeps these writes from
// meeting in one bank. A vector that is not wholly inside, or an operand that is not aligned to
// vectors, is loaded by elements; outside is zero, as in gemm_tiled.
//
// Parameters: FUNLIB_TILE_M, FUNLIB_TILE_N, FUNLIB_TILE_K, the tiles; FUNLIB_BLOCK_M, FUNLIB_BLOCK_N,
// the outputs of a work-item; BLOCK divides TILE, V divides BLOCK and TILE_K. FUNLIB_SUB_GROUP, the
// size of the sub-groups or 0 for the compiler's choice: where lanes share a register file (Intel),
// twice the lanes have half the registers each, and 64 sums spill.
#include "gemm_run.hpp"

namespace funlib {

constexpr int TILE_M = FUNLIB_TILE_M, TILE_N = FUNLIB_TILE_N, TILE_K = FUNLIB_TILE_K;
constexpr int BLOCK_M = FUNLIB_BLOCK_M, BLOCK_N = FUNLIB_BLOCK_N;
constexpr int down = TILE_M / BLOCK_M, across = TILE_N / BLOCK_N, work_items = down * across;

// Steps along K that are unrolled. A product of int32 takes several instructions and registers on
// Intel GPUs: several steps at once would spill.
constexpr int unrolled = FUNLIB_INTEGER ? 1 : 8;

// V elements of a line from `run` on; zeros outside.
inline Vector load(const T* X, int64 ld, int64 line, int64 lines, int64 run, int64 length,
                   bool aligned) {
  const T* const from = X + line * ld + run;
  if (aligned && line < lines && run + V <= length)
    return widen<T, V>(*reinterpret_cast<const Elements<T>*>(from));
  Vector value = Vector(Acc(0));
#pragma unroll
  for (int e = 0; e < V; ++e)
    if (line < lines && run + e < length) value[e] = Acc(from[e]);
  return value;
}

// Fills a tile of TILE_K x Width: rows k0 .. of K, columns first .. of `extent`. AlongK: X is stored
// with k running fastest, as A is and a transposed B.
template <bool AlongK, int Width>
inline void load_tile(const T* X, int64 ld, int64 first, int64 extent, int64 k0, int64 K,
                      bool aligned, Vector (*tile)[Width / V + 1]) {
  const int item = local_id<2>(0) * across + local_id<2>(1);
#pragma unroll
  for (int n = item; n < TILE_K * Width / V; n += work_items) {
    if constexpr (AlongK) {
      const int line = n / (TILE_K / V), run = n % (TILE_K / V) * V;
      const Vector value = load(X, ld, first + line, extent, k0 + run, K, aligned);
      // By elements: assigning to one of a vector may rewrite all of it, and neighbours own the others.
#pragma unroll
      for (int e = 0; e < V; ++e)
        reinterpret_cast<Acc*>(&tile[run + e][line / V])[line % V] = value[e];
    } else {
      const int line = n / (Width / V), run = n % (Width / V);
      tile[line][run] = load(X, ld, k0 + line, K, first + run * V, extent, aligned);
    }
  }
}

}  // namespace funlib

FUNLIB_KERNEL(2, FUNLIB_TILE_M / FUNLIB_BLOCK_M, FUNLIB_TILE_N / FUNLIB_BLOCK_N)
#if FUNLIB_SUB_GROUP > 0
FUNLIB_SUB_GROUP_SIZE(FUNLIB_SUB_GROUP)
#endif
void gemm_register_blocked(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  FUNLIB_LOCAL(Vector[TILE_K][TILE_M / V + 1]) a_tile;
  FUNLIB_LOCAL(Vector[TILE_K][TILE_N / V + 1]) b_tile;
  const Tile tile = output_tile(M, N, TILE_M, TILE_N, batches, A, B, C);
  const Output output(C, ldc, alpha, beta, bias);
  const int y = local_id<2>(0), x = local_id<2>(1);
  const bool a_aligned = is_aligned(A, lda), b_aligned = is_aligned(B, ldb);
  Block<BLOCK_M, BLOCK_N> block;
  for (int64 k0 = 0; k0 < K; k0 += TILE_K) {
    load_tile<!FUNLIB_TRANSPOSE_A, TILE_M>(A, lda, tile.row, M, k0, K, a_aligned, &a_tile[0]);
    load_tile<FUNLIB_TRANSPOSE_B, TILE_N>(B, ldb, tile.column, N, k0, K, b_aligned, &b_tile[0]);
    barrier<2>();
#pragma unroll unrolled
    for (int k = 0; k < TILE_K; ++k) {
      Acc a[BLOCK_M], b[BLOCK_N];
#pragma unroll
      for (int q = 0; q < BLOCK_M / V; ++q) {
        const Vector value = a_tile[k][q * down + y];
#pragma unroll
        for (int e = 0; e < V; ++e) a[q * V + e] = value[e];
      }
#pragma unroll
      for (int q = 0; q < BLOCK_N / V; ++q) {
        const Vector value = b_tile[k][q * across + x];
#pragma unroll
        for (int e = 0; e < V; ++e) b[q * V + e] = value[e];
      }
      block.multiply_add(a, b);
    }
    barrier<2>();
  }
  const bool c_aligned = is_aligned(C, ldc);
#pragma unroll
  for (int r = 0; r < BLOCK_M; ++r)
#pragma unroll
    for (int q = 0; q < BLOCK_N / V; ++q)
      store_run(output, M, N, tile.row + (r / V * down + y) * V + r % V,
                tile.column + (q * across + x) * V, &block.sum[r][q * V], c_aligned);
}
