// gemv_dots: few rows of A times a transposed B: an output is the product of two lines along K.
//
//      A: ROWS lines           B: COLUMNS lines of N
//                                 lane   0    1    2  ..  + lanes
//      [ a  a  a  a  .. ]      [ b  |  b  |  b  |  .. ]       a vector is 16 bytes
//      [ a  a  a  a  .. ]      [ b  |  b  |  b  |  .. ]
//        from a cache            once, from memory
//
// As in gemv, the time is that of reading B once. A lane has a vector of each of COLUMNS lines, STEPS times,
// and asks for all of them before it uses the first (once only, where A is read by elements); a vector of A, which all sub-groups read and caches
// hold, serves COLUMNS of them. SUB_GROUPS sub-groups share the lines out, a block of STEPS vectors a lane in
// turn, so that few columns are enough to keep a device busy.
//
// Sums of lanes meet by exchange, those of sub-groups through local memory, in fixed order: same call, same
// bits.
//
// Parameters: FUNLIB_ROWS, FUNLIB_COLUMNS, of a tile of C; FUNLIB_SUB_GROUP, lanes; FUNLIB_SUB_GROUPS, of a
// work-group; FUNLIB_STEPS. B is transposed, and its lines are whole vectors.
#include "funlib_sub_group.hpp"
#include "gemm_common.hpp"

namespace funlib {

constexpr bool vectors_a = FUNLIB_ALIGNED_A && !FUNLIB_TRANSPOSE_A;
constexpr int ROWS = FUNLIB_ROWS, COLUMNS = FUNLIB_COLUMNS;
// Single elements of A take too many registers for more.
constexpr int STEPS = vectors_a ? FUNLIB_STEPS : 1;
constexpr int lanes = FUNLIB_SUB_GROUP, sub_groups = FUNLIB_SUB_GROUPS;
constexpr int W = 16 / sizeof(T), outputs = ROWS * COLUMNS;
using Vector = VectorOf<T, W>;
using Sums = VectorOf<Acc, W>;
using Sum = VectorOf<Acc, 1>;

// From a vector of a lane to its next one; from a block of the sub-group to its next one.
constexpr int step = lanes * W, stride = sub_groups * STEPS * step;

// The lines of A that are read, with the last one in place of those beyond it.
struct Lines {
  const T* A;
  int last;
  int64 down, along;

  FUNLIB_INLINE Sums read(int row, int64 k) const {
    const T* const from = A + Offset(row < last ? row : last) * Offset(down) + k * along;
    if constexpr (vectors_a) return widen<T, W>(*reinterpret_cast<const Vector*>(from));
    Sums value;
#pragma unroll
    for (int e = 0; e < W; ++e) value[e] = Acc(from[e * along]);
    return value;
  }
};

// The products with the vectors of A from k on.
FUNLIB_INLINE inline void add(Sum (&sum)[outputs], const Lines& lines, const Vector (&b)[COLUMNS],
                              int64 k) {
  Sums wide[COLUMNS];
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) wide[c] = widen<T, W>(b[c]);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const Sums a = lines.read(r, k);
#pragma unroll
    for (int e = 0; e < W; ++e)
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) sum[r * COLUMNS + c][0] += a[e] * wide[c][e];
  }
}

}  // namespace funlib

FUNLIB_KERNEL(2, FUNLIB_SUB_GROUPS, FUNLIB_SUB_GROUP)
FUNLIB_SUB_GROUP_SIZE(FUNLIB_SUB_GROUP)
FUNLIB_INLINE void gemv_dots(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  FUNLIB_LOCAL(Sum[sub_groups * outputs]) exchange;
  // By 32 bits and without a division where there is nothing to divide: they are slow.
  const unsigned across = unsigned((N + COLUMNS - 1) / COLUMNS);
  unsigned n = unsigned(group_id<2>(1));
#if FUNLIB_BATCHED
  const unsigned down_tiles = unsigned((M + ROWS - 1) / ROWS);
  output_tile(ROWS, 1, ROWS, 1, batches, A, B, C, n / (across * down_tiles));
  n %= across * down_tiles;
#endif
  Tile tile{0, 0};
  if (M > ROWS) {
    tile.row = n / across * ROWS;
    n %= across;
  }
  tile.column = int64(n) * COLUMNS;
  const Output output(C, ldc, alpha, beta, bias);
  const int sub_group = local_id<2>(0), lane = local_id<2>(1);
  constexpr int64 a_down = FUNLIB_TRANSPOSE_A ? 1 : 0, a_along = 1 - a_down;
  const int64 down = a_down + a_along * lda, along = a_along + a_down * lda;
  const Lines lines{A + tile.row * down, int(min(ROWS, M - tile.row)) - 1, down, along};
  // Those beyond the last column are read from that one.
  const T* line[COLUMNS];
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) line[c] = B + min(tile.column + c, N - 1) * ldb;

  Sum sum[outputs] = {};
  int64 k = int64(sub_group) * STEPS * step + lane * W;
#pragma unroll 1
  for (; k + (STEPS - 1) * step < K; k += stride) {
    Vector b[STEPS][COLUMNS];
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c)
        b[s][c] = read_once(reinterpret_cast<const Vector*>(line[c] + k + s * step));
#pragma unroll
    for (int s = 0; s < STEPS; ++s) add(sum, lines, b[s], k + s * step);
  }
  // Fewer than STEPS vectors are left to some lanes.
#pragma unroll 1
  for (; k < K; k += step) {
    Vector b[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) b[c] = *reinterpret_cast<const Vector*>(line[c] + k);
    add(sum, lines, b, k);
  }

  meet<lanes / 2, 1, outputs>(sum, lane, &exchange[sub_group * outputs], 1);
  barrier<2>();
  const Acc* const sums = reinterpret_cast<const Acc*>(&exchange[0]);
  for (int i = sub_group * lanes + lane; i < outputs; i += sub_groups * lanes) {
    Acc total = 0;
#pragma unroll
    for (int s = 0; s < sub_groups; ++s) total += sums[s * outputs + i];
    const int64 r = tile.row + i / COLUMNS, j = tile.column + i % COLUMNS;
    if (r < M && j < N) output.store(r, j, total);
  }
}
