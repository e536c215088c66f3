// gemm_vector: a CPU micro-kernel on explicit vectors, packed panels, cache blocking.
//
// A work-group is one work-item: a thread of the CPU, which computes a block of C of `block_rows` x
// `block_columns` in the loops of BLIS (Van Zee, van de Geijn 2015), innermost first:
//
//        NR            micro-kernel   MR x NR outputs in vector registers; each step along K loads
//      +-----+                        NR / LANES vectors of B and broadcasts MR elements of A
//   MR |  C  |  <- A   loop over i    the panel of B (KC x NR) stays in the L1 cache
//      +-----+         loop over j    the block of A (rows x KC) stays in the L2 cache
//         ^            loop over p    K in steps of KC; the first scales C by beta, the others add
//         B (KC x NR)
//
// Packed A is one panel of MR rows after the other, stored by columns: element (r, k) of a panel is at
// k * MR + r. Packed B is one panel of NR columns, element (k, c) at k * NR + c. Rows and columns
// outside the matrix are zeros in the panels, so the micro-kernel has no edge; only the store has.
//
// Parameters: FUNLIB_LANES, elements of a vector register; FUNLIB_MR, rows of the micro-tile;
// FUNLIB_NV, vectors of its width (NR = NV * LANES); FUNLIB_MC, most rows of a block; FUNLIB_KC, the
// step along K.
#include "gemm_vectors.hpp"

namespace funlib {

constexpr int MR = FUNLIB_MR, NV = FUNLIB_NV, NR = lanes * NV;
constexpr int MC = FUNLIB_MC, KC = FUNLIB_KC;

// Panels of MR rows of op(A), rows i .. i + rows, columns p .. p + depth.
inline void pack_a(const Acc* A, int64 lda, int64 i, int rows, int64 p, int depth, Acc* packed) {
  for (int first = 0; first < rows; first += MR, packed += MR * depth) {
    const int present = rows - first < MR ? rows - first : MR;
#if FUNLIB_TRANSPOSE_A
    const Acc* from = A + p * lda + i + first;
    for (int k = 0; k < depth; ++k)
      for (int r = 0; r < MR; ++r) packed[k * MR + r] = r < present ? from[k * lda + r] : Acc(0);
#else
    for (int r = 0; r < MR; ++r) {
      const Acc* from = A + (i + first + r) * lda + p;
      if (r < present)
        for (int k = 0; k < depth; ++k) packed[k * MR + r] = from[k];
      else
        for (int k = 0; k < depth; ++k) packed[k * MR + r] = Acc(0);
    }
#endif
  }
}

// One panel of NR columns of op(B), rows p .. p + depth, columns j .. j + columns.
inline void pack_b(const Acc* B, int64 ldb, int64 p, int depth, int64 j, int columns, Acc* packed) {
#if FUNLIB_TRANSPOSE_B
  for (int c = 0; c < NR; ++c) {
    const Acc* from = B + (j + c) * ldb + p;
    if (c < columns)
      for (int k = 0; k < depth; ++k) packed[k * NR + c] = from[k];
    else
      for (int k = 0; k < depth; ++k) packed[k * NR + c] = Acc(0);
  }
#else
  const Acc* from = B + p * ldb + j;
  if (columns == NR) {
    for (int k = 0; k < depth; ++k)
#pragma unroll
      for (int v = 0; v < NV; ++v)
        store(packed + k * NR + v * lanes, load(from + k * ldb + v * lanes));
  } else {
    for (int k = 0; k < depth; ++k)
      for (int c = 0; c < NR; ++c) packed[k * NR + c] = c < columns ? from[k * ldb + c] : Acc(0);
  }
#endif
}

// The product of one panel of A and one of B, in registers.
inline void micro_kernel(int depth, const Acc* a, const Acc* b, Vector (&sum)[MR][NV]) {
#pragma unroll
  for (int r = 0; r < MR; ++r)
#pragma unroll
    for (int v = 0; v < NV; ++v) sum[r][v] = Vector(Acc(0));
  for (int k = 0; k < depth; ++k) {
    Vector row[NV];
#pragma unroll
    for (int v = 0; v < NV; ++v) row[v] = load(b + k * NR + v * lanes);
#pragma unroll
    for (int r = 0; r < MR; ++r) {
      const Vector element = Vector(a[k * MR + r]);
#pragma unroll
      for (int v = 0; v < NV; ++v) sum[r][v] = multiply_add(element, row[v], sum[r][v]);
    }
  }
}

// C = alpha * sum + beta * C for a whole micro-tile; C is not read when beta is 0.
inline void store_tile(Acc* C, int64 ldc, const Vector (&sum)[MR][NV], Acc alpha, Acc beta) {
#pragma unroll
  for (int r = 0; r < MR; ++r)
#pragma unroll
    for (int v = 0; v < NV; ++v) {
      Acc* to = C + r * ldc + v * lanes;
      Vector value = Vector(alpha) * sum[r][v];
      if (beta != Acc(0)) value = multiply_add(Vector(beta), load(to), value);
      store(to, value);
    }
}

// The same for the rows and columns of it that are inside the matrix.
inline void store_edge(Acc* C, int64 ldc, const Vector (&sum)[MR][NV], Acc alpha, Acc beta,
                       int rows, int columns, Acc* tile) {
#pragma unroll
  for (int r = 0; r < MR; ++r)
#pragma unroll
    for (int v = 0; v < NV; ++v) store(tile + r * NR + v * lanes, Vector(alpha) * sum[r][v]);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      Acc value = tile[r * NR + c];
      if (beta != Acc(0)) value += beta * C[r * ldc + c];
      C[r * ldc + c] = value;
    }
}

}  // namespace funlib

FUNLIB_KERNEL(2, 1, 1)
void gemm_vector(FUNLIB_GEMM_ARGUMENTS, funlib::int64 block_rows, funlib::int64 block_columns) {
  using namespace funlib;
  FUNLIB_LOCAL(Acc[MC * KC + KC * NR + MR * NR]) scratch;
  Acc* const a_panels = &scratch[0];
  Acc* const b_panel = a_panels + MC * KC;
  Acc* const tile = b_panel + KC * NR;
  const Tile block = output_tile(N, int(block_rows), int(block_columns));
  const int rows = int(min(block_rows, M - block.row));
  const int64 end = min(N, block.column + block_columns);
  // K == 0 still scales C.
  for (int64 p = 0; p == 0 || p < K; p += KC) {
    const int depth = int(min(K - p, KC));
    const Acc scale = p == 0 ? Acc(beta) : Acc(1);
    pack_a(reinterpret_cast<const Acc*>(A), lda, block.row, rows, p, depth, a_panels);
    for (int64 j = block.column; j < end; j += NR) {
      const int columns = int(min(end - j, NR));
      pack_b(reinterpret_cast<const Acc*>(B), ldb, p, depth, j, columns, b_panel);
      for (int i = 0; i < rows; i += MR) {
        Vector sum[MR][NV];
        micro_kernel(depth, a_panels + int64(i) * depth, b_panel, sum);
        Acc* const to = reinterpret_cast<Acc*>(C) + (block.row + i) * ldc + j;
        if (rows - i >= MR && columns == NR)
          store_tile(to, ldc, sum, Acc(alpha), scale);
        else
          store_edge(to, ldc, sum, Acc(alpha), scale, rows - i < MR ? rows - i : MR, columns, tile);
      }
    }
  }
}
