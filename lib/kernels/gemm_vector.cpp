// gemm_vector: a CPU micro-kernel on explicit vectors, packed panels, cache blocking.
//
// A work-group is one work-item: a thread of the CPU, which computes a block of C of `block_rows` x
// `block_columns` from parts of B, and mostly of A too, that it packs into panels in its workspace:
//
//        NR            micro-kernel   MR x NR outputs in vector registers; each step along K loads
//      +-----+                        NR / LANES vectors of B and broadcasts MR elements of A
//   MR |  C  |  <- A   loop over j    the panel of A (MR x depth) stays in the L1 cache; B's panels
//      +-----+         loop over i    come one after the other from the L2 cache
//         ^            loop over J    B in blocks of `width` columns, packed for all rows at hand
//         B            loop over I    A in blocks of `height` rows, packed once for all of J or read
//    (depth x NR)                     where it lies
//                      loop over p    K in steps of `depth`; the first scales C by beta, the others add
//
// These are the loops of BLIS (Van Zee, van de Geijn 2015) with the roles of A and B exchanged in the
// caches: along a row of C both C and the packed B are read in order of their addresses, and a panel of
// A, being the narrower, fits the L1 cache with room to spare for them. So narrow a panel needs no
// packing where its rows lie along K: they are MR streams through memory.
//
// Packed A is one panel of MR rows after the other, element (r, k) of a panel at k * MR + r. Packed B is
// one panel of NR columns after the other, element (k, c) at k * NR + c. Panels hold the type of the
// sums, whatever the type of A and B. Rows and columns outside the matrix are zeros in the panels, so
// the micro-kernel has no edge; only the store has. With FUNLIB_PACKED_B, B has been packed before
// (gemm_pack_panels): panels over all of K, columns j .. j + NR at B + j * K.
//
// Between the steps along K the sums wait in C itself, or, where the type of C is too small for them,
// in the workspace.
//
// Parameters: FUNLIB_LANES, elements of a vector register; FUNLIB_MR, rows of the micro-tile;
// FUNLIB_NV, vectors of its width (NR = NV * LANES); FUNLIB_NC and FUNLIB_KC, from which the launch takes
// width and depth, a multiple of 4. A work-group does `blocks` blocks, one after the other, and has
// `elements` of workspace for `packed_rows` rows of A, the packed B and the sums; if `packed_rows` are
// fewer than `height`, A is read where it lies.
#include "gemm_vectors.hpp"

namespace funlib {

constexpr int MR = FUNLIB_MR, NV = FUNLIB_NV, NR = lanes * NV;
// Whether elements of C can hold sums.
constexpr bool sums_fit = sizeof(Out) == sizeof(Acc);
// Whether A can be read where it lies, which the launch decides, and whether packed B is.
constexpr bool a_can_stay = !FUNLIB_TRANSPOSE_A && sizeof(T) == sizeof(Acc);
constexpr bool b_in_place = FUNLIB_PACKED_B && sizeof(T) == sizeof(Acc);

// Starts to fetch a cache line. (The built-in prefetch does not pass through SPIR-V, and OpenCL's does
// nothing on a CPU.)
inline void prefetch(const void* line) { asm volatile("prefetcht0 (%0)" ::"r"(line)); }

// The rows of C for the end of a micro-kernel. Where they begin came with the tile before.
template <int Rows>
inline void prefetch_tile(const Out* C, int64 ldc) {
#pragma unroll
  for (int r = 0; r < Rows; ++r) prefetch(C + r * ldc + NR - 1);
}

// Panels of Width lines of a matrix whose elements lie one after the other along a line: rows of a
// row-major A, columns of a transposed B. Line l starts at from + l * stride; `lines` of them are packed.
template <int Width>
inline void pack_lines(const T* from, int64 stride, int lines, int depth, Acc* packed) {
  constexpr int whole = Width / 4 * 4;
  for (; lines > 0; lines -= Width, from += Width * stride, packed += Width * depth) {
    int k = 0;
    if (lines >= Width)
      for (; k + 4 <= depth; k += 4) {
#pragma unroll
        for (int l = 0; l < whole; l += 4)
          transpose<4>(from + l * stride + k, stride, packed + k * Width + l, Width);
        if constexpr (whole < Width)
          transpose<2>(from + whole * stride + k, stride, packed + k * Width + whole, Width);
      }
    for (; k < depth; ++k)
      for (int l = 0; l < Width; ++l)
        packed[k * Width + l] = l < lines ? Acc(from[l * stride + k]) : Acc(0);
  }
}

// The same for elements that lie one after the other across the lines: a transposed A, a row-major B.
// Element k of line l is at from + k * stride + l. All panels take a row before the next one is read:
// long runs are what the processor's prefetcher sees coming. With `early` it is told where the next ones
// begin.
template <int Width>
inline void pack_across(const T* from, int64 stride, int lines, int depth, bool early,
                        Acc* packed) {
  constexpr int ahead = 4, line = 64 / sizeof(T);
  for (int k = 0; k < depth; ++k, from += stride, packed += Width) {
    if (early && k + ahead < depth)
      for (int l = 0; l < lines; l += line) prefetch(from + ahead * stride + l);
    Acc* to = packed;
    int l = 0;
    for (; l + Width <= lines; l += Width, to += Width * depth) copy<Width>(from + l, to);
    if (l < lines)
      for (int rest = 0; rest < Width; ++rest)
        to[rest] = l + rest < lines ? Acc(from[l + rest]) : Acc(0);
  }
}

// op(A), rows i .. i + rows, columns p .. p + depth.
inline void pack_a(const T* A, int64 lda, int64 i, int rows, int64 p, int depth, Acc* packed) {
#if FUNLIB_TRANSPOSE_A
  pack_across<MR>(A + p * lda + i, lda, rows, depth, false, packed);
#else
  pack_lines<MR>(A + i * lda + p, lda, rows, depth, packed);
#endif
}

// op(B), rows p .. p + depth, columns j .. j + columns.
inline void pack_b(const T* B, int64 ldb, int64 K, int64 p, int depth, int64 j, int columns,
                   bool early, Acc* packed) {
#if FUNLIB_PACKED_B
  for (int c = 0; c < columns; c += NR) {
    const T* const from = B + (j + c) * K + p * NR;
    for (int n = 0; n < depth * NR; n += lanes) store(packed + c * depth + n, load(from + n));
  }
#elif FUNLIB_TRANSPOSE_B
  pack_lines<NR>(B + j * ldb + p, ldb, columns, depth, packed);
#else
  pack_across<NR>(B + p * ldb + j, ldb, columns, depth, early, packed);
#endif
}

// The product of the first Rows rows of a panel of A and a panel of B, in registers. A's is packed or,
// InPlace, has its rows lda apart.
template <int Rows, bool InPlace>
inline void micro_kernel(int depth, const Acc* a, int64 lda, const Acc* b,
                         Vector (&sum)[Rows][NV]) {
#pragma unroll
  for (int r = 0; r < Rows; ++r)
#pragma unroll
    for (int v = 0; v < NV; ++v) sum[r][v] = Vector(Acc(0));
  for (int k = 0; k < depth; ++k) {
    Vector row[NV];
#pragma unroll
    for (int v = 0; v < NV; ++v) row[v] = load(b + k * NR + v * lanes);
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const Vector element = Vector(InPlace ? a[r * lda + k] : a[k * MR + r]);
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
  // A micro-tile, of which `rows` x `columns` are inside the matrix.
  template <int Rows>
  void finish(const Vector (&sum)[Rows][NV], Acc* partial, int64 partial_ld, Out* C, int64 ldc,
              const Out* bias, int rows, int columns) const {
    constexpr bool by_row = FUNLIB_BIAS == FUNLIB_BIAS_ROW;
    if (rows == Rows && columns == NR) {
#pragma unroll
      for (int r = 0; r < Rows; ++r)
#pragma unroll
        for (int v = 0; v < NV; ++v)
          finish(sum[r][v], partial + r * partial_ld + v * lanes, C + r * ldc + v * lanes,
                 bias + (by_row ? v * lanes : r));
      return;
    }
    Vector tile[Rows][NV];
#pragma unroll
    for (int r = 0; r < Rows; ++r)
#pragma unroll
      for (int v = 0; v < NV; ++v) tile[r][v] = sum[r][v];
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v * lanes < columns; ++v) {
        const int column = v * lanes, count = columns - column;
        Acc* const between = partial + r * partial_ld + column;
        Out* const to = C + r * ldc + column;
        const Out* const added = bias + (by_row ? column : r);
        if (count >= lanes)
          finish(tile[r][v], between, to, added);
        else
          finish(tile[r][v], between, to, added, count);
      }
  }
};

// How a block is cut for the caches, and whether A is read where it lies.
struct Blocking {
  int64 height, width, depth;
  bool a_in_place;
};

// A panel of A, of which `rows` are inside the matrix, times the panels of B for `width` columns. Column j
// of B's panels is at b + j * b_ld; `bias` is the first row's or column's. (Inlined one beside the other,
// the three of these leave each other too few registers.)
template <int Rows, bool InPlace>
__attribute__((noinline)) void multiply_panel(int depth, const Acc* a, int64 lda, const Acc* b,
                                              int64 b_ld, const Step& step, Acc* sums,
                                              int64 sums_ld, Out* C, int64 ldc, const Out* bias,
                                              int rows, int width) {
  for (int j = 0; j < width; j += NR) {
    prefetch_tile<Rows>(C + j, ldc);
    Vector sum[Rows][NV];
    micro_kernel<Rows, InPlace>(depth, a, lda, b + j * b_ld, sum);
    step.finish<Rows>(sum, sums + j, sums_ld, C + j, ldc,
                      bias + (FUNLIB_BIAS == FUNLIB_BIAS_ROW ? j : 0), rows,
                      width - j < NR ? width - j : NR);
  }
}

// Rows row .. bottom and columns left .. right of one product. `sums` is where the sums of output
// (0, 0) are between the steps along K.
inline void multiply_block(int64 row, int64 bottom, int64 left, int64 right, int64 K, const T* A,
                           int64 lda, const T* B, int64 ldb, Out* C, int64 ldc, const Out* bias,
                           Acc alpha, Acc beta, Acc* sums, int64 sums_ld, const Blocking& most,
                           Acc* a_panels, Acc* b_panels) {
  // Rows of B ahead are worth fetching where there are many: 1 to 2 % from 512^3 up, and a loss below.
  const bool early = K > most.depth || right - left > most.width;
  // K == 0 still scales C.
  for (int64 p = 0; p == 0 || p < K; p += most.depth) {
    const int depth = int(min(K - p, most.depth));
    const Step step{p == 0, p + most.depth >= K, alpha, beta};
    for (int64 top = row; top < bottom; top += most.height) {
      const int height = int(min(bottom - top, most.height));
      // In place, there is room for the last rows, fewer than a panel has.
      const int in_place = a_can_stay && most.a_in_place ? height / MR * MR : 0;
      pack_a(A, lda, top + in_place, height - in_place, p, depth, a_panels);
      for (int64 column = left; column < right; column += most.width) {
        const int width = int(min(right - column, most.width));
        if constexpr (!b_in_place) pack_b(B, ldb, K, p, depth, column, width, early, b_panels);
        const Acc* b = b_panels;
        if constexpr (b_in_place) b = reinterpret_cast<const Acc*>(B) + column * K + p * NR;
        const int64 b_ld = b_in_place ? K : depth;
        for (int i = 0; i < height; i += MR) {
          const int rows = height - i < MR ? height - i : MR;
          Out* const to = C + (top + i) * ldc + column;
          Acc* const between = sums + (top + i) * sums_ld + column;
          const Out* const added = bias + (FUNLIB_BIAS == FUNLIB_BIAS_ROW ? column : top + i);
          if (i < in_place) {
            const Acc* const a = reinterpret_cast<const Acc*>(A) + (top + i) * lda + p;
            multiply_panel<MR, a_can_stay>(depth, a, lda, b, b_ld, step, between, sums_ld, to, ldc,
                                           added, rows, width);
            continue;
          }
          const Acc* const a = a_panels + (i - in_place) * depth;
          // Half a tile is enough for few rows.
          if (rows <= MR / 2)
            multiply_panel<MR / 2, false>(depth, a, 0, b, b_ld, step, between, sums_ld, to, ldc,
                                          added, rows, width);
          else
            multiply_panel<MR, false>(depth, a, 0, b, b_ld, step, between, sums_ld, to, ldc, added,
                                      rows, width);
        }
      }
    }
  }
}

}  // namespace funlib

FUNLIB_KERNEL(2, 1, 1)
void gemm_vector(FUNLIB_GEMM_ARGUMENTS, funlib::Acc* workspace) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  const int64 block_rows = shape.extra[0], block_columns = shape.extra[1];
  const int64 blocks = shape.extra[2];
  const int64 height = shape.extra[3], width = shape.extra[4], depth = shape.extra[5];
  const int64 packed_rows = shape.extra[6], elements = shape.extra[7];
  Acc* const a_panels = workspace + group_id<2>(1) * elements;
  Acc* const b_panels = a_panels + packed_rows * depth;
  const int64 all =
      (M + block_rows - 1) / block_rows * ((N + block_columns - 1) / block_columns) * batches.count;
  const int64 first = group_id<2>(1) * blocks, end = min(all, first + blocks);
  for (int64 n = first; n < end; ++n) {
    const T *a = A, *b = B;
    Out* c = C;
    const Tile block = output_tile(M, N, block_rows, block_columns, batches, a, b, c, n);
    Acc* sums = b_panels + width * depth - block.row * block_columns - block.column;
    int64 sums_ld = block_columns;
    if constexpr (sums_fit) {
      sums = reinterpret_cast<Acc*>(c);
      sums_ld = ldc;
    }
    multiply_block(block.row, min(M, block.row + block_rows), block.column,
                   min(N, block.column + block_columns), K, a, lda, b, ldb, c, ldc, bias,
                   Acc(alpha), Acc(beta), sums, sums_ld,
                   {height, width, depth, packed_rows < height}, a_panels, b_panels);
  }
}
