// gemm_vector: a CPU micro-kernel on explicit vectors, packed panels, cache blocking.
//
// A work-group is one work-item: a thread of the CPU, which computes a block of C of `block_rows` x
// `block_columns` in the loops of BLIS (Van Zee, van de Geijn 2015), innermost first:
//
//        NR            micro-kernel   MR x NR outputs in vector registers; each step along K loads
//      +-----+                        NR / LANES vectors of B and broadcasts MR elements of A
//   MR |  C  |  <- A   loop over i    the panel of B (KC x NR) stays in the L1 cache
//      +-----+         loop over j    the block of A (rows x KC) stays in the L2 cache
//         ^            loop over p    K in steps of KC
//         B (KC x NR)
//
// Packed A is one panel of MR rows after the other, stored by columns: element (r, k) of a panel is at
// k * MR + r. Packed B is one panel of NR columns, element (k, c) at k * NR + c. Panels hold the type of
// the sums, whatever the type of A and B. Rows and columns outside the matrix are zeros in the panels,
// so the micro-kernel has no edge; only the store has. With FUNLIB_PACKED_B, B has been packed before
// (gemm_pack_panels): panels over all of K, columns j .. j + NR at B + j * K.
//
// Between the steps along K the sums wait in C itself, or, where the type of C is too small for them,
// in `partial`: a block for each work-group of the launch, whose first is number first_group of the
// product.
//
// Parameters: FUNLIB_LANES, elements of a vector register; FUNLIB_MR, rows of the micro-tile;
// FUNLIB_NV, vectors of its width (NR = NV * LANES); FUNLIB_MC, most rows of a block; FUNLIB_KC, the
// step along K.
#include "gemm_vectors.hpp"

namespace funlib {

constexpr int MR = FUNLIB_MR, NV = FUNLIB_NV, NR = lanes * NV;
constexpr int MC = FUNLIB_MC, KC = FUNLIB_KC;
// Whether elements of C can hold sums.
constexpr bool sums_fit = sizeof(Out) == sizeof(Acc);

// Panels of MR rows of op(A), rows i .. i + rows, columns p .. p + depth.
inline void pack_a(const T* A, int64 lda, int64 i, int rows, int64 p, int depth, Acc* packed) {
  for (int first = 0; first < rows; first += MR, packed += MR * depth) {
    const int present = rows - first < MR ? rows - first : MR;
#if FUNLIB_TRANSPOSE_A
    const T* from = A + p * lda + i + first;
    for (int k = 0; k < depth; ++k)
      for (int r = 0; r < MR; ++r)
        packed[k * MR + r] = r < present ? Acc(from[k * lda + r]) : Acc(0);
#else
    for (int r = 0; r < MR; ++r) {
      const T* from = A + (i + first + r) * lda + p;
      if (r < present)
        for (int k = 0; k < depth; ++k) packed[k * MR + r] = Acc(from[k]);
      else
        for (int k = 0; k < depth; ++k) packed[k * MR + r] = Acc(0);
    }
#endif
  }
}

// One panel of NR columns of op(B), rows p .. p + depth, columns j .. j + columns: `packed`, or where
// it lies already.
inline const Acc* pack_b(const T* B, int64 ldb, int64 K, int64 p, int depth, int64 j, int columns,
                         Acc* packed) {
#if FUNLIB_PACKED_B
  const T* from = B + j * K + p * NR;
  if constexpr (__is_same(T, Acc)) return from;
  for (int n = 0; n < depth * NR; n += lanes) store(packed + n, load(from + n));
#elif FUNLIB_TRANSPOSE_B
  for (int c = 0; c < NR; ++c) {
    const T* from = B + (j + c) * ldb + p;
    if (c < columns)
      for (int k = 0; k < depth; ++k) packed[k * NR + c] = Acc(from[k]);
    else
      for (int k = 0; k < depth; ++k) packed[k * NR + c] = Acc(0);
  }
#else
  const T* from = B + p * ldb + j;
  if (columns == NR) {
    for (int k = 0; k < depth; ++k)
#pragma unroll
      for (int v = 0; v < NV; ++v)
        store(packed + k * NR + v * lanes, load(from + k * ldb + v * lanes));
  } else {
    for (int k = 0; k < depth; ++k)
      for (int c = 0; c < NR; ++c)
        packed[k * NR + c] = c < columns ? Acc(from[k * ldb + c]) : Acc(0);
  }
#endif
  return packed;
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

// Where sums go after a step along K.
struct Step {
  bool first, last;
  Acc alpha, beta;

  // A vector of outputs. `partial` is C when C can hold the sums.
  void finish(Vector sum, Acc* partial, Out* C, const Out* bias) const {
    Vector value = Vector(alpha) * sum;
    if (!first) value += load(partial);
    if (beta != Acc(0) && (sums_fit ? first : last))
      value = multiply_add(Vector(beta), load(C), value);
    if (!last) return store(partial, value);
#if FUNLIB_BIAS == FUNLIB_BIAS_ROW
    value += load(bias);
#elif FUNLIB_BIAS == FUNLIB_BIAS_COLUMN
    value += Vector(Acc(*bias));
#endif
    store(C, activate<FUNLIB_ACTIVATION>(value));
  }
  // The first `count` outputs of a vector.
  void finish(Vector sum, Acc* partial, Out* C, const Out* bias, int count) const {
    Acc partials[lanes] = {};
    Out outputs[lanes] = {}, biases[lanes] = {};
    const bool reads_c = sums_fit ? !first || beta != Acc(0) : last && beta != Acc(0);
    for (int l = 0; l < count; ++l) {
      if (reads_c) outputs[l] = C[l];
      if (!sums_fit && !first) partials[l] = partial[l];
#if FUNLIB_BIAS
      biases[l] = bias[FUNLIB_BIAS == FUNLIB_BIAS_ROW ? l : 0];
#endif
    }
    finish(sum, sums_fit ? reinterpret_cast<Acc*>(outputs) : partials, outputs, biases);
    for (int l = 0; l < count; ++l) {
      if (last || sums_fit)
        C[l] = outputs[l];
      else
        partial[l] = partials[l];
    }
  }
};

}  // namespace funlib

FUNLIB_KERNEL(2, 1, 1)
void gemm_vector(FUNLIB_GEMM_ARGUMENTS, funlib::int64 block_rows, funlib::int64 block_columns,
                 funlib::int64 first_group, funlib::Acc* partials) {
  using namespace funlib;
  FUNLIB_LOCAL(Acc[MC * KC + KC * NR]) scratch;
  Acc* const a_panels = &scratch[0];
  Acc* const b_scratch = a_panels + MC * KC;
  const int64 group = group_id<2>(1);
  const Tile block =
      output_tile(M, N, block_rows, block_columns, batches, A, B, C, first_group + group);
  const int rows = int(min(block_rows, M - block.row));
  const int64 end = min(N, block.column + block_columns);
  Acc* partial = partials + group * block_rows * block_columns;
  int64 partial_ld = block_columns;
  if constexpr (sums_fit) {
    partial = reinterpret_cast<Acc*>(C) + block.row * ldc + block.column;
    partial_ld = ldc;
  }
  // K == 0 still scales C.
  for (int64 p = 0; p == 0 || p < K; p += KC) {
    const int depth = int(min(K - p, KC));
    const Step step{p == 0, p + KC >= K, Acc(alpha), Acc(beta)};
    pack_a(A, lda, block.row, rows, p, depth, a_panels);
    for (int64 j = block.column; j < end; j += NR) {
      const int columns = int(min(end - j, NR));
      const Acc* const b_panel = pack_b(B, ldb, K, p, depth, j, columns, b_scratch);
      for (int i = 0; i < rows; i += MR) {
        Vector sum[MR][NV];
        micro_kernel(depth, a_panels + int64(i) * depth, b_panel, sum);
#pragma unroll
        for (int r = 0; r < MR; ++r)
#pragma unroll
          for (int v = 0; v < NV; ++v) {
            const int column = v * lanes;
            if (i + r >= rows || column >= columns) continue;
            Acc* const between = partial + (i + r) * partial_ld + j - block.column + column;
            Out* const to = C + (block.row + i + r) * ldc + j + column;
            const Out* const added =
                bias + (FUNLIB_BIAS == FUNLIB_BIAS_ROW ? j + column : block.row + i + r);
            if (columns - column >= lanes)
              step.finish(sum[r][v], between, to, added);
            else
              step.finish(sum[r][v], between, to, added, columns - column);
          }
      }
    }
  }
}
