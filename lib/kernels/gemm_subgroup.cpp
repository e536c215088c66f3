// gemm_subgroup: operands of A travel between the lanes of a sub-group, without local memory.
//
//                        B   row k0 + l:  | lane 0 | lane 1 | ... | lane S-1 |   a column (or a few,
//                                                                                S apart) a lane
//   A  row i       | k0 | k0+1 | ... |      l = 0 .. S-1:
//      row i+1     | k0 | k0+1 | ... |        a(r) = what lane l loaded of row i + r
//      ...           ^     ^                  c(r, lane) += a(r) * b(k0 + l, lane)
//                 lane 0  lane 1
//
// A sub-group of S lanes owns ROWS rows and COLUMNS * S columns of C. For each S steps along K, every
// lane loads one element of each of the rows, S in a row at once; then lane after lane tells its
// elements to all. So an element of A is loaded once a sub-group, where gemm_blocked4x4 loads it once a
// work-item, and no barrier makes the sub-groups of a work-group wait for each other. B is read
// ROWS times less often than by gemm.
//
// The work-group is SUB_GROUPS sub-groups below each other: they share columns of B in the cache.
// Columns outside the matrix read as zero; rows outside are not stored.
//
// Parameters: FUNLIB_SUB_GROUP, lanes of a sub-group (S above; the host takes it from the device);
// FUNLIB_SUB_GROUPS, sub-groups of a work-group; FUNLIB_ROWS and FUNLIB_COLUMNS, outputs of a lane.
#include "funlib_sub_group.hpp"
#include "gemm_block.hpp"

namespace funlib {

constexpr int lanes = FUNLIB_SUB_GROUP, rows = FUNLIB_ROWS, columns = FUNLIB_COLUMNS;

// One step along K: `a` is what each lane holds, `lane` whose turn it is.
inline void step(Block<rows, columns>& block, const Acc (&a)[rows], int lane, const T* B, int64 ldb,
                 int64 k, int64 j, int64 N) {
  Acc row[rows], column[columns];
#pragma unroll
  for (int r = 0; r < rows; ++r) row[r] = value_of_lane(a[r], lane);
#pragma unroll
  for (int c = 0; c < columns; ++c)
    column[c] = j + c * lanes < N ? element_b(B, ldb, k, j + c * lanes) : Acc(0);
  block.multiply_add(row, column);
}

}  // namespace funlib

FUNLIB_KERNEL(2, FUNLIB_SUB_GROUPS, FUNLIB_SUB_GROUP)
FUNLIB_SUB_GROUP_SIZE(FUNLIB_SUB_GROUP)
void gemm_subgroup(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  const Tile tile = output_tile(M, N, FUNLIB_SUB_GROUPS * rows, columns * lanes, batches, A, B, C);
  const Output output(C, ldc, alpha, beta, bias);
  const int lane = local_id<2>(1);
  const int64 i = tile.row + local_id<2>(0) * rows, j = tile.column + lane;
  // The whole sub-group leaves, or none of it: a lane without columns still has elements of A to tell.
  if (i >= M) return;
  Block<rows, columns> block;
  for (int64 k0 = 0; k0 < K; k0 += lanes) {
    Acc a[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r)
      a[r] = i + r < M && k0 + lane < K ? element_a(A, lda, i + r, k0 + lane) : Acc(0);
    const int held = int(min(K - k0, lanes));
    for (int l = 0; l < held; ++l) step(block, a, l, B, ldb, k0 + l, j, N);
  }
  block.store(output, M, N, i, 1, j, lanes);
}
