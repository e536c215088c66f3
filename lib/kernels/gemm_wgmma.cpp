// gemm_wgmma: Hopper's matrix engines, fed by bulk copies that run beside them.
//
//     one warp:  copies ->  [ X Y | X Y | X Y | X Y ]  a ring of STAGES in local memory,
//                              |     ^                 each 128 bytes of K long
//                              v     '-- "empty" barriers, once all have read it
//     WARP_GROUPS x 4 warps:  sums += X Y^T
//
//     Y (COLUMNS of it) ->   +-----------------+       X has WARP_GROUPS * ROWS rows, ROWS for each
//     X, warp group 0   ->   |   ROWS x COLUMNS|       group of four warps, in registers: COLUMNS / 2
//     X, warp group 1   ->   |-----------------|       sums a work-item for each 64 rows
//                            |   ROWS x COLUMNS|
//                            +-----------------+
//
// One instruction of a warp group multiplies 64 rows by up to 256 columns and 32 bytes of K, from local
// memory, while the warps go on: they do nothing but wait for a stage, start its products and give back
// the stage before. The copies are as cheap: one work-item names a box of a matrix (TensorMap), and the
// copy engine brings it, swizzled against bank conflicts, with zeros outside of the matrix, and counts
// its bytes at a barrier. So all the work-items' own instructions lie in the epilogue.
//
// X is A and Y is op(B) transposed, stored with K along lines or across them. bfloat16 and float16 are
// multiplied either way, but float32 and int8 with K along lines only, except that X may come from
// registers, from where it can be loaded in any order. Then, with "across" for the other storage:
//
//     A along, B along (A @ B^T)     as it is
//     A across, B along (A^T @ B^T)  X from registers
//     A along, B across (A @ B)      exchanged: X is op(B) transposed, from registers, and Y is A; sums
//                                    are those of C transposed, and a work-item stores four in a row
//     A across, B across (A^T @ B)   X from registers; the warps turn Y in local memory
//
// A work-group does a tile after the other, so that the copies for one run during the epilogue of the one
// before. Tiles go in bands of BAND rows of tiles, which keeps the operands of those that are worked on
// at a time in the L2 cache.
//
// Types: bfloat16 and float16 with sums in float32, int8 with sums in int32 that wrap, float32 rounded to
// TF32 by the copies. Operands whose rows do not begin at multiples of 16 bytes can't be copied so: the
// host takes another kernel for them.
//
// Parameters: FUNLIB_WARP_GROUPS, FUNLIB_ROWS, FUNLIB_COLUMNS, FUNLIB_STAGES, FUNLIB_BAND. 128 sums
// a work-item (64 x 256 or 128 x 128) are about what registers hold.
#include "funlib_hopper.hpp"
#include "gemm_common.hpp"

namespace funlib {

constexpr int WARP_GROUPS = FUNLIB_WARP_GROUPS, ROWS = FUNLIB_ROWS, COLUMNS = FUNLIB_COLUMNS;
constexpr int STAGES = FUNLIB_STAGES, BAND = FUNLIB_BAND;
constexpr int workers = WARP_GROUPS * 128, tile_rows = WARP_GROUPS * ROWS;

constexpr bool any_order = sizeof(T) == 2;  // both operands may have K across lines
constexpr bool a_along = !FUNLIB_TRANSPOSE_A, b_along = FUNLIB_TRANSPOSE_B;
constexpr bool exchanged = !any_order && a_along && !b_along;
constexpr bool x_along = exchanged ? b_along : a_along, y_along = exchanged ? a_along : b_along;
constexpr bool x_from_registers = !any_order && !x_along, turns_y = !any_order && !y_along;

// Elements of 128 bytes: along K, what a stage holds; otherwise, the rows or columns of a box.
constexpr int line_elements = 128 / sizeof(T);
constexpr int box_bytes = line_elements * 128;
constexpr int x_bytes = tile_rows * 128, y_bytes = COLUMNS * 128, stage_bytes = x_bytes + y_bytes;
constexpr int parts = 4;           // of a stage, 32 bytes of K each
constexpr int tiles_down = ROWS / 64, last_tile = tiles_down - 1;  // of sums, 64 x COLUMNS each

// Addresses in local memory.
struct Layout {
  uint32 stages, turned, maps, full, empty;

  explicit Layout(const LocalMemory& memory) {
    stages = local_address(memory, 1024);
    turned = stages + STAGES * stage_bytes;
    maps = turned + (turns_y ? 2 * y_bytes : 0);
    full = maps + 2 * TensorMap::bytes;
    empty = full + 8 * STAGES;
  }
};

// The ring's place and the parity of its round, as either side counts.
struct Turn {
  int stage = 0;
  uint32 parity = 0;
  void advance() {
    if (++stage < STAGES) return;
    stage = 0;
    parity ^= 1;
  }
};

// First row of X and of Y of a tile.
struct Corner {
  int x, y;
};
inline Corner corner_of(int64 tile, int64 x_tiles, int64 y_tiles) {
  const int64 first = tile / (BAND * y_tiles) * BAND, place = tile % (BAND * y_tiles);
  const int64 height = min(x_tiles - first, BAND);
  return {int(first + place % height) * tile_rows, int(place / height) * COLUMNS};
}

// ---- products ----------------------------------------------------------------------------------

#if FUNLIB_TRANSPOSE_A
#define FUNLIB_ORDER_A "1"
#else
#define FUNLIB_ORDER_A "0"
#endif
#if FUNLIB_TRANSPOSE_B
#define FUNLIB_ORDER_B "0"
#else
#define FUNLIB_ORDER_B "1"
#endif
#define FUNLIB_ORDERS ", 1, 1, " FUNLIB_ORDER_A ", " FUNLIB_ORDER_B

using Sums = Acc[COLUMNS / 2];
using Fragment = uint32[4];

// Inlined, since arrays of sums would live in memory otherwise; templates, so that only the instruction
// that is meant has to fit the types.
template <typename Element, int N>
__attribute__((always_inline)) inline void multiply(Acc (&sum)[N / 2], uint64 x, uint64 y) {
  if constexpr (__is_same(Element, bfloat16)) {
    FUNLIB_FOR_COLUMNS(FUNLIB_MULTIPLY_TILES, N, "k16.f32.bf16.bf16", FUNLIB_ORDERS, "+f");
  } else if constexpr (__is_same(Element, float16)) {
    FUNLIB_FOR_COLUMNS(FUNLIB_MULTIPLY_TILES, N, "k16.f32.f16.f16", FUNLIB_ORDERS, "+f");
  } else if constexpr (__is_same(Element, float)) {
    FUNLIB_FOR_COLUMNS(FUNLIB_MULTIPLY_TILES, N, "k8.f32.tf32.tf32", ", 1, 1", "+f");
  } else {
    FUNLIB_FOR_COLUMNS(FUNLIB_MULTIPLY_TILES, N, "k32.s32.s8.s8", "", "+r");
  }
}
template <typename Element, int N>
__attribute__((always_inline)) inline void multiply(Acc (&sum)[N / 2], const Fragment& x, uint64 y) {
  if constexpr (__is_same(Element, float)) {
    FUNLIB_FOR_COLUMNS(FUNLIB_MULTIPLY_FRAGMENT, N, "k8.f32.tf32.tf32", ", 1, 1", "+f");
  } else {
    FUNLIB_FOR_COLUMNS(FUNLIB_MULTIPLY_FRAGMENT, N, "k32.s32.s8.s8", "", "+r");
  }
}

// ---- X through registers, Y turned ---------------------------------------------------------------

using Words = VectorOf<uint32, 4>;

inline uint32 load_word(uint32 local) {
  uint32 value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(local) : "memory");
  return value;
}
inline void store_word(uint32 local, uint32 value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(local), "r"(value) : "memory");
}
inline Words load_words(uint32 local) {
  uint32 a, b, c, d;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(local)
               : "memory");
  return Words{a, b, c, d};
}
inline void store_words(uint32 local, uint32 a, uint32 b, uint32 c, uint32 d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(local), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
// Where the 16 bytes at `place` of a line are.
inline uint32 in_line(uint32 tile, int line, int place) {
  return tile + uint32(line * 128 + ((place ^ line % 8) << 4));
}

inline uint32 permute(uint32 low, uint32 high, uint32 selector) {
  uint32 result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}
// Transposes 4 x 4 bytes, whose rows may come in the order 2, 3, 0, 1.
inline void turn_bytes(uint32 (&rows)[4], bool halves_exchanged) {
  const uint32 a = permute(rows[0], rows[1], 0x5140), b = permute(rows[0], rows[1], 0x7362);
  const uint32 c = permute(rows[2], rows[3], 0x5140), d = permute(rows[2], rows[3], 0x7362);
  const uint32 low = halves_exchanged ? 0x1054 : 0x5410, high = halves_exchanged ? 0x3276 : 0x7632;
  rows[0] = permute(a, c, low);
  rows[1] = permute(a, c, high);
  rows[2] = permute(b, d, low);
  rows[3] = permute(b, d, high);
}

// Which row of X, of the ROWS of a warp group, half h of tile q of a lane's sums is in. From
// registers, rows can be numbered as suits the loads: four in a row to a lane, and for float32 such
// that eight lanes read from all places of a line.
inline int place_of(int lane) {
  const int g = lane / 4;
  return sizeof(T) == 4 ? g / 2 + g % 2 * 4 : g;
}
inline int row_of(int q, int h, int warp, int lane) {
  if constexpr (x_from_registers)
    return warp * 32 + place_of(lane) * 4 + 2 * q + h;
  else
    return q * 64 + warp * 16 + lane / 4 + 8 * h;
}

// The fragments of a part of a tile of X whose lines run across K: of lane 4 g + t, for both tiles of
// sums, the elements at rows g and g + 8 and the 4 bytes of K from 4 t and from 16 + 4 t on.
inline void load_fragments(Fragment (&x)[tiles_down], uint32 tile, int part, int warp, int lane) {
  const int t = lane % 4, place = place_of(lane);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    uint32 rows[4];
    if constexpr (sizeof(T) == 4) {
      const Words values = load_words(
          in_line(tile + uint32(warp * box_bytes), part * 8 + 4 * h + t, place));
#pragma unroll
      for (int e = 0; e < 4; ++e) rows[e] = values[e];
    } else {
      // Half of the lanes in another order: lines whose numbers differ by 8 share their banks.
#pragma unroll
      for (int e = 0; e < 4; ++e)
        rows[e] = load_word(in_line(tile, part * 32 + 16 * h + 4 * t + (e ^ (t & 2)),
                                    2 * warp + place / 4) +
                            uint32(place % 4 * 4));
      turn_bytes(rows, (t & 2) != 0);
    }
    x[0][2 * h] = rows[0];
    x[0][2 * h + 1] = rows[1];
    x[last_tile][2 * h] = rows[2];
    x[last_tile][2 * h + 1] = rows[3];
  }
}

// Turns a tile of Y, lines across K, into one with lines along K, in blocks of 4 x 4 words or bytes.
inline void turn_tile(uint32 to, uint32 from, int item) {
  constexpr int blocks_along = line_elements / 4;  // K
#pragma unroll 1
  for (int n = item; n < COLUMNS / 4 * blocks_along; n += workers) {
    if constexpr (sizeof(T) == 4) {
      const int block = n % 4 + n / 8 % 2 * 4, y = (n / 4 % 2 + n / 16 * 2) * 4;
      const uint32 box = from + uint32(y / line_elements * box_bytes);
      Words rows[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        rows[e] = load_words(in_line(box, block * 4 + e, y % line_elements / 4));
#pragma unroll
      for (int e = 0; e < 4; ++e)
        store_words(in_line(to, y + e, block), rows[0][e], rows[1][e], rows[2][e], rows[3][e]);
    } else {
      const int block = n % blocks_along, y = n / blocks_along * 4;
      const uint32 box = from + uint32(y / line_elements * box_bytes);
      uint32 rows[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        rows[e] = load_word(in_line(box, block * 4 + e, y % line_elements / 16) + uint32(y % 16));
      turn_bytes(rows, false);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        store_word(in_line(to, y + e, block / 4) + uint32(block % 4 * 4), rows[e]);
    }
  }
}

// ---- the two kinds of warps ----------------------------------------------------------------------

// Copies a tile of lines of 128 bytes: rows first .. of an operand, elements k .. of K.
template <bool Along, int Rows>
inline void copy_tile(uint32 local, const TensorMap& map, int first, int k, CopyBarrier barrier) {
  if constexpr (Along) {
    map.copy(local, k, first, barrier);
  } else {
#pragma unroll
    for (int n = 0; n < Rows / line_elements; ++n)
      map.copy(local + uint32(n * box_bytes), first + n * line_elements, k, barrier);
  }
}

// The products of a stage.
__attribute__((always_inline)) inline void multiply_stage(Sums (&sums)[tiles_down], uint32 x_tile,
                                                          uint32 y_tile, int warp, int lane) {
  // From a part to the next, and from 64 rows to the next, in units of 16 bytes.
  constexpr int across_step = 2048 / 16, along_step = 32 / 16, down_step = 64 * 128 / 16;
  const uint64 y = tile_descriptor(y_tile, box_bytes);
  constexpr int y_step = y_along || turns_y ? along_step : across_step;
  if constexpr (x_from_registers) {
    Fragment x[parts][tiles_down];
#pragma unroll
    for (int part = 0; part < parts; ++part) load_fragments(x[part], x_tile, part, warp, lane);
    fence_products();
#pragma unroll
    for (int part = 0; part < parts; ++part)
#pragma unroll
      for (int q = 0; q < tiles_down; ++q)
        multiply<T, COLUMNS>(sums[q], x[part][q], y + part * y_step);
  } else {
    const uint64 x = tile_descriptor(x_tile, box_bytes);
    constexpr int x_step = x_along ? along_step : across_step;
    fence_products();
#pragma unroll
    for (int part = 0; part < parts; ++part)
#pragma unroll
      for (int q = 0; q < tiles_down; ++q)
        multiply<T, COLUMNS>(sums[q], x + part * x_step + q * down_step, y + part * y_step);
  }
  commit_products();
}

// Count outputs in a row.
template <int Count>
inline void store(const Output& output, int64 M, int64 N, int64 i, int64 j, const Acc (&sums)[Count],
                  bool aligned) {
  if (i >= M) return;
  if (aligned && j + Count <= N) {
    VectorOf<Acc, Count> value;
#pragma unroll
    for (int e = 0; e < Count; ++e) value[e] = output.value(i, j + e, sums[e]);
    *reinterpret_cast<VectorOf<Out, Count>*>(output.C + i * output.ldc + j) =
        narrow<Out, Count>(value);
    return;
  }
#pragma unroll
  for (int e = 0; e < Count; ++e)
    if (j + e < N) output.store(i, j + e, sums[e]);
}

// Lane 4 g + t has, of each 8 columns of Y, numbers 2 t and 2 t + 1 in rows g and g + 8.
__attribute__((always_inline)) inline void store_sums(const Output& output, int64 M, int64 N,
                                                      Corner corner, const Sums (&sums)[tiles_down],
                                                      int warp, int lane) {
  constexpr int in_a_row = exchanged ? 4 : 2;
  const bool aligned =
      reinterpret_cast<uint64>(output.C) % (in_a_row * sizeof(Out)) == 0 && output.ldc % in_a_row == 0;
#pragma unroll
  for (int n = 0; n < COLUMNS / 8; ++n) {
    const int64 y = corner.y + 8 * n + lane % 4 * 2;
    if constexpr (exchanged) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const Acc row[4] = {sums[0][4 * n + e], sums[0][4 * n + 2 + e], sums[last_tile][4 * n + e],
                            sums[last_tile][4 * n + 2 + e]};
        store(output, M, N, y + e, corner.x + row_of(0, 0, warp, lane), row, aligned);
      }
    } else {
#pragma unroll
      for (int q = 0; q < tiles_down; ++q)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const Acc row[2] = {sums[q][4 * n + 2 * h], sums[q][4 * n + 2 * h + 1]};
          store(output, M, N, corner.x + row_of(q, h, warp, lane), y, row, aligned);
        }
    }
  }
}

}  // namespace funlib

// The workspace has two tensor maps for each work-group.
FUNLIB_KERNEL(2, 1, FUNLIB_WARP_GROUPS * 128 + 32)
void gemm_wgmma(FUNLIB_GEMM_ARGUMENTS, unsigned char* workspace, funlib::LocalMemory memory) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  const Layout layout(memory);
  const int item = local_id<2>(1), warp = item / 32, lane = item % 32;
  const auto full = [&](int stage) { return CopyBarrier{layout.full + 8 * uint32(stage)}; };
  const auto empty = [&](int stage) { return CopyBarrier{layout.empty + 8 * uint32(stage)}; };
  const auto x_tile = [&](int stage) { return layout.stages + uint32(stage * stage_bytes); };
  if (item == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      full(stage).init(1);
      empty(stage).init(WARP_GROUPS * 4);
    }
    fence_local_for_engines();
  }
  barrier_of<0, workers + 32>();
  // Work-group g does tiles g, g + groups, ..; with a batch, one.
  const int64 group = group_id<2>(1), groups = shape.extra[0];
  const int64 x_length = exchanged ? N : M, y_length = exchanged ? M : N;
  const int64 x_tiles = (x_length + tile_rows - 1) / tile_rows;
  const int64 y_tiles = (y_length + COLUMNS - 1) / COLUMNS;
  const int64 tiles = x_tiles * y_tiles;
#if FUNLIB_BATCHED
  const int64 first = group % tiles;
  output_tile(M, N, exchanged ? COLUMNS : tile_rows, exchanged ? tile_rows : COLUMNS, batches, A, B, C);
#else
  const int64 first = group;
#endif
  const int steps = int((K + line_elements - 1) / line_elements);
  Turn turn;
  if (warp == WARP_GROUPS * 4) {
    const TensorMap x{reinterpret_cast<uint64>(workspace + group * 2 * TensorMap::bytes)};
    const TensorMap y{x.global + TensorMap::bytes};
    x.make(layout.maps, lane, exchanged ? B : A, x_along ? K : x_length, x_along ? x_length : K,
           (exchanged ? ldb : lda) * int64(sizeof(T)), x_along ? tile_rows : line_elements);
    y.make(layout.maps + TensorMap::bytes, lane, exchanged ? A : B, y_along ? K : y_length,
           y_along ? y_length : K, (exchanged ? lda : ldb) * int64(sizeof(T)),
           y_along ? COLUMNS : line_elements);
    if (lane != 0) return;
    for (int64 tile = first; tile < tiles; tile += groups) {
      const Corner corner = corner_of(tile, x_tiles, y_tiles);
      for (int step = 0; step < steps; ++step, turn.advance()) {
        empty(turn.stage).wait(turn.parity ^ 1);
        const CopyBarrier barrier = full(turn.stage);
        barrier.arrive_and_expect(stage_bytes);
        const uint32 to = x_tile(turn.stage);
        copy_tile<x_along, tile_rows>(to, x, corner.x, step * line_elements, barrier);
        copy_tile<y_along, COLUMNS>(to + x_bytes, y, corner.y, step * line_elements, barrier);
      }
    }
    return;
  }
  const Output output(C, ldc, alpha, beta, bias);
  const int warp_group = warp / 4;
  for (int64 tile = first; tile < tiles; tile += groups) {
    Corner corner = corner_of(tile, x_tiles, y_tiles);
    corner.x += warp_group * ROWS;
    Sums sums[tiles_down];
#pragma unroll
    for (int q = 0; q < tiles_down; ++q)
#pragma unroll
      for (int n = 0; n < COLUMNS / 2; ++n) sums[q][n] = Acc(0);
    const auto release = [&](int stage) {
      if (lane == 0) empty(stage).arrive();
    };
    int before = 0;
    for (int step = 0; step < steps; ++step, turn.advance()) {
      full(turn.stage).wait(turn.parity);
      const uint32 x = x_tile(turn.stage) + uint32(warp_group * ROWS * 128);
      uint32 y = x_tile(turn.stage) + x_bytes;
      if constexpr (turns_y) {
        const uint32 to = layout.turned + uint32(step % 2 * y_bytes);
        turn_tile(to, y, item);
        y = to;
        fence_local_for_engines();
        barrier_of<1, workers>();
      }
      multiply_stage(sums, x, y, warp % 4, lane);
      if constexpr (x_from_registers) {
        // Its registers are loaded anew for the next stage; the other warp group multiplies meanwhile.
        wait_for_products<0>();
        release(turn.stage);
      } else {
        wait_for_products<1>();
        if (step > 0) release(before);
        before = turn.stage;
      }
    }
    if constexpr (!x_from_registers) {
      wait_for_products<0>();
      if (steps > 0) release(before);
    }
    store_sums(output, M, N, corner, sums, warp % 4, lane);
  }
}
