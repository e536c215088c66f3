// gemv_vector: few rows of A (at most 4) times a whole matrix B, on the explicit vectors of a CPU.
//
//            B, row by row                      B, stored transposed
//   a  x   [ ------> ]  block_columns    a  x  [ ------> ]  one column of op(B) is contiguous
//   (k)    [ ------> ]  k, k+1, k+2, ..        [ ------> ]
//             y  (local memory)
//
// Each element of B is used for M multiply-adds only, so the time is that of reading B once, and what
// counts is that it is read in long contiguous runs. Row-major B: a work-group owns a block of columns
// and adds four rows of B at a time to its outputs, which stay in the L1 cache. Transposed B: outputs
// are dot products along contiguous memory, four at a time.
//
// Parameters: FUNLIB_LANES, elements of a vector register; FUNLIB_COLUMNS, most outputs of a block
// (rows times columns): they have to fit the L1 cache.
#include "gemm_vectors.hpp"

namespace funlib {

constexpr int COLUMNS = FUNLIB_COLUMNS, unroll = 4;

#if FUNLIB_TRANSPOSE_B

// Dot products of row i of op(A) with `unroll` columns of op(B) from j.
inline void dot_products(const T* A, int64 lda, const T* B, int64 ldb, int64 K, int64 i, int64 j,
                         int columns, Acc (&out)[unroll]) {
  Vector sum[unroll];
  for (int c = 0; c < unroll; ++c) sum[c] = Vector(Acc(0));
  // Columns past the end repeat the first: computed, never stored.
  const T* from[unroll];
  for (int c = 0; c < unroll; ++c) from[c] = B + (c < columns ? j + c : j) * ldb;
  int64 k = 0;
#if !FUNLIB_TRANSPOSE_A
  for (; k + lanes <= K; k += lanes) {
    const Vector a = load(A + i * lda + k);
#pragma unroll
    for (int c = 0; c < unroll; ++c) sum[c] = multiply_add(a, load(from[c] + k), sum[c]);
  }
#endif
  for (int c = 0; c < unroll; ++c) {
    Acc total = 0;
    for (int l = 0; l < lanes; ++l) total += sum[c][l];
    for (int64 rest = k; rest < K; ++rest) total += element_a(A, lda, i, rest) * Acc(from[c][rest]);
    out[c] = total;
  }
}

#else

// y += a[0 .. count) * rows k .. k + count of B, columns 0 .. columns.
template <int Count>
inline void add_rows(const Acc* a, const T* B, int64 ldb, int columns, Acc* y) {
  Vector element[Count];
#pragma unroll
  for (int u = 0; u < Count; ++u) element[u] = Vector(a[u]);
  int c = 0;
  for (; c + lanes <= columns; c += lanes) {
    Vector sum = load(y + c);
#pragma unroll
    for (int u = 0; u < Count; ++u) sum = multiply_add(element[u], load(B + u * ldb + c), sum);
    store(y + c, sum);
  }
  for (; c < columns; ++c)
    for (int u = 0; u < Count; ++u) y[c] += a[u] * Acc(B[u * ldb + c]);
}

#endif

}  // namespace funlib

FUNLIB_KERNEL(2, 1, 1)
void gemv_vector(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  const int64 block_columns = shape.extra[0];
  const int64 first = output_tile(M, N, M, block_columns, batches, A, B, C).column;
  const Output output(C, ldc, alpha, beta, bias);
  const int64 end = min(N, first + block_columns);
#if FUNLIB_TRANSPOSE_B
  for (int64 j = first; j < end; j += unroll) {
    const int columns = int(min(unroll, end - j));
    for (int64 i = 0; i < M; ++i) {
      Acc sums[unroll];
      dot_products(A, lda, B, ldb, K, i, j, columns, sums);
      for (int c = 0; c < columns; ++c) output.store(i, j + c, sums[c]);
    }
  }
#else
  FUNLIB_LOCAL(Acc[COLUMNS]) y;
  const int columns = int(end - first);
  for (int64 n = 0; n < M * columns; ++n) y[n] = Acc(0);
  int64 k = 0;
  for (; k + unroll <= K; k += unroll)
    for (int64 i = 0; i < M; ++i) {
      Acc elements[unroll];
      for (int u = 0; u < unroll; ++u) elements[u] = element_a(A, lda, i, k + u);
      add_rows<unroll>(elements, B + k * ldb + first, ldb, columns, &y[i * columns]);
    }
  for (; k < K; ++k)
    for (int64 i = 0; i < M; ++i) {
      const Acc element = element_a(A, lda, i, k);
      add_rows<1>(&element, B + k * ldb + first, ldb, columns, &y[i * columns]);
    }
  for (int64 i = 0; i < M; ++i)
    for (int c = 0; c < columns; ++c) output.store(i, first + c, y[i * columns + c]);
#endif
}
