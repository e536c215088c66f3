// A ring of stages in local memory, between a warp that copies operands and the warps that multiply.
//
//     one warp:  copies ->  [ X Y | X Y | X Y | X Y ]  STAGES, each 128 bytes of K long
//                              |     ^
//                              v     '-- "empty" barriers, once all have read it
//     WARP_GROUPS x 4 warps:  sums += X Y^T            (four warps are a group)
//
//     Y (COLUMNS of it) ->   +-------------------+     X: WARP_GROUPS * ROWS rows
//     X, warp group 0   ->   |   ROWS x COLUMNS  |
//     X, warp group 1   ->   |-------------------|
//                            |   ROWS x COLUMNS  |
//                            +-------------------+
//
// X is A and Y is op(B) transposed, stored with K along lines or across them, except for A @ B in types
// that are multiplied best with K along the lines of Y: X is op(B) transposed then and Y is A, and sums are
// those of C transposed.
//
// A copy takes one instruction of one work-item: it names a box of a matrix (TensorMap) and the copy engine
// brings it, swizzled against bank conflicts, with zeros outside of the matrix, and counts its bytes at the
// stage's "full" barrier.
//
// A work-group does a tile after the other, so that the copies for one run during the epilogue of the one
// before. Tiles go in bands of BAND rows of tiles, which keeps the operands of those that are worked on
// at a time in the L2 cache. Where tiles are few, K is cut into SLICES, each the work of one work-group of a
// cluster. Their sums meet in local memory, where work-groups of a cluster reach each other: each adds up
// and stores a part of the columns of Y.
#pragma once

#include "funlib_hopper.hpp"
#include "gemm_common.hpp"

namespace funlib {

constexpr int WARP_GROUPS = FUNLIB_WARP_GROUPS, ROWS = FUNLIB_ROWS, COLUMNS = FUNLIB_COLUMNS;
constexpr int STAGES = FUNLIB_STAGES, BAND = FUNLIB_BAND;
constexpr bool sliced = FUNLIB_SLICES > 1;
constexpr int multipliers = WARP_GROUPS * 128, x_rows = WARP_GROUPS * ROWS;

constexpr bool a_along = !FUNLIB_TRANSPOSE_A, b_along = FUNLIB_TRANSPOSE_B;
constexpr bool any_order = sizeof(T) == 2;
constexpr bool exchanged = !any_order && a_along && !b_along;
constexpr bool x_along = exchanged ? b_along : a_along, y_along = exchanged ? a_along : b_along;

// Elements of 128 bytes: along K, what a stage holds; otherwise, the rows or columns of a box.
constexpr int line_elements = 128 / sizeof(T);
constexpr int box_bytes = line_elements * 128;
constexpr int x_bytes = x_rows * 128, y_bytes = COLUMNS * 128, stage_bytes = x_bytes + y_bytes;

// Addresses in local memory.
struct Ring {
  uint32 stages, maps, barriers, more;

  // `bytes` of them for other things, a multiple of 1024.
  Ring(const LocalMemory& memory, int bytes) {
    stages = local_address(memory, 1024);
    more = stages + STAGES * stage_bytes;
    maps = more + uint32(bytes);
    barriers = maps + 2 * TensorMap::bytes;
  }

  uint32 x(int stage) const { return stages + uint32(stage * stage_bytes); }
  uint32 y(int stage) const { return x(stage) + x_bytes; }
  CopyBarrier full(int stage) const { return {barriers + 16 * uint32(stage)}; }
  CopyBarrier empty(int stage) const { return {barriers + 16 * uint32(stage) + 8}; }

  // All warps that multiply arrive at "empty". One work-item calls it, before the work-group's barrier.
  void init() const {
    for (int stage = 0; stage < STAGES; ++stage) {
      full(stage).init(1);
      empty(stage).init(WARP_GROUPS * 4);
    }
    fence_local_for_engines();
  }

  // A warp gives a stage back whose products are done, which have read it, or what was loaded from it.
  void release(int stage, int lane) const {
    if (lane == 0) empty(stage).arrive();
  }
  // One from which its lanes have loaded: that has to be done before copies write there.
  void release_after_loads(int stage, int lane) const {
    fence_local_for_engines();
    sub_group_barrier();
    release(stage, lane);
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

// The tiles of a work-group, which moves A, B and C to the matrices of its batch: number g does tiles
// g, g + groups, .., with a batch or slices one.
struct Tiles {
  int64 x_length, y_length, x_tiles, y_tiles, first, step;
  int slice = 0, slices = 1;
  int before = 0, steps;  // along K

  Tiles(const GemmShape& shape, const T*& A, const T*& B, Out*& C)
      : x_length(exchanged ? shape.n : shape.m), y_length(exchanged ? shape.m : shape.n) {
    x_tiles = (x_length + x_rows - 1) / x_rows;
    y_tiles = (y_length + COLUMNS - 1) / COLUMNS;
    first = group_id<2>(1);
    step = shape.extra[0];
    steps = int((shape.k + line_elements - 1) / line_elements);
    if constexpr (sliced) {
      slices = int(shape.extra[2]);
      slice = int(first % slices);
      first /= slices;
      before = slice * int(shape.extra[1]);
      steps = int(min(shape.extra[1], steps - before));
    }
#if FUNLIB_BATCHED
    output_tile(shape.m, shape.n, exchanged ? COLUMNS : x_rows, exchanged ? x_rows : COLUMNS,
                shape.batches, A, B, C, first);
    first %= count();
#endif
  }
  int64 count() const { return x_tiles * y_tiles; }
  Corner corner(int64 tile) const {
    const int64 above = tile / (BAND * y_tiles) * BAND, place = tile % (BAND * y_tiles);
    const int64 height = min(x_tiles - above, BAND);
    return {int(above + place % height) * x_rows, int(place / height) * COLUMNS};
  }
};

// Copies `Rows` rows of an operand from row `first` on, elements k .. of K.
template <bool Along, int Rows>
inline void copy_rows(uint32 local, const TensorMap& map, int first, int k, CopyBarrier barrier) {
  if constexpr (Along) {
    map.copy(local, k, first, barrier);
  } else {
#pragma unroll
    for (int n = 0; n < Rows / line_elements; ++n)
      map.copy(local + uint32(n * box_bytes), first + n * line_elements, k, barrier);
  }
}

// The maps of X and Y; the workspace has room for those of each work-group. Two warps make them side by
// side, before the work-group's barrier.
struct Maps {
  TensorMap x, y;
  // Lines of a box: those of an operand that has fewer rows than a tile, since zeros for those beyond
  // would take the copies' time. What is in their place is multiplied into sums that nobody stores.
  int x_lines, y_lines;

  Maps(unsigned char* workspace, const Tiles& tiles)
      : x{reinterpret_cast<uint64>(workspace + group_id<2>(1) * 2 * TensorMap::bytes)},
        y{x.global + TensorMap::bytes},
        x_lines(x_along ? int(min(x_rows, tiles.x_length)) : line_elements),
        y_lines(y_along ? int(min(COLUMNS, tiles.y_length)) : line_elements) {}

  void make(const Ring& ring, const GemmShape& shape, const T* A, const T* B, const Tiles& tiles,
            int warp, int lane) const {
    if (warp == 1)
      x.make(ring.maps, lane, exchanged ? B : A, x_along ? shape.k : tiles.x_length,
             x_along ? tiles.x_length : shape.k,
             (exchanged ? shape.ldb : shape.lda) * int64(sizeof(T)), x_lines);
    else if (warp == 2)
      y.make(ring.maps + TensorMap::bytes, lane, exchanged ? A : B,
             y_along ? shape.k : tiles.y_length, y_along ? tiles.y_length : shape.k,
             (exchanged ? shape.lda : shape.ldb) * int64(sizeof(T)), y_lines);
  }
  int stage_bytes() const {
    return (x_along ? x_lines * 128 : x_bytes) + (y_along ? y_lines * 128 : y_bytes);
  }
};

// What the warp that copies does. One work-item alone goes on, and the compiler has to see that: it would
// test with each copy whether others want another one.
inline void copy_operands(const Ring& ring, const Maps& maps, const Tiles& tiles) {
  maps.x.acquire();
  maps.y.acquire();
  if (!is_elected()) return;
  const int bytes = maps.stage_bytes();
  Turn turn;
  for (int64 tile = tiles.first; tile < tiles.count(); tile += tiles.step) {
    const Corner corner = tiles.corner(tile);
    for (int step = 0; step < tiles.steps; ++step, turn.advance()) {
      ring.empty(turn.stage).wait(turn.parity ^ 1);
      const CopyBarrier barrier = ring.full(turn.stage);
      barrier.arrive_and_expect(bytes);
      const int k = (tiles.before + step) * line_elements;
      copy_rows<x_along, x_rows>(ring.x(turn.stage), maps.x, corner.x, k, barrier);
      copy_rows<y_along, COLUMNS>(ring.y(turn.stage), maps.y, corner.y, k, barrier);
    }
  }
}

// ---- slices of K ---------------------------------------------------------------------------------

// The vectors of 16 bytes that sums are exchanged by, in the memory of the stages: number v of all
// work-items lie side by side.
constexpr int vector_sums = 16 / sizeof(Acc);
using SumVector = VectorOf<Acc, vector_sums>;

inline uint32 exchange_place(const Ring& ring, int vector, int item) {
  return ring.stages + uint32(vector * multipliers + item) * 16;
}

// Leaves `Count` sums to the cluster, vectors `vector` and following ones.
template <int Count>
FUNLIB_INLINE inline void leave_sums(const Ring& ring, int vector, int item,
                                     const Acc (&sums)[Count]) {
#pragma unroll
  for (int n = 0; n < Count; n += vector_sums) {
    SumVector value;
#pragma unroll
    for (int e = 0; e < vector_sums; ++e) value[e] = sums[n + e];
    store_local(exchange_place(ring, vector + n / vector_sums, item), value);
  }
}

// Adds up what the same work-item of all work-groups has left, in the order of the slices.
template <int Count>
FUNLIB_INLINE inline void add_slices(const Ring& ring, int vector, int item, int slices,
                                     Acc (&sums)[Count]) {
#pragma unroll
  for (int n = 0; n < Count; ++n) sums[n] = Acc(0);
#pragma unroll 2
  for (int slice = 0; slice < slices; ++slice)
#pragma unroll
    for (int n = 0; n < Count; n += vector_sums) {
      const auto value =
          load_of_cluster<SumVector>(exchange_place(ring, vector + n / vector_sums, item), slice);
#pragma unroll
      for (int e = 0; e < vector_sums; ++e) sums[n + e] += value[e];
    }
}

// ---- results -------------------------------------------------------------------------------------

// Where the 16 bytes at `place` of a line are.
inline uint32 in_line(uint32 tile, int line, int place) {
  return tile + uint32(line * 128 + ((place ^ (line & 7)) << 4));
}

// Count outputs in a row. Whole: all columns that are stored together are inside, C is aligned to 16 bytes
// and not read.
template <bool Whole, int Count>
inline void store_row(const Output& output, int64 M, int64 N, int64 i, int64 j,
                      const Acc (&sums)[Count]) {
  if (i >= M) return;
  if constexpr (Whole) {
    VectorOf<Acc, Count> value;
#pragma unroll
    for (int e = 0; e < Count; ++e) value[e] = output.value(i, j + e, sums[e]);
    *reinterpret_cast<VectorOf<Out, Count>*>(output.C + i * output.ldc + j) =
        narrow<Out, Count>(value);
  } else {
#pragma unroll
    for (int e = 0; e < Count; ++e)
      if (j + e < N) output.store(i, j + e, sums[e]);
  }
}

// store(Whole, output) stores the sums of a tile whose Columns columns of C begin at column j.
template <int Columns, typename Store>
__attribute__((always_inline)) inline void store_tile(const Output& output, int64 N, int64 j,
                                                      const Store& store) {
  const bool aligned =
      reinterpret_cast<uint64>(output.C) % 16 == 0 && output.ldc * int64(sizeof(Out)) % 16 == 0;
  if (aligned && output.beta == Acc(0) && j + Columns <= N) {
    Output plain = output;
    plain.beta = Acc(0);  // known to the compiler
    store.template operator()<true>(plain);
  } else {
    store.template operator()<false>(output);
  }
}

}  // namespace funlib
