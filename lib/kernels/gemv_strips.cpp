// gemv_strips: few rows of A times a whole B, in strips of columns that are shared out evenly.
//
//            B, K x N                                  a strip, `width` vectors
//       [   |       |       |   ]                        x = 0   1   2  ..
//       [   | strip |       |   ]      k + 0 .. STEPS-1  [  b   b   b  .. ]   g = 0
//       [   |       |       |   ]      + STEPS ..        [  b   b   b  .. ]   g = 1
//                                      ..
//
// As in gemv, the time is that of reading B once. A work-group has a strip of B from top to bottom, so
// that no sums have to meet in global memory. The host makes strips as wide as gives each compute unit
// one (or two, ..): of strips of a fixed width, the last round would leave most units idle. Wider strips
// also mean that A, of which each work-group reads all, is read less often.
//
// A vector is 16 bytes of a row of B. Work-item (g, x) has vector x of rows g * STEPS .. + STEPS - 1, and
// goes on by those of all groups. It asks for STEPS vectors before it uses the first: what counts is how
// many bytes are on their way.
//
// The groups' sums meet in local memory, a few rows at a time: each output is added up by a few
// work-items over some of the groups each, then by one. The order is fixed: same call, same bits.
//
// Parameters: FUNLIB_ROWS, of a tile of C; FUNLIB_WORK_ITEMS, of a work-group; FUNLIB_STEPS. The width of
// a strip is the host's. B is not transposed, and its rows are whole vectors.
#include "gemm_common.hpp"

namespace funlib {

constexpr int ROWS = FUNLIB_ROWS, STEPS = FUNLIB_STEPS, work_items = FUNLIB_WORK_ITEMS;
constexpr int W = 16 / sizeof(T);
constexpr int most_at_once = sizeof(T) == 1 ? 2 : 4;
constexpr int rows_at_once = ROWS < most_at_once ? ROWS : most_at_once;
using Sums = VectorOf<Acc, W>;

inline Sums vector_of_b(const T* from) {
  return widen<T, W>(read_once(reinterpret_cast<const VectorOf<T, W>*>(from)));
}

// STEPS elements of a row of op(A).
inline void read_a(const T* A, int64 lda, Acc (&a)[STEPS]) {
#if FUNLIB_ALIGNED_A && !FUNLIB_TRANSPOSE_A
  constexpr int together = STEPS < W ? STEPS : W;
#pragma unroll
  for (int s = 0; s < STEPS; s += together) {
    const auto value = widen<T, together>(*reinterpret_cast<const VectorOf<T, together>*>(A + s));
#pragma unroll
    for (int e = 0; e < together; ++e) a[s + e] = value[e];
  }
#else
#pragma unroll
  for (int s = 0; s < STEPS; ++s) a[s] = element_a(A, lda, 0, s);
#endif
}

}  // namespace funlib

FUNLIB_KERNEL(2, 1, FUNLIB_WORK_ITEMS)
FUNLIB_INLINE void gemv_strips(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  FUNLIB_LOCAL(Sums[work_items * rows_at_once]) exchange;
  // What would take divisions comes from the host.
  const unsigned width = unsigned(shape.extra[0]), groups = unsigned(shape.extra[1]);
  const unsigned strips = unsigned(shape.extra[2]), shares = unsigned(shape.extra[3]);
  const unsigned item = unsigned(local_id<2>(1)), g = item / width, x = item - g * width;
  unsigned n = unsigned(group_id<2>(1)), row = 0;
#if FUNLIB_BATCHED
  const unsigned down = unsigned((M + ROWS - 1) / ROWS);
  output_tile(ROWS, 1, ROWS, 1, batches, A, B, C, n / (strips * down));
  n %= strips * down;
#endif
  if (M > ROWS) {
    row = n / strips * ROWS;
    n %= strips;
  }
  const int64 first_column = int64(n) * width * W;
  const int64 column = min(first_column + x * W, N - W);
  Sums sum[ROWS] = {};
  constexpr int64 a_down = FUNLIB_TRANSPOSE_A ? 1 : 0, a_along = 1 - a_down;
  const int64 a_row = a_down + a_along * lda, a_step = a_along + a_down * lda;
  // Rows beyond the matrix are read from its last one.
  Offset rows[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) rows[r] = Offset(min(r, M - 1 - row)) * Offset(a_row);
  if (g < groups) {
    int64 k = int64(g) * STEPS;
    const T* a_from = A + row * a_row + k * a_step;
    const T* b_from = B + k * ldb + column;
    const int64 stride = int64(groups) * STEPS, a_stride = stride * a_step, b_stride = stride * ldb;
#pragma unroll 1
    for (; k + STEPS <= K; k += stride, a_from += a_stride, b_from += b_stride) {
      Sums b[STEPS];
#pragma unroll
      for (int s = 0; s < STEPS; ++s) b[s] = vector_of_b(b_from + s * ldb);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        Acc a[STEPS];
        read_a(a_from + rows[r], lda, a);
#pragma unroll
        for (int s = 0; s < STEPS; ++s) sum[r] += a[s] * b[s];
      }
    }
#pragma unroll 1
    for (; k < K; ++k, a_from += a_step, b_from += ldb) {
      const Sums b = vector_of_b(b_from);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sum[r] += Acc(a_from[rows[r]]) * b;
    }
  }
  const Output output(C, ldc, alpha, beta, bias);
  const unsigned vectors = rows_at_once * width, share = item / vectors;
  const unsigned vector = item - share * vectors, r = vector / width;
#pragma unroll
  for (int first = 0; first < ROWS; first += rows_at_once) {
    if (first > 0) barrier<2>();
    if (g < groups)
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i) exchange[g * vectors + i * width + x] = sum[first + i];
    barrier<2>();
    Sums total = Sums(Acc(0));
    if (share < shares)
#pragma unroll 4
      for (unsigned from = share; from < groups; from += shares)
        total += exchange[from * vectors + vector];
    barrier<2>();
    if (share < shares) exchange[share * vectors + vector] = total;
    barrier<2>();
    const int64 i = row + first + r, j = first_column + (vector - r * width) * W;
    if (share == 0 && i < M && j < N) {
#pragma unroll 4
      for (unsigned from = 1; from < shares; ++from) total += exchange[from * vectors + vector];
#pragma unroll
      for (int e = 0; e < W; ++e) output.store(i, j + e, total[e]);
    }
  }
}
