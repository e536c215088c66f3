// gemm_matrix_engine: small matrix products in one instruction, by the device's matrix engines.
//
//                       B tile, TILE_K x TILE_N            TILE_M x TILE_N outputs a work-group
//                          [ k0 .. k0+TILE_K ]             SUB_M x SUB_N outputs a sub-group:
//                                   |                        rows     y * SUB_M ..
//  A tile              +-------------------------+          columns  x * SUB_N ..
//  TILE_M x TILE_K     | 0,0  | 0,1  | 0,2  | .. |         of the tile, sub-group (y, x)
//  [ k0 .. ]  ->       |------+------+------+----|
//                      | 1,0  |[][][]|      |    |         [] ENGINE_M x ENGINE_N outputs, one tile of
//                      |      |[][][]|      |    |            sums, of which the lanes hold a part each
//                      +-------------------------+
//
// An engine multiplies ENGINE_M x ENGINE_K by ENGINE_K x ENGINE_N elements at once and adds the product
// to its sums: 4096 multiply-adds for two tiles of 256 elements at 16 x 16 x 16, where the
// work-items of gemm_register_blocked take an instruction for each. What is left to do is to feed it: a
// sub-group with I x J tiles of sums loads I tiles of A and J of B for I J products, and the work-group
// reads each element from global memory once for TILE_M or TILE_N multiply-adds.
//
// Engines take whole tiles only, whose rows are aligned. So both operands go through local memory, with
// zeros outside of the matrix, by vectors of 16 bytes along their storage. Either they stay as they are
// stored, and the engine is told so, or (INTERLEAVED, for Intel's engines, which want that) they are turned
// on their way:
//
//                              as stored         transposed        turned
//     A   element (i, k) at    line i, k         line k, i         line i, k
//     B   element (k, j) at    line k, j         line j, k         line k / factor, j * factor + k % factor
//
// with as many elements of a column side by side (factor) as fill 32 bits. Copies of what stays as it is run
// beside the products (funlib_copy.hpp): local memory is a ring of STAGES pairs of tiles, of which all but
// one are on their way, and there is one barrier for each TILE_K of K (two with one stage). 16 bytes of
// padding spread the lines over the banks; 32 where an engine reads single elements of lines across K, and of
// what is turned.
//
//     STAGES = 3:   tile t+2 -> [ A B | A B | A B ] -> products of tile t
//
// Where outputs are few, TEAMS_K teams of sub-groups have the same ones and share K out, an ENGINE_K in turn.
// The sums leave through local memory too, one tile a sub-group at a time: only there are they known by row
// and column, which the epilogue needs, and there those of the teams are added up, in fixed order.
//
// Types: bfloat16 and float16 with sums in float32, int8 with sums in int32 that wrap, float64; float32
// only where the caller allows TF32, to which its elements are rounded (to nearest, ties to even) by the
// work-items that brought them.
//
// Parameters: FUNLIB_ENGINE_M, FUNLIB_ENGINE_N, FUNLIB_ENGINE_K, a shape of the engine, and
// FUNLIB_SUB_GROUP, the lanes that work it, as the device lists them; FUNLIB_SUB_M, FUNLIB_SUB_N, the
// outputs of a sub-group; FUNLIB_TILE_M, FUNLIB_TILE_N, FUNLIB_TILE_K, the tiles of a work-group;
// FUNLIB_TEAMS_K; FUNLIB_STAGES; FUNLIB_INTERLEAVED, whether operands are turned, the host's knowledge.
// ENGINE divides SUB, SUB divides TILE, TEAMS_K * ENGINE_K divides TILE_K, and lines are whole vectors.
#include "funlib_copy.hpp"
#include "funlib_launch_local.hpp"
#include "funlib_matrix.hpp"
#include "funlib_sub_group.hpp"
#include "gemm_common.hpp"

namespace funlib {

constexpr int ENGINE_M = FUNLIB_ENGINE_M, ENGINE_N = FUNLIB_ENGINE_N, ENGINE_K = FUNLIB_ENGINE_K;
constexpr int SUB_M = FUNLIB_SUB_M, SUB_N = FUNLIB_SUB_N;
constexpr int TILE_M = FUNLIB_TILE_M, TILE_N = FUNLIB_TILE_N, TILE_K = FUNLIB_TILE_K;
constexpr int TEAMS_K = FUNLIB_TEAMS_K;
constexpr int across = TILE_N / SUB_N, team = TILE_M / SUB_M * across, sub_groups = team * TEAMS_K;
constexpr int lanes = FUNLIB_SUB_GROUP, work_items = sub_groups * lanes;
constexpr int down_tiles = SUB_M / ENGINE_M, across_tiles = SUB_N / ENGINE_N;

constexpr int STAGES = FUNLIB_STAGES;

constexpr int V = 16 / sizeof(T);
using Word = VectorElement<T>::Type;
using Vector = VectorOf<T, V>;

constexpr bool turned = FUNLIB_INTERLEAVED;

// Part of an operand: lines, across K or along it, and padding.
template <int Lines, int Run, bool Across>
struct alignas(64) LocalTile {
  static constexpr int pitch = Run + (turned || (Across && sizeof(T) >= 4) ? 2 : 1) * V;
  Vector vectors[Lines][pitch / V];

  Word* at(int line, int element) { return reinterpret_cast<Word*>(&vectors[line][0]) + element; }
};

constexpr int factor = turned && sizeof(T) < 4 ? 4 / sizeof(T) : 1;
constexpr bool a_by_columns = FUNLIB_TRANSPOSE_A && !turned;
constexpr bool b_by_columns = FUNLIB_TRANSPOSE_B && !turned;
constexpr Order order_a = a_by_columns ? Order::by_columns : Order::by_rows;
constexpr Order order_b = factor > 1     ? Order::interleaved
                          : b_by_columns ? Order::by_columns
                                         : Order::by_rows;

struct LocalA
    : LocalTile<a_by_columns ? TILE_K : TILE_M, a_by_columns ? TILE_M : TILE_K, a_by_columns> {
  const T* element(int i, int k) {
    return reinterpret_cast<const T*>(a_by_columns ? at(k, i) : at(i, k));
  }
};
struct LocalB : LocalTile<b_by_columns ? TILE_N : TILE_K / factor,
                          b_by_columns ? TILE_K : TILE_N * factor, !b_by_columns> {
  const T* element(int k, int j) {
    return reinterpret_cast<const T*>(b_by_columns ? at(j, k) : at(k / factor, j * factor));
  }
};
struct Stage {
  LocalA a;
  LocalB b;
};

// The sums take the place of the operands when these are done with.
union Storage {
  Stage stages[STAGES];
  Acc sums[TEAMS_K][team][ENGINE_M * ENGINE_N];
};

inline bool is_aligned(const T* data, int64 leading_dimension) {
  return reinterpret_cast<uint64>(data) % sizeof(Vector) == 0 && leading_dimension % V == 0;
}

// The nearest TF32 of float32; a type that engines multiply as it is stays so.
template <typename Elements>
inline Elements rounded(Elements value) {
  return value;
}
inline VectorOf<float, 4> rounded(VectorOf<float, 4> value) {
  const auto bits = __builtin_bit_cast(VectorOf<unsigned, 4>, value);
  const auto nearest = (bits + 0xfffu + (bits >> 13u & 1u)) & 0xffffe000u;
  // Rounding must not carry the mantissa of a NaN away.
  return value == value ? __builtin_bit_cast(VectorOf<float, 4>, nearest) : value;
}

// V elements of a line from `run` on; zeros outside.
inline Vector load(const T* X, int64 ld, int64 line, int64 lines, int64 run, int64 length,
                   bool aligned) {
  const Word* const from = reinterpret_cast<const Word*>(X + line * ld + run);
  if (aligned && line < lines && run + V <= length) return *reinterpret_cast<const Vector*>(from);
  Vector value = Vector(Word(0));
#pragma unroll
  for (int e = 0; e < V; ++e)
    if (line < lines && run + e < length) value[e] = from[e];
  return value;
}

// The vectors of a part of an operand, Lines x Run elements: each(line, element) for those that are
// this work-item's. Unrolled takes registers for many addresses.
template <int Lines, int Run, bool Unrolled, typename Each>
FUNLIB_INLINE inline void for_vectors(const Each& each) {
  static_assert(Run % V == 0);
  constexpr int along = Run / V, all = Lines * along;
  constexpr int passes = (all + work_items - 1) / work_items;
  const int item = local_id<2>(0) * lanes + local_id<2>(1);
  if constexpr (Unrolled) {
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      const int n = pass * work_items + item;
      if (all % work_items == 0 || n < all) each(n / along, n % along * V);
    }
  } else {
#pragma unroll 1
    for (int n = item; n < all; n += work_items) each(n / along, n % along * V);
  }
}

// Copies a part of an operand as it is, from line first_line (of `lines`), element first (of `length`) on.
template <int Lines, int Run, bool Across>
FUNLIB_INLINE inline void copy(LocalTile<Lines, Run, Across>& local, const T* X, int64 ld,
                               int64 first_line, int64 lines, int64 first, int64 length,
                               bool aligned) {
  const T* const corner = X + first_line * ld + first;
  // Addresses by 32 bits take fewer registers.
  const bool near = ld < (int64(1) << 32) / Lines;
  if (aligned && near && first_line + Lines <= lines && first + Run <= length)
    for_vectors<Lines, Run, true>([&](int line, int element) FUNLIB_INLINE {
      copy_to_local<16>(local_address(local.at(line, element)),
                        corner + unsigned(line) * unsigned(ld) + element);
    });
  else
    for_vectors<Lines, Run, false>([&](int line, int element) FUNLIB_INLINE {
      Word* const to = local.at(line, element);
      if (aligned && first_line + line < lines && first + element + V <= length)
        copy_to_local<16>(local_address(to), corner + line * ld + element);
      else
        *reinterpret_cast<Vector*>(to) =
            load(X, ld, first_line + line, lines, first + element, length, false);
    });
}

// Rows `row` .. of M, columns k0 .. of K.
FUNLIB_INLINE inline void fill_a(LocalA& local, const T* A, int64 lda, int64 row, int64 M, int64 k0,
                                 int64 K, bool aligned) {
  if constexpr (a_by_columns)
    copy(local, A, lda, k0, K, row, M, aligned);
  else if constexpr (!turned)
    copy(local, A, lda, row, M, k0, K, aligned);
  else if constexpr (FUNLIB_TRANSPOSE_A)
    for_vectors<TILE_K, TILE_M, false>([&](int k, int i) {
      const Vector value = rounded(load(A, lda, k0 + k, K, row + i, M, aligned));
#pragma unroll
      for (int e = 0; e < V; ++e) *local.at(i + e, k) = value[e];
    });
  else
    for_vectors<TILE_M, TILE_K, false>([&](int i, int k) {
      local.vectors[i][k / V] = rounded(load(A, lda, row + i, M, k0 + k, K, aligned));
    });
}

// Rows k0 .. of K, columns `column` .. of N.
FUNLIB_INLINE inline void fill_b(LocalB& local, const T* B, int64 ldb, int64 k0, int64 K,
                                 int64 column, int64 N, bool aligned) {
  if constexpr (b_by_columns)
    copy(local, B, ldb, column, N, k0, K, aligned);
  else if constexpr (!turned)
    copy(local, B, ldb, k0, K, column, N, aligned);
  else if constexpr (FUNLIB_TRANSPOSE_B)
    for_vectors<TILE_N, TILE_K, false>([&](int j, int k) {
      const Vector value = rounded(load(B, ldb, column + j, N, k0 + k, K, aligned));
      // `factor` elements stay together.
      using Group = VectorOf<T, factor>;
#pragma unroll
      for (int e = 0; e < V; e += factor) {
        Group group;
#pragma unroll
        for (int f = 0; f < factor; ++f) group[f] = value[e + f];
        *reinterpret_cast<Group*>(local.at((k + e) / factor, j * factor)) = group;
      }
    });
  else
    for_vectors<TILE_K, TILE_N, false>([&](int k, int j) {
      const Vector value = rounded(load(B, ldb, k0 + k, K, column + j, N, aligned));
      if constexpr (factor == 1) {
        local.vectors[k][j / V] = value;
      } else {
#pragma unroll
        for (int e = 0; e < V; ++e) *local.at(k / factor, (j + e) * factor + k % factor) = value[e];
      }
    });
}

#if defined(__NVPTX__)
#define FUNLIB_LOCAL_ARGUMENT , funlib::LocalMemory memory
template <typename Type>
inline Type* local_at(const LocalMemory& memory) {
  using Local = __attribute__((opencl_local)) Type;
  return (Type*)(Local*)uint64(local_address(memory, alignof(Type)));
}
#else
#define FUNLIB_LOCAL_ARGUMENT
#endif

// What the work-item has copied, and nobody reads yet.
template <int Lines, int Run, bool Across>
FUNLIB_INLINE inline void round_copied(LocalTile<Lines, Run, Across>& local) {
  for_vectors<Lines, Run, true>([&](int line, int element) FUNLIB_INLINE {
    Vector& value = local.vectors[line][element / V];
    value = rounded(value);
  });
}

}  // namespace funlib

FUNLIB_KERNEL(2, FUNLIB_TILE_M / FUNLIB_SUB_M * (FUNLIB_TILE_N / FUNLIB_SUB_N) * FUNLIB_TEAMS_K,
              FUNLIB_SUB_GROUP)
FUNLIB_SUB_GROUP_SIZE(FUNLIB_SUB_GROUP)
FUNLIB_INLINE void gemm_matrix_engine(FUNLIB_GEMM_ARGUMENTS FUNLIB_LOCAL_ARGUMENT) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
#if defined(__NVPTX__)
  Storage& local = *local_at<Storage>(memory);
#else
  FUNLIB_LOCAL(Storage) storage;
  Storage& local = storage;
#endif
  const Tile tile = output_tile(M, N, TILE_M, TILE_N, batches, A, B, C);
  const Output output(C, ldc, alpha, beta, bias);
  const bool a_aligned = is_aligned(A, lda), b_aligned = is_aligned(B, ldb);
  const int member = local_id<2>(0) % team, share = local_id<2>(0) / team, lane = local_id<2>(1);
  const int row = member / across * SUB_M, column = member % across * SUB_N;
  SumTile<T, ENGINE_M, ENGINE_N> sum[down_tiles][across_tiles];
#pragma unroll
  for (int i = 0; i < down_tiles; ++i)
#pragma unroll
    for (int j = 0; j < across_tiles; ++j) sum[i][j].clear();
  const auto fill = [&](Stage& stage, int64 k0) FUNLIB_INLINE {
    if (k0 < K) {
      fill_a(stage.a, A, lda, tile.row, M, k0, K, a_aligned);
      fill_b(stage.b, B, ldb, k0, K, tile.column, N, b_aligned);
    }
    commit_copies();
  };
  constexpr int ahead = STAGES - 1;
#pragma unroll
  for (int s = 0; s < ahead; ++s) fill(local.stages[s], s * TILE_K);
  int now = 0, next = ahead;
  for (int64 k0 = 0; k0 < K; k0 += TILE_K) {
    Stage& stage = local.stages[now];
    if constexpr (ahead == 0) fill(stage, k0);
    wait_for_copies<(ahead > 1 ? ahead - 1 : 0)>();
    if constexpr (__is_same(T, float) && !turned) {
      round_copied(stage.a);
      round_copied(stage.b);
    }
    barrier<2>();
    if constexpr (ahead > 0) fill(local.stages[next], k0 + ahead * TILE_K);
#pragma unroll 2
    for (int first = 0; first < TILE_K; first += TEAMS_K * ENGINE_K) {
      const int k = first + share * ENGINE_K;
      TileA<T, ENGINE_M, ENGINE_K, order_a> a[down_tiles];
#pragma unroll
      for (int i = 0; i < down_tiles; ++i)
        a[i].load(stage.a.element(row + i * ENGINE_M, k), LocalA::pitch);
#pragma unroll
      for (int j = 0; j < across_tiles; ++j) {
        TileB<T, ENGINE_K, ENGINE_N, order_b> b;
        b.load(stage.b.element(k, column + j * ENGINE_N), LocalB::pitch);
#pragma unroll
        for (int i = 0; i < down_tiles; ++i) sum[i][j].multiply_add(a[i], b);
      }
    }
    if constexpr (ahead == 0) barrier<2>();
    now = now + 1 == STAGES ? 0 : now + 1;
    next = next + 1 == STAGES ? 0 : next + 1;
  }
  if constexpr (ahead > 0) barrier<2>();
  const auto wait = [] FUNLIB_INLINE {
    if constexpr (TEAMS_K == 1)
      sub_group_barrier();
    else
      barrier<2>();
  };
#pragma unroll
  for (int i = 0; i < down_tiles; ++i)
#pragma unroll
    for (int j = 0; j < across_tiles; ++j) {
      const int64 first = tile.row + row + i * ENGINE_M;
      const int64 from = tile.column + column + j * ENGINE_N;
      sum[i][j].store(local.sums[share][member], ENGINE_N);
      wait();
      for (int n = share * lanes + lane; n < ENGINE_M * ENGINE_N; n += TEAMS_K * lanes) {
        Acc total = local.sums[0][member][n];
#pragma unroll
        for (int other = 1; other < TEAMS_K; ++other) total += local.sums[other][member][n];
        if (first + n / ENGINE_N < M && from + n % ENGINE_N < N)
          output.store(first + n / ENGINE_N, from + n % ENGINE_N, total);
      }
      wait();
    }
}
