// gemv_strips: few rows of A times a whole B, in strips of columns, each of one work-group.
//
//            B, K x N                                  a strip, WIDTH vectors
//       [   |       |       |   ]                        x = 0   1   2  ..
//       [   | strip |       |   ]      k + 0 .. STEPS-1  [  b   b   b  .. ]   lanes 0 .. WIDTH-1
//       [   |       |       |   ]      + STEPS ..        [  b   b   b  .. ]   the next WIDTH lanes
//                                      ..
//
// As in gemv, the time is that of reading B once. A work-group has a strip of B from top to bottom, so
// that no sums have to meet in global memory. Where there are more strips than compute units, it has a
// run of them, and asks for the start of the next one before it adds up the sums of the last.
//
// A vector is 16 bytes of a row of B. WIDTH lanes have STEPS rows of the strip, the lanes of all
// sub-groups a block of them, and go on by such blocks. A lane asks for all its vectors of a block before
// it uses the first: what counts is how many bytes are on their way.
//
// An element of A is used by WIDTH lanes only, and all work-groups want the same ones at once. A
// sub-group copies its own part of A to local memory while it multiplies by the part before: no other
// sub-group waits for that. (Where A's rows are no whole vectors, each lane reads what it multiplies by.)
//
// The sums of a sub-group meet by exchange: each time, a lane gives half of its rows away. Those of the
// sub-groups are added up through local memory. The order is fixed: same call, same bits.
//
// Parameters: FUNLIB_ROWS, of a tile of C; FUNLIB_WIDTH; FUNLIB_SUB_GROUP, lanes; FUNLIB_SUB_GROUPS, of a
// work-group; FUNLIB_STEPS. B is not transposed, and its rows are whole vectors.
#include "funlib_copy.hpp"
#include "funlib_sub_group.hpp"
#include "gemm_common.hpp"

namespace funlib {

constexpr int ROWS = FUNLIB_ROWS, WIDTH = FUNLIB_WIDTH, STEPS = FUNLIB_STEPS;
constexpr int lanes = FUNLIB_SUB_GROUP, sub_groups = FUNLIB_SUB_GROUPS;
constexpr int W = 16 / sizeof(T);
using Vector = VectorOf<T, W>;
using Sums = VectorOf<Acc, W>;

// Of a sub-group: rows of B in its part of a block.
constexpr int depth = lanes / WIDTH * STEPS;
constexpr int columns = WIDTH * W;

// Rows of op(A) are whole vectors; and there are enough of them to be worth copying.
constexpr bool vectors_a = FUNLIB_ALIGNED_A && !FUNLIB_TRANSPOSE_A;
constexpr bool copies_a = vectors_a && ROWS >= 4 && depth % W == 0;

// Elements of a row of op(A) that are read together: their rows of B are in registers in the type of sums.
constexpr int most_together = 64 / W < W ? 64 / W : W;
constexpr int together = STEPS < most_together ? STEPS : most_together;

// Of a block: rows of B. And the number of blocks that have, as all before, `count` rows from row k on.
constexpr int stride = sub_groups * depth;
inline int blocks_with(int64 k, int count, int64 K) {
  return k + count > K ? 0 : int((K - k - count) / stride) + 1;
}

// The parts of A that a sub-group copies, ROWS x depth elements each, vector by vector.
struct PartsOfA {
  static constexpr int along = copies_a ? depth / W : 1, vectors = ROWS * along;
  static constexpr int each = (vectors + lanes - 1) / lanes;  // of a lane
  const T* from[each];
  int copied[each];  // blocks whose vector is copied
  T* local;

  PartsOfA(const T* A, int64 lda, int last_row, int64 k, int64 K, int blocks, T* local, int lane)
      : local(local + lane * W) {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int vector = lane + i * lanes;
      from[i] = A + min(vector / along, last_row) * lda + k + vector % along * W;
      const int found = vector < vectors ? blocks_with(k + vector % along * W, W, K) : 0;
      copied[i] = found < blocks ? found : blocks;
    }
  }
  // Starts copying the part in a block, if it is one of `blocks`: nobody waits for more.
  void copy(int slot, int block) const {
#pragma unroll
    for (int i = 0; i < each; ++i)
      if (block < copied[i])
        copy_to_local<16>(local_address(local + (slot * vectors + i * lanes) * W),
                          from[i] + int64(block) * stride);
  }
};

// Asks for what is to be read soon. More of it than the start of a strip is no help: what a device reads
// at a time is enough already.
inline void prefetch([[maybe_unused]] const void* from) {
#if defined(__NVPTX__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#endif
}

}  // namespace funlib

FUNLIB_KERNEL(2, FUNLIB_SUB_GROUPS, FUNLIB_SUB_GROUP)
FUNLIB_SUB_GROUP_SIZE(FUNLIB_SUB_GROUP)
FUNLIB_INLINE void gemv_strips(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  constexpr int part = copies_a ? ROWS * depth : 0;  // elements
  FUNLIB_LOCAL(Vector[copies_a ? 2 * sub_groups * part / W : 1]) local;
  FUNLIB_LOCAL(Sums[sub_groups * ROWS * WIDTH]) exchange;
  const unsigned runs = unsigned(shape.extra[0]);
  const int sub_group = local_id<2>(0), lane = local_id<2>(1);
  unsigned n = unsigned(group_id<2>(1)), row = 0;
#if FUNLIB_BATCHED
  const unsigned down = unsigned((M + ROWS - 1) / ROWS);
  output_tile(ROWS, 1, ROWS, 1, batches, A, B, C, n / (runs * down));
  n %= runs * down;
#endif
  if (M > ROWS) {
    row = n / runs * ROWS;
    n %= runs;
  }
  constexpr int64 a_down = FUNLIB_TRANSPOSE_A ? 1 : 0, a_along = 1 - a_down;
  const int64 a_row = a_down + a_along * lda, a_step = a_along + a_down * lda;
  A += row * a_row;
  // Rows beyond the matrix are read from its last one.
  const int last_row = int(min(ROWS, M - row)) - 1;
  const auto row_of_a = [&](int r) { return Offset(min(r, last_row)) * Offset(a_row); };

  const int64 first = int64(sub_group) * depth;
  T* const local_a = reinterpret_cast<T*>(&local[0]) + sub_group * 2 * part;
  // The lane's own first row of B, and blocks that have STEPS rows for it: as many as for any other
  // lane of the sub-group, or one less.
  const int64 own_first = first + lane / WIDTH * STEPS;
  const int blocks = blocks_with(first, STEPS, K), own_blocks = blocks_with(own_first, STEPS, K);
  const PartsOfA parts(A, lda, last_row, first, K, blocks, local_a, lane);
  const T* const a_first = copies_a ? local_a + lane / WIDTH * STEPS : A + own_first * a_step;
  const Output output(C, ldc, alpha, beta, bias);

  Vector b[STEPS];
  const T* b_from;
  const auto read_b = [&] {
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
      b[s] = read_once(reinterpret_cast<const Vector*>(b_from + s * ldb));
    b_from += stride * ldb;
  };
  const auto lane_column = [&](unsigned strip) {
    return min(int64(strip) * columns + lane % WIDTH * W, N - W);
  };
  const auto point_at = [&](unsigned strip) {
    if constexpr (copies_a) parts.copy(0, 0);
    b_from = B + own_first * ldb + lane_column(strip);
  };
  unsigned strip = n * unsigned(shape.extra[1]);
  const unsigned end = unsigned(min(strip + shape.extra[1], (N + columns - 1) / columns));
  point_at(strip);
#pragma unroll 1
  for (; strip < end; ++strip) {
    if (own_blocks > 0) read_b();
    Sums sum[ROWS] = {};
    const T* a_from = a_first;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      if constexpr (copies_a) {
        commit_copies();
        wait_for_copies<0>();
        sub_group_barrier();
        parts.copy((block + 1) % 2, block + 1);
      }
      if (block == own_blocks) break;
#pragma unroll
      for (int s = 0; s < STEPS; s += together) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          Acc a[together];
          const T* const from = a_from + (copies_a ? r * depth : row_of_a(r)) + s * a_step;
          if constexpr (vectors_a) {
            const auto value =
                widen<T, together>(*reinterpret_cast<const VectorOf<T, together>*>(from));
#pragma unroll
            for (int e = 0; e < together; ++e) a[e] = value[e];
          } else {
#pragma unroll
            for (int e = 0; e < together; ++e) a[e] = Acc(from[e * a_step]);
          }
#pragma unroll
          for (int e = 0; e < together; ++e) sum[r] += a[e] * widen<T, W>(b[s + e]);
        }
      }
      if constexpr (copies_a)
        a_from += block % 2 == 0 ? part : -part;
      else
        a_from += stride * a_step;
      if (block + 1 < own_blocks) read_b();
    }
    // Fewer than STEPS rows are left to some lanes.
    const T* const b_column = B + lane_column(strip);
#pragma unroll 1
    for (int64 k = own_first + int64(own_blocks) * stride; k < K; ++k) {
      const Sums last = widen<T, W>(*reinterpret_cast<const Vector*>(b_column + k * ldb));
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sum[r] += Acc(A[row_of_a(r) + k * a_step]) * last;
    }

    barrier<2>();  // nobody reads local memory any more
    if (strip + 1 < end) {
      point_at(strip + 1);
      if (own_blocks > 0)
#pragma unroll
        for (int s = 0; s < STEPS; ++s) prefetch(b_from + s * ldb);
    }
    meet<lanes / 2, WIDTH, ROWS>(sum, lane, &exchange[sub_group * ROWS * WIDTH + lane % WIDTH],
                                 WIDTH);
    barrier<2>();
    const Acc* const sums = reinterpret_cast<const Acc*>(&exchange[0]);
    constexpr int outputs = ROWS * columns;
    for (int i = sub_group * lanes + lane; i < outputs; i += sub_groups * lanes) {
      Acc total = 0;
#pragma unroll
      for (int s = 0; s < sub_groups; ++s) total += sums[s * outputs + i];
      const int64 r = row + i / columns, j = int64(strip) * columns + i % columns;
      if (r < M && j < N) output.store(r, j, total);
    }
  }
}
