// gemm_pipelined: tiles on their way to local memory while others are multiplied, 8 x 16 outputs a
// work-item.
//
//     global memory      local memory, STAGES tiles              registers
//                        +----+----+----+
//     A, B  --------->   | s  | +1 | +2 |  (a ring)   ------->   a, b of step k + 1
//            copies of   +----+----+----+   vectors              a, b of step k: multiplied
//            tile t + 2    t    t+1  t+2
//
// Three things run side by side: a copy of the tile after next from global memory, which needs no
// registers on its way; the operands of the next step along K from local memory; and the multiply-adds
// of this step, BLOCK_M x BLOCK_N of them for BLOCK_M + BLOCK_N operands. 8 x 16 outputs need 3/16 of a load a
// multiply-add. One barrier a tile: it says that all have the next tile and are done with the one
// before, whose place the following copy takes.
//
// A team of 32 work-items, a warp, has a part of the tile: LANES_M x (32 / LANES_M) work-items, each with
// outputs in squares of V x V as in gemm_register_blocked, V elements being 16 bytes.
//
//     rows      team row    * (LANES_M * BLOCK_M) + (q * LANES_M + y) * V + e      q = 0, 1, ..
//     columns   team column * (LANES_N * BLOCK_N) + (q * LANES_N + x) * V + e      e = 0 .. V-1
//
// Lane l has y and x by its bits, such that of any four neighbours two read the same vector of A and two the
// same of B: 16 lanes then read 128 bytes together in one pass.
//
//     LANES_M = 8:   y = bits 3, 2, 0   x = bits 4, 1         LANES_M = 4:   y = bits 4, 0   x = bits 3, 2, 1
//
// Teams that are many more than the tile has parts share the steps of a tile along K (TEAMS_K) and add up
// through local memory at the end: small products have few tiles, and this occupies the device by more
// work-items. Where tiles are still few, K is cut into slices as in gemm_split_k.
//
// Tiles have k outermost. What is stored so is copied by vectors of 16 bytes, if it is aligned; what is not,
// A as it is and a transposed B, is turned on the way: copied by elements, 8 neighbours along k by 8 lanes,
// and V elements of padding a row keep these in different banks. Rows and columns beyond the
// matrix are read from its last one, as their outputs are not stored; beyond K there are zeros.
//
// The work-groups in flight should read few different tiles: they are numbered down columns of `band` tiles.
//
// Parameters: FUNLIB_TILE_M, FUNLIB_TILE_N, FUNLIB_TILE_K, the tiles; FUNLIB_BLOCK_M, FUNLIB_BLOCK_N, the
// outputs of a work-item; FUNLIB_LANES_M, 4 or 8; FUNLIB_TEAMS_K; FUNLIB_STAGES. LANES * BLOCK divides TILE,
// V divides BLOCK, 8 and 2 * TEAMS_K divide TILE_K. FUNLIB_DEPTH, the least depth of a slice, is the host's.
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
constexpr int band = 8;

// An operand and the part of it that the work-group reads. Its tile in local memory is TILE_K x Width.
// AlongK: it is stored with k running fastest.
template <int Width, bool AlongK>
struct Source {
  static constexpr int pitch = Width + (AlongK ? V : 0), size = TILE_K * pitch;
  static constexpr int run = AlongK ? 8 : Width / V;  // work-items next to each other in a line
  static constexpr int lines = work_items / run, span = AlongK ? Width : TILE_K;
  static constexpr int passes = (span + lines - 1) / lines;
  static constexpr bool all = span % lines == 0;  // all work-items have something to do in all passes

  const T* X;  // the tile's first element
  int64 step;  // from one tile to the next
  unsigned ld, offsets[passes];
  int to, item, last;
  bool by_vectors;

  Source(const T* from, int64 ld, int64 first, int64 extent, int64 k0, int item)
      : ld(unsigned(ld)), item(item) {
    last = int(min(extent - first, Width)) - 1;
    X = AlongK ? from + first * ld + k0 : from + k0 * ld + first;
    step = AlongK ? TILE_K : TILE_K * ld;
    by_vectors = !AlongK && is_aligned(from, ld) && (last + 1) % V == 0;
    const int line = item / run, place = item % run;
#pragma unroll
    for (int p = 0; p < passes; ++p) {
      const int l = line + p * lines;
      offsets[p] = AlongK ? unsigned(l < last ? l : last) * this->ld + place
                          : unsigned(l) * this->ld + unsigned(place * V < last ? place * V : 0);
    }
    to = AlongK ? place * pitch + line : line * pitch + place * V;
  }

  // Copies the tile and goes on to the next; `left` steps of K are left.
  void copy(LocalAddress tile, int left) {
    constexpr int bytes = sizeof(T);
    const LocalAddress own = tile + to * bytes;
    if constexpr (AlongK) {
#pragma unroll
      for (int k = 0; k < TILE_K; k += run)
#pragma unroll
        for (int p = 0; p < passes; ++p)
          if (all || item / run + p * lines < span) {
            const LocalAddress place = own + (k * pitch + p * lines) * bytes;
            if (left >= TILE_K)
              copy_to_local<bytes>(place, X + offsets[p] + k);
            else
              copy_to_local<bytes>(place, X + offsets[p] + k, item % run + k < left);
          }
    } else if (by_vectors && left >= TILE_K) {
#pragma unroll
      for (int p = 0; p < passes; ++p)
        if (all || item / run + p * lines < span)
          copy_to_local<16>(own + p * lines * pitch * bytes, X + offsets[p]);
    } else {
#pragma unroll
      for (int n = 0; n < TILE_K * Width; n += work_items) {
        const int k = (n + item) / Width, i = (n + item) % Width;
        if (TILE_K * Width % work_items == 0 || k < TILE_K)
          copy_to_local<bytes>(tile + (k * pitch + i) * bytes, X + unsigned(k) * ld + (i < last ? i : last),
                               k < left);
      }
    }
    X += step;
  }
};

using SourceA = Source<TILE_M, !FUNLIB_TRANSPOSE_A>;
using SourceB = Source<TILE_N, FUNLIB_TRANSPOSE_B>;
constexpr int stage_size = SourceA::size + SourceB::size;
constexpr int exchange_size = TEAMS_K > 1 ? work_items / 2 * BLOCK_M * BLOCK_N : 0;
constexpr int local_size = STAGES * stage_size > exchange_size ? STAGES * stage_size : exchange_size;

struct alignas(16) LocalTiles {
  T elements[local_size];
};

// The operands of one step along K.
struct Step {
  Acc a[BLOCK_M], b[BLOCK_N];

  template <int Count>
  static void read(const T* from, int stride, Acc (&to)[Count]) {
#pragma unroll
    for (int q = 0; q < Count / V; ++q) {
      const Vector value = widen<T, V>(*reinterpret_cast<const Elements<T>*>(from + q * stride));
#pragma unroll
      for (int e = 0; e < V; ++e) to[q * V + e] = value[e];
    }
  }
  void read(const T* a_from, const T* b_from) {
    read(a_from, LANES_M * V, a);
    read(b_from, LANES_N * V, b);
  }
};

// The sums of work-items that share outputs, added up in a tree; those of team 0 are the result.
inline void add_shares(Block<BLOCK_M, BLOCK_N>& block, Acc* exchange, int share, int item) {
#pragma unroll
  for (int half = TEAMS_K / 2; half > 0; half /= 2) {
    barrier<2>();
    if (share >= half && share < 2 * half)
#pragma unroll
      for (int n = 0; n < BLOCK_M * BLOCK_N; ++n)
        exchange[((share - half) * BLOCK_M * BLOCK_N + n) * sharers + item] =
            block.sum[n / BLOCK_N][n % BLOCK_N];
    barrier<2>();
    if (share < half)
#pragma unroll
      for (int n = 0; n < BLOCK_M * BLOCK_N; ++n)
        block.sum[n / BLOCK_N][n % BLOCK_N] +=
            exchange[(share * BLOCK_M * BLOCK_N + n) * sharers + item];
  }
}

}  // namespace funlib

FUNLIB_KERNEL(2, 1, (FUNLIB_TILE_M / FUNLIB_LANES_M / FUNLIB_BLOCK_M) *
                        (FUNLIB_TILE_N * FUNLIB_LANES_M / FUNLIB_BLOCK_N) * FUNLIB_TEAMS_K)
void gemm_pipelined(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  FUNLIB_LOCAL(LocalTiles) storage;
  T* const local = static_cast<LocalTiles&>(storage).elements;
  const int item = local_id<2>(1), lane = item % 32, team = item / 32;
  const int team_m = team % teams_m, team_n = team / teams_m % teams_n;
  const int share = team / (teams_m * teams_n);
  const int y = LANES_M == 8 ? (lane & 1) | (lane >> 1 & 6) : (lane & 1) | (lane >> 3 & 2);
  const int x = LANES_M == 8 ? (lane >> 1 & 1) | (lane >> 3 & 2) : lane >> 1 & 7;

  const unsigned down = unsigned((M + TILE_M - 1) / TILE_M), across = unsigned((N + TILE_N - 1) / TILE_N);
  const unsigned slices = unsigned(shape.extra[1]), group = unsigned(group_id<2>(1));
  const unsigned slice = group / (down * across) % slices, n = group % (down * across);
  output_tile(M, N, TILE_M, TILE_N, batches, A, B, C, group / (down * across * slices) * (down * across));
  const unsigned first_down = n / (band * across) * band, rest = n % (band * across);
  const unsigned height = down - first_down < band ? down - first_down : band;
  const int64 row = int64(first_down + rest % height) * TILE_M, column = int64(rest / height) * TILE_N;

  const int64 k0 = slice * shape.extra[0];
  int left = int(min(K - k0, shape.extra[0]));
  const int tiles = (left + TILE_K - 1) / TILE_K;
  SourceA a_source(A, lda, row, M, k0, item);
  SourceB b_source(B, ldb, column, N, k0, item);
  const LocalAddress ring = local_address(local);
  LocalAddress place = ring;
  const auto copy_tiles = [&] {
    if (left > 0) {
      a_source.copy(place, left);
      b_source.copy(place + SourceA::size * int(sizeof(T)), left);
    }
    commit_copies();
    left -= TILE_K;
    place += stage_size * int(sizeof(T));
    if (place == ring + STAGES * stage_size * int(sizeof(T))) place = ring;
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) copy_tiles();

  const T* a = local + share * steps * SourceA::pitch + team_m * team_rows + y * V;
  const T* b = local + SourceA::size + share * steps * SourceB::pitch + team_n * team_columns + x * V;
  Block<BLOCK_M, BLOCK_N> block;
  Step step[2];
  int stage = 0;
  wait_for_copies<STAGES - 2>();
  barrier<2>();
  step[0].read(a, b);
#pragma unroll 1
  for (int t = 0; t < tiles; ++t)
#pragma unroll
    for (int k = 0; k < steps; ++k) {
      if (k == steps - 1) {
        wait_for_copies<STAGES - 2>();
        barrier<2>();
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        a += stage == 0 ? -(STAGES - 1) * stage_size : stage_size;
        b += stage == 0 ? -(STAGES - 1) * stage_size : stage_size;
      }
      const int next = (k + 1) % steps;
      step[(k + 1) % 2].read(a + next * SourceA::pitch, b + next * SourceB::pitch);
      if (k == 0) copy_tiles();
      block.multiply_add(step[k % 2].a, step[k % 2].b);
    }
  wait_for_copies<0>();
  if constexpr (TEAMS_K > 1) {
    add_shares(block, reinterpret_cast<Acc*>(local), share, item % sharers);
    if (share > 0) return;
  }
  const Output output(C + slice * M * ldc, ldc, alpha, beta, bias);
  const bool c_aligned = is_aligned(output.C, ldc);
#pragma unroll
  for (int r = 0; r < BLOCK_M; ++r)
#pragma unroll
    for (int q = 0; q < BLOCK_N / V; ++q)
      store_run(output, M, N, row + team_m * team_rows + (r / V * LANES_M + y) * V + r % V,
                column + team_n * team_columns + (q * LANES_N + x) * V, &block.sum[r][q * V], c_aligned);
}
