// gemm_pipelined: tiles are on their way to local memory while others are multiplied, 16 x 8 outputs a
// work-item.
//
//     global memory      local memory                            registers
//                        +----+----+----+
//     A, B  --------->   | t+2|  t | t+1|  STAGES tiles, ---->   a, b of step k + 1
//            copies of   +----+----+----+  a ring   vectors      a, b of step k: multiplied
//            tile t + 2
//
// Three things run side by side: the copies of the tile after the next one, which need no registers on
// their way; the operands of the next step along K, from local memory; and the multiply-adds of
// this step, BLOCK_M x BLOCK_N for BLOCK_M + BLOCK_N operands: 16 x 8 outputs need 3/16 of a load each.
// One barrier a tile says that all have the next tile and are done with the one before, whose place the
// following copies take.
//
// A team of 32 work-items, a warp on NVIDIA, has a part of the tile, LANES_M x LANES_N work-items with
// outputs in squares of V x V as in gemm_register_blocked, V elements being 16 bytes:
//
//     rows      team_m * LANES_M * BLOCK_M + (q * LANES_M + y) * V + e      q = 0, 1, ..
//     columns   team_n * LANES_N * BLOCK_N + (q * LANES_N + x) * V + e      e = 0 .. V-1
//
// The bits of a lane's number are dealt out to y and x such that of four lanes in a row two read the same
// vector of A, and two the same of B: 16 lanes then read 128 bytes in one pass.
//
//     LANES_M = 8    y = bits 3, 2, 0    x = bits 4, 1
//     LANES_M = 4    y = bits 4, 0       x = bits 3, 2, 1
//
// TEAMS_K teams can have the same outputs and share the steps of a tile; at the end they share the rows
// out and give each other their sums through local memory. That keeps a device busy with small products,
// which have few tiles. Where there are fewer still, K is cut into slices as in gemm_split_k.
//
// Tiles are kept with k outermost. An operand that is stored so is copied by vectors of 16 bytes, if its
// rows are made of them. One that is not, A as it is or a transposed B, is turned on its way: copied by
// elements, 8 along k by 8 lanes, into rows with V elements of padding, which keep them in different
// banks. What lies beyond the last row or column is read from that one, since its outputs are not stored;
// beyond K are zeros.
//
// Work-groups that run together should read few different tiles: they are numbered down bands of 8 rows
// of tiles, column by column.
//
// Parameters: FUNLIB_TILE_M, FUNLIB_TILE_N, FUNLIB_TILE_K, the tiles; FUNLIB_BLOCK_M, FUNLIB_BLOCK_N,
// the outputs of a work-item; FUNLIB_LANES_M; FUNLIB_TEAMS_K; FUNLIB_STAGES; FUNLIB_PARTS, in how many
// parts the copies of a tile are spread over its steps. LANES * BLOCK divides TILE, V and TEAMS_K divide
// BLOCK_M, V divides BLOCK_N, PARTS * TEAMS_K and 2 * TEAMS_K divide TILE_K. FUNLIB_SLICES, of K, is the
// host's.
#include "funlib_copy.hpp"
#include "gemm_run.hpp"

namespace funlib {

constexpr int TILE_M = FUNLIB_TILE_M, TILE_N = FUNLIB_TILE_N, TILE_K = FUNLIB_TILE_K;
constexpr int BLOCK_M = FUNLIB_BLOCK_M, BLOCK_N = FUNLIB_BLOCK_N;
constexpr int LANES_M = FUNLIB_LANES_M, LANES_N = 32 / LANES_M;
constexpr int STAGES = FUNLIB_STAGES, TEAMS_K = FUNLIB_TEAMS_K;
constexpr int team_rows = LANES_M * BLOCK_M, team_columns = LANES_N * BLOCK_N;
constexpr int teams_m = TILE_M / team_rows, teams_n = TILE_N / team_columns;
constexpr int sharers = teams_m * teams_n * 32;  // work-items of a tile, for one share of K
constexpr int work_items = sharers * TEAMS_K;
constexpr int steps = TILE_K / TEAMS_K;  // of a tile, for one team
constexpr int PARTS = FUNLIB_PARTS;      // in which a tile is copied
constexpr unsigned band = 8;

inline int smaller(int a, int b) { return a < b ? a : b; }

// An operand and the part of it that the work-group reads. Its tile in local memory is TILE_K x Width.
// AlongK: it is stored with k running fastest.
template <int Width, bool AlongK, bool Aligned>
struct Source {
  static constexpr int bytes = sizeof(T), pitch = Width + (AlongK ? V : 0), size = TILE_K * pitch;
  static constexpr bool by_vectors = !AlongK && Aligned;
  static constexpr int piece = by_vectors ? V : 1;  // elements of a copy
  // `run` work-items next to each other copy a line, or one of its parts; all of them, `lines` lines. That
  // takes `passes` passes for each part, `parts` parts.
  static constexpr int length = AlongK ? TILE_K : Width / piece, most = AlongK ? 8 : work_items;
  static constexpr int run = length < most ? length : most, parts = length / run;
  static constexpr int lines = work_items / run, span = AlongK ? Width : TILE_K;
  static constexpr int passes = (span + lines - 1) / lines;
  static constexpr bool busy = span % lines == 0;  // all of them, in all passes

  const char* tile;  // in global memory
  int64 step;        // to the next tile
  Offset offsets[AlongK ? passes : passes * parts];
  int line, place, to;

  Source(const T* X, int64 ld, int64 first, int64 extent, int64 k0, int item)
      : line(item / run), place(item % run) {
    const int last = int(min(extent - first, Width)) - 1;
    tile = reinterpret_cast<const char*>(X + (AlongK ? first * ld + k0 : k0 * ld + first));
    step = (AlongK ? TILE_K : TILE_K * ld) * bytes;
#pragma unroll
    for (int n = 0; n < int(sizeof offsets / sizeof *offsets); ++n) {
      const int l = line + n % passes * lines, i = (place + n / passes * run) * piece;
      offsets[n] = bytes * (AlongK ? Offset(smaller(l, last)) * Offset(ld) + place
                                   : Offset(l) * Offset(ld) + smaller(i, last + 1 - piece));
    }
    to = (AlongK ? place * pitch + line : line * pitch + place * piece) * bytes;
  }

  // One of the PARTS in which a tile is copied; `left` steps of K are left.
  FUNLIB_INLINE void copy(LocalAddress local, int left, int part) const {
#pragma unroll
    for (int n = 0; n < parts * passes; ++n) {
      const int first = n / passes * run, p = n % passes * lines;
      if (n * PARTS / (parts * passes) != part || !(busy || line + p < span)) continue;
      if constexpr (AlongK)
        copy_to_local<bytes>(local + to + (first * pitch + p) * bytes,
                             tile + offsets[n % passes] + first * bytes, place + first < left);
      else
        copy_to_local<piece * bytes>(local + to + (p * pitch + first * piece) * bytes,
                                     tile + offsets[n], line + p < left);
    }
  }
  void next() { tile += step; }
};

using SourceA = Source<TILE_M, !FUNLIB_TRANSPOSE_A, FUNLIB_ALIGNED_A>;
using SourceB = Source<TILE_N, FUNLIB_TRANSPOSE_B, FUNLIB_ALIGNED_B>;
constexpr int stage_size = SourceA::size + SourceB::size;
constexpr int exchange_size = (TEAMS_K - 1) * sharers * BLOCK_M * BLOCK_N;
constexpr int local_size = STAGES * stage_size > exchange_size ? STAGES* stage_size : exchange_size;

struct alignas(16) LocalTiles {
  T elements[local_size];
};

// The operands of one step along K.
struct Step {
  Acc a[BLOCK_M], b[BLOCK_N];

  template <int Count>
  FUNLIB_INLINE static void read(const T* from, int stride, Acc (&to)[Count]) {
#pragma unroll
    for (int q = 0; q < Count / V; ++q) {
      const Vector value = widen<T, V>(*reinterpret_cast<const Elements<T>*>(from + q * stride));
#pragma unroll
      for (int e = 0; e < V; ++e) to[q * V + e] = value[e];
    }
  }
  FUNLIB_INLINE void read(const T* a_from, const T* b_from) {
    read(a_from, LANES_M * V, a);
    read(b_from, LANES_N * V, b);
  }
};

// The longer side is the inner loop, there and back: an operand of the shorter one is read once for
// all of it, and what was last read of the longer one comes first.
FUNLIB_INLINE inline void multiply_add(Acc (&sum)[BLOCK_M][BLOCK_N], const Step& step) {
  constexpr int shorter = BLOCK_M < BLOCK_N ? BLOCK_M : BLOCK_N;
  constexpr int longer = BLOCK_M * BLOCK_N / shorter;
#pragma unroll
  for (int o = 0; o < shorter; ++o)
#pragma unroll
    for (int n = 0; n < longer; ++n) {
      const int i = o % 2 == 0 ? n : longer - 1 - n;
      const int r = BLOCK_M == shorter ? o : i, c = BLOCK_M == shorter ? i : o;
      sum[r][c] += step.a[r] * step.b[c];
    }
}

// Work-items with the same outputs and different steps along K share them out by rows: each gets the sums
// of the others for its own.
constexpr int rows_each = BLOCK_M / TEAMS_K;

FUNLIB_INLINE inline void exchange_sums(Acc (&sum)[BLOCK_M][BLOCK_N], Vector* place, int share,
                                        int item) {
  constexpr int others = TEAMS_K - 1, vectors = rows_each * BLOCK_N / V;
  barrier<2>();
#pragma unroll
  for (int to = 0; to < TEAMS_K; ++to)
    if (to != share)
#pragma unroll
      for (int n = 0; n < vectors; ++n) {
        Vector value;
#pragma unroll
        for (int e = 0; e < V; ++e)
          value[e] = sum[to * rows_each + n * V / BLOCK_N][n * V % BLOCK_N + e];
        const int from = share < to ? share : share - 1;
        place[((to * others + from) * vectors + n) * sharers + item] = value;
      }
  barrier<2>();
#pragma unroll
  for (int to = 0; to < TEAMS_K; ++to)
    if (to == share)
#pragma unroll
      for (int from = 0; from < others; ++from)
#pragma unroll
        for (int n = 0; n < vectors; ++n) {
          const Vector value = place[((to * others + from) * vectors + n) * sharers + item];
#pragma unroll
          for (int e = 0; e < V; ++e)
            sum[to * rows_each + n * V / BLOCK_N][n * V % BLOCK_N + e] += value[e];
        }
}

}  // namespace funlib

FUNLIB_KERNEL(2, 1,
              (FUNLIB_TILE_M / FUNLIB_LANES_M / FUNLIB_BLOCK_M) *
                  (FUNLIB_TILE_N * FUNLIB_LANES_M / FUNLIB_BLOCK_N) * FUNLIB_TEAMS_K)
FUNLIB_INLINE void gemm_pipelined(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  FUNLIB_LOCAL(LocalTiles) storage;
  T* const local = static_cast<LocalTiles&>(storage).elements;
  const int item = local_id<2>(1), lane = item % 32, team = item / 32;
  const int team_m = team % teams_m, team_n = team / teams_m % teams_n;
  const int share = team / (teams_m * teams_n);
  const int y = LANES_M == 8 ? (lane & 1) | (lane >> 1 & 6) : (lane & 1) | (lane >> 3 & 2);
  const int x = LANES_M == 8 ? (lane >> 1 & 1) | (lane >> 3 & 2) : lane >> 1 & 7;

  // By 32 bits and without a division where there is nothing to divide: they are slow.
  const unsigned down = unsigned((M + TILE_M - 1) / TILE_M),
                 across = unsigned((N + TILE_N - 1) / TILE_N);
  const unsigned tiles = down * across, slices = unsigned(shape.extra[1]);
  unsigned n = unsigned(group_id<2>(1)), slice = 0;
#if FUNLIB_BATCHED
  output_tile(M, N, TILE_M, TILE_N, batches, A, B, C, n / (tiles * slices) * tiles);
  n %= tiles * slices;
#endif
  if (slices > 1) {
    slice = n / tiles;
    n %= tiles;
  }
  unsigned first_down = 0, height = down;
  if (down > band) {
    first_down = n / (band * across) * band;
    n %= band * across;
    height = down - first_down < band ? down - first_down : band;
  }
  const unsigned tile_across = height == band ? n / band : n / height;
  const int64 row = int64(first_down + n - tile_across * height) * TILE_M;
  const int64 column = int64(tile_across) * TILE_N;

  const int64 k0 = slice * shape.extra[0];
  int left = int(min(K - k0, shape.extra[0]));
  const int tiles_along = (left + TILE_K - 1) / TILE_K;
  SourceA a_source(A, lda, row, M, k0, item);
  SourceB b_source(B, ldb, column, N, k0, item);
  const LocalAddress ring = local_address(local);
  LocalAddress place = ring;
  const auto copy = [&](int part) FUNLIB_INLINE {
    a_source.copy(place, left, part);
    b_source.copy(place + SourceA::size * int(sizeof(T)), left, part);
  };
  const auto next_tile = [&]() FUNLIB_INLINE {
    commit_copies();
    a_source.next();
    b_source.next();
    left -= TILE_K;
    place += stage_size * int(sizeof(T));
    if (place == ring + STAGES * stage_size * int(sizeof(T))) place = ring;
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) copy(part);
    next_tile();
  }

  const T* a = local + share * steps * SourceA::pitch + team_m * team_rows + y * V;
  const T* b =
      local + SourceA::size + share * steps * SourceB::pitch + team_n * team_columns + x * V;
  Block<BLOCK_M, BLOCK_N> block;
  Step step[2];
  int stage = 0;
  wait_for_copies<STAGES - 2>();
  barrier<2>();
  step[0].read(a, b);
#pragma unroll 1
  for (int t = 0; t < tiles_along; ++t)
#pragma unroll
    for (int k = 0; k < steps; ++k) {
      if (k % (steps / PARTS) == 0 && left > 0) copy(k / (steps / PARTS));
      if (k == steps - 1) {
        next_tile();
        wait_for_copies<STAGES - 2>();
        barrier<2>();
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        a += stage == 0 ? -(STAGES - 1) * stage_size : stage_size;
        b += stage == 0 ? -(STAGES - 1) * stage_size : stage_size;
      }
      const int next = (k + 1) % steps;
      step[(k + 1) % 2].read(a + next * SourceA::pitch, b + next * SourceB::pitch);
      multiply_add(block.sum, step[k % 2]);
    }
  wait_for_copies<0>();
  if constexpr (TEAMS_K > 1)
    exchange_sums(block.sum, reinterpret_cast<Vector*>(local), share, item % sharers);
  const Output output(C + slice * M * ldc, ldc, alpha, beta, bias);
  const int64 i = row + team_m * team_rows + y * V, j = column + team_n * team_columns + x * V;
  const auto for_each_run = [&](const auto& store) FUNLIB_INLINE {
#pragma unroll
    for (int r = 0; r < BLOCK_M; ++r)
      if (r / rows_each == share)
#pragma unroll
        for (int q = 0; q < BLOCK_N / V; ++q)
          store(i + r / V * LANES_M * V + r % V, j + q * LANES_N * V, &block.sum[r][q * V]);
  };
  // The usual case without branches between the stores.
  if (is_aligned(output.C, ldc) && beta == 0 && row + TILE_M <= M && column + TILE_N <= N)
    for_each_run([&](int64 i, int64 j, const Acc* sum)
                     FUNLIB_INLINE { store_vector(output, i, j, sum); });
  else
    for_each_run([&](int64 i, int64 j, const Acc* sum)
                     FUNLIB_INLINE { store_elements(output, M, N, i, j, sum); });
}
