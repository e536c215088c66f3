// gemm_mma_float64: float64 on the matrix engines of Hopper, fed by bulk copies that run beside them.
//
//     a warp group's sums: ROWS x COLUMNS        a warp's: 32 x columns, from fragments of 16 rows of X
//                                                and 16 of Y, and 16 of K
//     +-----------+-----------+
//     | warp 0    | warp 1    |                  instruction:  16 x 8 x 16, 2048 multiply-adds; lane
//     |-----------+-----------|                  4 g + t has rows g and g + 8 of X, row g of Y, and
//     | warp 2    | warp 3    |                  numbers t, t + 4, t + 8, t + 12 of K
//     +-----------+-----------+
//
// Operands come through the ring of gemm_ring.hpp, 16 of K a stage. What the engine calls row g or number k
// is for the kernel to say, as long as X and Y agree on K. Said as below, all lanes load 16 bytes at a time
// from as many banks as there are:
//
//     K along lines:   rows g / 2 + g % 2 * 4 and 8 more; 2 t, 2 t + 1, and 8 more, of K in turn
//     K across lines:  rows 2 g, 2 g + 1; the same of K
//
// An instruction's operands are registers in a row. Loads along lines give those of Y so, loads across lines
// those of X; others are moved first. So for A @ B the operands are exchanged.
//
// Parameters: FUNLIB_WARP_GROUPS, FUNLIB_ROWS, FUNLIB_COLUMNS, FUNLIB_STAGES, FUNLIB_BAND, FUNLIB_SLICES.
// 64 sums a work-item (64 x 128 a warp group) are half of its registers.
#include "gemm_ring.hpp"

namespace funlib {

// As in gemm_wgmma: the warps that copy leave registers to the others.
constexpr bool more_registers = WARP_GROUPS == 2 && ROWS * COLUMNS == 64 * 128;
constexpr int work_items = multipliers + (more_registers ? 128 : 32);

constexpr int across = 4 * 32 / ROWS, warp_columns = COLUMNS / across;  // of a warp
constexpr int tiles_down = 2, tiles_across = warp_columns / 16;         // 16 x 16 sums each

// The rows of a lane in a fragment: first, and from it to the other one.
template <bool Along>
struct FragmentRows {
  static constexpr int other = Along ? 8 : 1;
  static int first(int g) { return Along ? g / 2 + g % 2 * 4 : 2 * g; }
};

// [number of K][row]
using Fragment = double[4][2];

inline void load_pair(uint32 local, double& first, double& second) {
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];"
               : "=d"(first), "=d"(second)
               : "r"(local)
               : "memory");
}

// Rows `row` .. of a tile.
template <bool Along>
inline void load_fragment(Fragment& x, uint32 tile, int row, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if constexpr (Along)
        load_pair(in_line(tile, row + FragmentRows<true>::first(g) + 8 * e, t + 4 * h), x[2 * h][e],
                  x[2 * h + 1][e]);
      else
        load_pair(in_line(tile + uint32(row / 16 * box_bytes), 8 * h + 2 * t + e, g),
                  x[2 * h + e][0], x[2 * h + e][1]);
}

// Sums of 16 x 16: those of the first rows of Y, and those of the other ones.
using Sums = double[2][4];

__attribute__((always_inline)) inline void multiply(Sums& sums, const Fragment& x,
                                                    const Fragment& y) {
#pragma unroll
  for (int e = 0; e < 2; ++e)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(sums[e][0]), "+d"(sums[e][1]), "+d"(sums[e][2]), "+d"(sums[e][3])
        : "d"(x[0][0]), "d"(x[0][1]), "d"(x[1][0]), "d"(x[1][1]), "d"(x[2][0]), "d"(x[2][1]),
          "d"(x[3][0]), "d"(x[3][1]), "d"(y[0][e]), "d"(y[1][e]), "d"(y[2][e]), "d"(y[3][e]));
}

// Lane 4 g + t has columns 2 t and 2 t + 1 of rows g and g + 8, as the engine counts.
template <bool Whole, int Across>
__attribute__((always_inline)) inline void store_sums(const Output& output, int64 M, int64 N,
                                                      Corner corner,
                                                      const Sums (&sums)[tiles_down][Across],
                                                      int lane) {
  const int g = lane / 4, t = lane % 4;
  constexpr int other_x = FragmentRows<x_along>::other, other_y = FragmentRows<y_along>::other;
#pragma unroll
  for (int i = 0; i < tiles_down; ++i)
#pragma unroll
    for (int j = 0; j < Across; ++j) {
      const int64 x = corner.x + 16 * i + FragmentRows<x_along>::first(g);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int64 y = corner.y + 16 * j + FragmentRows<y_along>::first(2 * t + c);
        const auto& sum = sums[i][j];
        if constexpr (exchanged) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const double row[2] = {sum[e][c], sum[e][2 + c]};
            store_row<Whole>(output, M, N, y + e * other_y, x, row);
          }
        } else {
#pragma unroll
          for (int h = 0; h < 2; ++h)
            if constexpr (other_y == 1) {
              const double row[2] = {sum[0][2 * h + c], sum[1][2 * h + c]};
              store_row<Whole>(output, M, N, x + h * other_x, y, row);
            } else {
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                const double row[1] = {sum[e][2 * h + c]};
                store_row<Whole>(output, M, N, x + h * other_x, y + e * other_y, row);
              }
            }
        }
      }
    }
}

// The outputs of a warp.
template <int Across>
__attribute__((always_inline)) inline void finish(const Output& output, int64 M, int64 N,
                                                  Corner corner,
                                                  const Sums (&sums)[tiles_down][Across],
                                                  int lane) {
  store_tile<exchanged ? 32 : 16 * Across>(
      output, N, exchanged ? corner.x : corner.y,
      [&]<bool Whole>(const Output& to)
          __attribute__((always_inline)) { store_sums<Whole>(to, M, N, corner, sums, lane); });
}

}  // namespace funlib

FUNLIB_KERNEL(2, 1, funlib::work_items)
__attribute__((always_inline)) void gemm_mma_float64(FUNLIB_GEMM_ARGUMENTS,
                                                     unsigned char* workspace,
                                                     funlib::LocalMemory memory) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  const Ring ring(memory, 0);
  const int item = local_id<2>(1), warp = item / 32, lane = item % 32;
  const Tiles tiles(shape, A, B, C);
  const Maps maps(workspace, tiles);
  if (item == 0) ring.init();
  maps.make(ring, shape, A, B, tiles, warp, lane);
  barrier<2>();
  if (warp >= multipliers / 32) {
    if constexpr (more_registers) give_registers<40>();
    if (warp == multipliers / 32) copy_operands(ring, maps, tiles);
    return;
  }
  if constexpr (more_registers) take_registers<232>();
  const Output output(C, ldc, alpha, beta, bias);
  const int x_place = warp / 4 * ROWS + warp % 4 / across * 32;
  const int y_place = warp % across * warp_columns;
  Turn turn;
  for (int64 tile = tiles.first; tile < tiles.count(); tile += tiles.step) {
    Corner corner = tiles.corner(tile);
    corner.x += x_place;
    corner.y += y_place;
    Sums sums[tiles_down][tiles_across];
#pragma unroll
    for (int i = 0; i < tiles_down; ++i)
#pragma unroll
      for (int j = 0; j < tiles_across; ++j)
#pragma unroll
        for (int n = 0; n < 8; ++n) sums[i][j][n / 4][n % 4] = 0;
    int before = 0;
    for (int step = 0; step < tiles.steps; ++step, turn.advance()) {
      ring.full(turn.stage).wait_together(turn.parity);
      Fragment x[tiles_down];
#pragma unroll
      for (int i = 0; i < tiles_down; ++i)
        load_fragment<x_along>(x[i], ring.x(turn.stage), x_place + 16 * i, lane);
#pragma unroll
      for (int j = 0; j < tiles_across; ++j) {
        Fragment y;
        load_fragment<y_along>(y, ring.y(turn.stage), y_place + 16 * j, lane);
#pragma unroll
        for (int i = 0; i < tiles_down; ++i) multiply(sums[i][j], x[i], y);
      }
      // A stage is given back a step later: that its loads are done, which may be late, is only known when
      // they have been multiplied.
      if (step > 0) ring.release_after_loads(before, lane);
      before = turn.stage;
    }
    if constexpr (sliced) {
      barrier_of<1, multipliers>();  // stages are read no more
#pragma unroll
      for (int i = 0; i < tiles_down; ++i)
#pragma unroll
        for (int j = 0; j < tiles_across; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            leave_sums(ring, ((j * tiles_down + i) * 2 + e) * 2, item, sums[i][j][e]);
      cluster_barrier();
#pragma unroll 1
      for (int j = tiles.slice; j < tiles_across; j += tiles.slices) {
        Sums total[tiles_down][1];
#pragma unroll
        for (int i = 0; i < tiles_down; ++i)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            add_slices(ring, ((j * tiles_down + i) * 2 + e) * 2, item, tiles.slices,
                       total[i][0][e]);
        finish(output, M, N, {corner.x, corner.y + 16 * j}, total, lane);
      }
      cluster_barrier();  // the others read what this work-group has left
    } else {
      finish(output, M, N, corner, sums, lane);
      if (tiles.steps > 0) ring.release_after_loads(before, lane);
    }
  }
}
