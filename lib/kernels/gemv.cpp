// gemv: few rows of A (at most 4) times a whole matrix B, on sub-groups.
//
//   B as it is: lanes along a row            B transposed: lanes along a column of op(B)
//
//         lane 0  1  2 .. | + lanes            line j    lane 0  1  2 ..  then + lanes ->
//   k+0   [ b  b  b ..    | b .. ]  y = 0      line j+1  lane 0  1  2 ..
//   k+1   [ b  b  b ..    | b .. ]  y = 1
//   ..                                         sub-group y: columns y + c * SUB_GROUPS of the run,
//   sub-group y: rows y, y + SUB_GROUPS, ..    the sum over its lanes by one exchange
//
// Each element of B is used for M multiply-adds only, so the time is that of reading B once. What counts
// is that neighbouring lanes read neighbouring addresses, and that enough of them read at the same time.
//
// B as it is: the work-group owns a run of COLUMNS * SUB_GROUP columns, work-item (y, x) the columns
// x + c * SUB_GROUP of it and every SUB_GROUPS-th row from y on. What the sub-groups summed is added up
// through local memory in the order of y. B transposed: a sub-group owns COLUMNS columns of op(B), lane x
// every SUB_GROUP-th element from x on. Where N is too small for a few work-groups on each compute unit,
// K is cut into slices of `depth`, as in gemm_split_k:
//
//     group = slice * runs + run      slice s writes at C + s * M * ldc, gemm_sum_slices adds them up
//
// The order of all sums is fixed: same call, same bits.
//
// Parameters: FUNLIB_SUB_GROUP, lanes of a sub-group (the host takes it from the device);
// FUNLIB_SUB_GROUPS, sub-groups of a work-group; FUNLIB_COLUMNS, columns of a work-item. FUNLIB_DEPTH,
// the least depth of a slice, is the host's.
#include "funlib_sub_group.hpp"
#include "gemm_common.hpp"

namespace funlib {

constexpr int lanes = FUNLIB_SUB_GROUP, sub_groups = FUNLIB_SUB_GROUPS, columns = FUNLIB_COLUMNS;
constexpr int most_rows = 4;
#if FUNLIB_TRANSPOSE_B
constexpr int width = columns * sub_groups, column_step = sub_groups;
#else
constexpr int width = columns * lanes, column_step = lanes;
#endif

struct FewRows {
  Acc sum[most_rows][columns] = {};

  // Steps k, k + step, .. below `end`, columns j + c * column_step.
  void add(const T* A, int64 lda, const T* B, int64 ldb, int64 M, int64 N, int64 k, int64 end,
           int step, int64 j) {
#pragma unroll 4
    for (; k < end; k += step) {
      Acc b[columns];
#pragma unroll
      for (int c = 0; c < columns; ++c)
        b[c] = j + c * column_step < N ? element_b(B, ldb, k, j + c * column_step) : Acc(0);
#pragma unroll
      for (int i = 0; i < most_rows; ++i) {
        const Acc a = i < M ? element_a(A, lda, i, k) : Acc(0);
#pragma unroll
        for (int c = 0; c < columns; ++c) sum[i][c] += a * b[c];
      }
    }
  }
};

}  // namespace funlib

FUNLIB_KERNEL(2, FUNLIB_SUB_GROUPS, FUNLIB_SUB_GROUP)
FUNLIB_SUB_GROUP_SIZE(FUNLIB_SUB_GROUP)
void gemv(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  const int64 depth = shape.extra[0], slices = shape.extra[1];
  const int64 runs = (N + width - 1) / width;
  const int64 group = group_id<2>(1), slice = group / runs % slices;
  const int64 first = output_tile(M, N, most_rows, width, batches, A, B, C,
                                  group / (runs * slices) * runs + group % runs)
                          .column;
  const Output output(C + slice * M * ldc, ldc, alpha, beta, bias);
  const int64 begin = slice * depth, end = min(K, begin + depth);
  const int y = local_id<2>(0), x = local_id<2>(1);
  FewRows rows;
#if FUNLIB_TRANSPOSE_B
  rows.add(A, lda, B, ldb, M, N, begin + x, end, lanes, first + y);
#pragma unroll
  for (int i = 0; i < most_rows; ++i)
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      const Acc sum = sum_of_lanes(rows.sum[i][c]);
      const int64 j = first + y + c * column_step;
      if (x == 0 && i < M && j < N) output.store(i, j, sum);
    }
#else
  FUNLIB_LOCAL(Acc[most_rows][sub_groups][width]) partial;
  rows.add(A, lda, B, ldb, M, N, begin + y, end, sub_groups, first + x);
#pragma unroll
  for (int i = 0; i < most_rows; ++i)
#pragma unroll
    for (int c = 0; c < columns; ++c) partial[i][y][c * lanes + x] = rows.sum[i][c];
  barrier<2>();
  for (int n = y * lanes + x; n < M * width; n += sub_groups * lanes) {
    const int i = n / width, column = n % width;
    Acc sum = 0;
    for (int s = 0; s < sub_groups; ++s) sum += partial[i][s][column];
    if (first + column < N) output.store(i, first + column, sum);
  }
#endif
}
