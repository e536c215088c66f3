// gemm_wgmma: Hopper's matrix engines, fed by bulk copies that run beside them.
//
//     a warp group's sums, in registers:             Y, COLUMNS of it
//     COLUMNS / 2 a work-item for each 64 rows   +----------------------+
//                                         X, 64  | warp 0: 16 x COLUMNS |
//                                          rows  | warp 1               |  one instruction: 64 rows,
//                                                | warp 2               |  COLUMNS, 32 bytes of K
//                                                | warp 3               |
//                                                +----------------------+
//
// One instruction of a group of four warps multiplies 64 rows by up to 256 columns and 32 bytes of K, from
// local memory, while the warps go on: they do nothing but wait for a stage of the ring (gemm_ring.hpp),
// start its products and give back the stage before. All the work-items' own instructions lie in the
// epilogue.
//
// bfloat16 and float16 are multiplied with K along the lines of a tile or across them, but float32 and int8
// with K along lines only, except that X may come from registers, into which it can be loaded in any
// order. So there, with "across" for the other storage:
//
//     A along, B along (A @ B^T)     as it is
//     A across, B along (A^T @ B^T)  X from registers
//     A along, B across (A @ B)      exchanged (gemm_ring.hpp), X from registers; a work-item has four
//                                    outputs in a row
//     A across, B across (A^T @ B)   X from registers; the warps turn Y in local memory
//
// Types: bfloat16 and float16 with sums in float32, int8 with sums in int32 that wrap, float32 rounded to
// TF32 by the copies. Operands whose rows do not begin at multiples of 16 bytes can't be copied so: the
// host takes another kernel for them.
//
// Parameters: FUNLIB_WARP_GROUPS, FUNLIB_ROWS, FUNLIB_COLUMNS, FUNLIB_STAGES, FUNLIB_BAND, FUNLIB_SLICES.
// 128 sums a work-item (64 x 256 or 128 x 128) are about what registers hold.
#include "gemm_ring.hpp"

namespace funlib {

constexpr bool x_from_registers = !any_order && !x_along, turns_y = !any_order && !y_along;
// The registers are those of four quarters, each for every fourth warp: where there are nine, three share
// a quarter. 128 sums leave too little then; a whole group of warps copies, to give the others its own.
constexpr bool more_registers = WARP_GROUPS == 2 && ROWS * COLUMNS == 128 * 128;
constexpr int work_items = multipliers + (more_registers ? 128 : 32);

constexpr int parts = 4;                                           // of a stage, 32 bytes of K each
constexpr int tiles_down = ROWS / 64, last_tile = tiles_down - 1;  // of sums, 64 x COLUMNS each

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
__attribute__((always_inline)) inline void multiply(Acc (&sum)[N / 2], const Fragment& x,
                                                    uint64 y) {
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
      const Words values =
          load_words(in_line(tile + uint32(warp * box_bytes), part * 8 + 4 * h + t, place));
#pragma unroll
      for (int e = 0; e < 4; ++e) rows[e] = values[e];
    } else {
      // Half of the lanes in another order: lines whose numbers differ by 8 share their banks.
#pragma unroll
      for (int e = 0; e < 4; ++e)
        rows[e] = load_word(
            in_line(tile, part * 32 + 16 * h + 4 * t + (e ^ (t & 2)), 2 * warp + place / 4) +
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
  for (int n = item; n < COLUMNS / 4 * blocks_along; n += multipliers) {
    if constexpr (sizeof(T) == 4) {
      const int block = n % 4 + n / 8 % 2 * 4, y = (n / 4 % 2 + n / 16 * 2) * 4;
      const uint32 box = from + uint32(y / line_elements * box_bytes);
      Words rows[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        rows[e] = load_words(in_line(box, block * 4 + e, y % line_elements / 4));
#pragma unroll
      for (int e = 0; e < 4; ++e)
        store_local(in_line(to, y + e, block),
                    Words{rows[0][e], rows[1][e], rows[2][e], rows[3][e]});
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

// ---- stages and results ----------------------------------------------------------------------------

// Starts the products of a stage and waits for those of the stage before. Fragments of X are loaded while
// two parts are multiplied; the compiler wants to see by the waits that these are others.
__attribute__((always_inline)) inline void multiply_stage(Sums (&sums)[tiles_down], uint32 x_tile,
                                                          uint32 y_tile, int warp, int lane) {
  // From a part to the next, and from 64 rows to the next, in units of 16 bytes.
  constexpr int across_step = 2048 / 16, along_step = 32 / 16, down_step = 64 * 128 / 16;
  constexpr int y_step = y_along || turns_y ? along_step : across_step;
  const uint64 y = tile_descriptor(y_tile, box_bytes);
  if constexpr (x_from_registers) {
    Fragment x[parts][tiles_down];
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      load_fragments(x[part], x_tile, part, warp, lane);
      fence_products();
#pragma unroll
      for (int q = 0; q < tiles_down; ++q)
        multiply<T, COLUMNS>(sums[q], x[part][q], y + part * y_step);
      commit_products();
      wait_for_products<2>();
    }
  } else {
    constexpr int x_step = x_along ? along_step : across_step;
    const uint64 x = tile_descriptor(x_tile, box_bytes);
    fence_products();
#pragma unroll
    for (int part = 0; part < parts; ++part)
#pragma unroll
      for (int q = 0; q < tiles_down; ++q)
        multiply<T, COLUMNS>(sums[q], x + part * x_step + q * down_step, y + part * y_step);
    commit_products();
    wait_for_products<1>();
  }
}

// Two outputs of two bytes in a word.
inline uint32 packed(Acc first, Acc second) {
  uint32 word;
  if constexpr (__is_same(Out, bfloat16))
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

inline uint32 of_lane_across(uint32 word, int distance) {
  uint32 result;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
               : "=r"(result)
               : "r"(word), "r"(distance));
  return result;
}

// Each four lanes transpose 4 x 4 words: word w of lane l goes to lane w as word l.
inline void turn_words(uint32 (&words)[4], int lane) {
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int w = 0; w < 4; ++w)
      if ((w & distance) == 0) {
        const uint32 low = words[w], high = words[w + distance];
        const uint32 got = of_lane_across(upper ? low : high, distance);
        words[w] = upper ? got : low;
        words[w + distance] = upper ? high : got;
      }
  }
}

// Lane 4 g + t has, of each 8 columns of Y, numbers 2 t and 2 t + 1 in rows g and g + 8. Outputs of two
// bytes are exchanged between lanes until each has 8 in a row.
template <bool Whole, int Columns>
__attribute__((always_inline)) inline void store_sums(const Output& output, int64 M, int64 N,
                                                      Corner corner,
                                                      const Acc (&sums)[tiles_down][Columns / 2],
                                                      int warp, int lane) {
  if constexpr (exchanged) {
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const Acc row[4] = {sums[0][4 * n + e], sums[0][4 * n + 2 + e], sums[last_tile][4 * n + e],
                            sums[last_tile][4 * n + 2 + e]};
        store_row<Whole>(output, M, N, corner.y + 8 * n + lane % 4 * 2 + e,
                         corner.x + row_of(0, 0, warp, lane), row);
      }
  } else {
#pragma unroll
    for (int n = 0; n < Columns / 8; n += 4)
#pragma unroll
      for (int half = 0; half < 2 * tiles_down; ++half) {
        const int q = half / 2, h = half % 2;
        const int64 i = corner.x + row_of(q, h, warp, lane);
        if constexpr (Whole && sizeof(Out) == 2) {
          const int64 row = min(i, M - 1);  // lanes beyond take part in the exchange
          uint32 words[4];
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            const int64 j = corner.y + 8 * (n + w) + lane % 4 * 2;
            const Acc* const pair = &sums[q][4 * (n + w) + 2 * h];
            words[w] = packed(output.value(row, j, pair[0]), output.value(row, j + 1, pair[1]));
          }
          turn_words(words, lane);
          if (i < M)
            *reinterpret_cast<Words*>(output.C + i * output.ldc + corner.y + 8 * (n + lane % 4)) =
                Words{words[0], words[1], words[2], words[3]};
        } else {
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            const int place = 4 * (n + w) + 2 * h;
            const Acc row[2] = {sums[q][place], sums[q][place + 1]};
            store_row<Whole>(output, M, N, i, corner.y + 8 * (n + w) + lane % 4 * 2, row);
          }
        }
      }
  }
}

// The outputs of a warp group.
template <int Columns>
__attribute__((always_inline)) inline void finish(const Output& output, int64 M, int64 N,
                                                  Corner corner,
                                                  const Acc (&sums)[tiles_down][Columns / 2],
                                                  int warp, int lane) {
  store_tile<exchanged ? ROWS : Columns>(
      output, N, exchanged ? corner.x : corner.y,
      [&]<bool Whole>(const Output& to) __attribute__((always_inline)) {
        store_sums<Whole, Columns>(to, M, N, corner, sums, warp, lane);
      });
}

}  // namespace funlib

FUNLIB_KERNEL(2, 1, funlib::work_items)
__attribute__((always_inline)) void gemm_wgmma(FUNLIB_GEMM_ARGUMENTS, unsigned char* workspace,
                                               funlib::LocalMemory memory) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  const Ring ring(memory, turns_y ? 2 * y_bytes : 0);
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
  const int warp_group = warp / 4;
  Turn turn;
  [[maybe_unused]] int turned = 0;
  for (int64 tile = tiles.first; tile < tiles.count(); tile += tiles.step) {
    Corner corner = tiles.corner(tile);
    corner.x += warp_group * ROWS;
    Sums sums[tiles_down];
#pragma unroll
    for (int q = 0; q < tiles_down; ++q)
#pragma unroll
      for (int n = 0; n < COLUMNS / 2; ++n) sums[q][n] = Acc(0);
    int before = 0;
    for (int step = 0; step < tiles.steps; ++step, turn.advance()) {
      ring.full(turn.stage).wait_together(turn.parity);
      const uint32 x = ring.x(turn.stage) + uint32(warp_group * ROWS * 128);
      if constexpr (turns_y) {
        // In turn over all tiles: a warp group may be ahead of the other one by a step of the next tile.
        const uint32 y = ring.more + uint32(turned++ % 2 * y_bytes);
        turn_tile(y, ring.y(turn.stage), item);
        fence_local_for_engines();
        barrier_of<1, multipliers>();
        multiply_stage(sums, x, y, warp % 4, lane);
        // Else the other warp group might turn a tile into what this one still multiplies.
        wait_for_products<0>();
        ring.release(turn.stage, lane);
      } else {
        multiply_stage(sums, x, ring.y(turn.stage), warp % 4, lane);
        if (step > 0) ring.release(before, lane);
        before = turn.stage;
      }
    }
    if constexpr (!turns_y) {
      wait_for_products<0>();
      if (tiles.steps > 0) ring.release(before, lane);
    }
    if constexpr (sliced) {
      constexpr int part = 32, vectors = COLUMNS / 2 / vector_sums;
      barrier_of<1, multipliers>();  // stages are read no more
#pragma unroll
      for (int q = 0; q < tiles_down; ++q) leave_sums(ring, q * vectors, item, sums[q]);
      cluster_barrier();
#pragma unroll 1
      for (int n = tiles.slice; n < COLUMNS / part; n += tiles.slices) {
        Acc total[tiles_down][part / 2];
#pragma unroll
        for (int q = 0; q < tiles_down; ++q)
          add_slices(ring, q * vectors + n * (part / 2 / vector_sums), item, tiles.slices,
                     total[q]);
        finish<part>(output, M, N, {corner.x, corner.y + n * part}, total, warp % 4, lane);
      }
      cluster_barrier();  // the others read what this work-group has left
    } else {
      finish<COLUMNS>(output, M, N, corner, sums, warp % 4, lane);
    }
  }
}
