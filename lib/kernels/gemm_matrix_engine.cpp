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
// zeros outside of the matrix. They are read along their storage, by vectors of 16 bytes where their
// alignment allows, and transposed ones are turned on their way, since not all engines take those:
//
//     A   element (i, k)   at line i, k
//     B   element (k, j)   at line k, j,   or interleaved:  line k / factor, j * factor + k % factor
//
// with as many elements of a column side by side (factor) as fill 32 bits, which is how Intel's engines
// want B. 32 bytes of padding spread the lines over the banks. The sums leave through local memory too,
// one tile a sub-group at a time: only there are they known by row and column, which the epilogue needs.
//
// Types: bfloat16 and float16 with sums in float32, int8 with sums in int32 that wrap, float64; float32
// only where the caller allows TF32, to which its elements are rounded (to nearest, ties to even) on
// their way to local memory.
//
// Parameters: FUNLIB_ENGINE_M, FUNLIB_ENGINE_N, FUNLIB_ENGINE_K, a shape of the engine, and
// FUNLIB_SUB_GROUP, the lanes that work it, as the device lists them; FUNLIB_SUB_M, FUNLIB_SUB_N, the
// outputs of a sub-group; FUNLIB_TILE_M, FUNLIB_TILE_N, FUNLIB_TILE_K, the tiles of a work-group. ENGINE
// divides SUB, SUB divides TILE. FUNLIB_INTERLEAVED, whether B is, the host's knowledge. 64 sums of four
// bytes a lane are about half of the registers on all devices that have engines.
#include "funlib_matrix.hpp"
#include "funlib_sub_group.hpp"
#include "gemm_common.hpp"

namespace funlib {

constexpr int ENGINE_M = FUNLIB_ENGINE_M, ENGINE_N = FUNLIB_ENGINE_N, ENGINE_K = FUNLIB_ENGINE_K;
constexpr int SUB_M = FUNLIB_SUB_M, SUB_N = FUNLIB_SUB_N;
constexpr int TILE_M = FUNLIB_TILE_M, TILE_N = FUNLIB_TILE_N, TILE_K = FUNLIB_TILE_K;
constexpr int across = TILE_N / SUB_N, sub_groups = TILE_M / SUB_M * across;
constexpr int lanes = FUNLIB_SUB_GROUP, work_items = sub_groups * lanes;
constexpr int down_tiles = SUB_M / ENGINE_M, across_tiles = SUB_N / ENGINE_N;

constexpr int V = 16 / sizeof(T);
using Word = VectorElement<T>::Type;
using Vector = VectorOf<T, V>;

// Part of an operand: lines and padding.
template <int Lines, int Run>
struct alignas(64) LocalTile {
  static constexpr int pitch = Run + 2 * V;
  Vector vectors[Lines][pitch / V];

  Word* at(int line, int element) { return reinterpret_cast<Word*>(&vectors[line][0]) + element; }
};
constexpr int factor = FUNLIB_INTERLEAVED && sizeof(T) < 4 ? 4 / sizeof(T) : 1;
using LocalA = LocalTile<TILE_M, TILE_K>;
using LocalB = LocalTile<TILE_K / factor, TILE_N * factor>;

struct alignas(64) LocalSums {
  Acc tile[sub_groups][ENGINE_M * ENGINE_N];
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

// Reads a part of an operand, Lines of Run elements from line first_line (of `lines`), element first
// (of `length`) on; store(line, element, vector) is told where each vector was found.
template <int Lines, int Run, typename Store>
inline void read(const T* X, int64 ld, int64 first_line, int64 lines, int64 first, int64 length,
                 bool aligned, const Store& store) {
  const int item = local_id<2>(0) * lanes + local_id<2>(1);
  // Not unrolled: with the addresses of several vectors at once, sums spill on some GPUs.
#pragma unroll 1
  for (int n = item; n < Lines * Run / V; n += work_items) {
    const int line = n / (Run / V), element = n % (Run / V) * V;
    store(line, element,
          rounded(load(X, ld, first_line + line, lines, first + element, length, aligned)));
  }
}

// Rows `row` .. of M, columns k0 .. of K.
inline void fill_a(LocalA& local, const T* A, int64 lda, int64 row, int64 M, int64 k0, int64 K,
                   bool aligned) {
#if FUNLIB_TRANSPOSE_A
  read<TILE_K, TILE_M>(A, lda, k0, K, row, M, aligned, [&](int k, int i, Vector value) {
#pragma unroll
    for (int e = 0; e < V; ++e) *local.at(i + e, k) = value[e];
  });
#else
  read<TILE_M, TILE_K>(A, lda, row, M, k0, K, aligned,
                       [&](int i, int k, Vector value) { local.vectors[i][k / V] = value; });
#endif
}

// Rows k0 .. of K, columns `column` .. of N.
inline void fill_b(LocalB& local, const T* B, int64 ldb, int64 k0, int64 K, int64 column, int64 N,
                   bool aligned) {
#if FUNLIB_TRANSPOSE_B
  read<TILE_N, TILE_K>(B, ldb, column, N, k0, K, aligned, [&](int j, int k, Vector value) {
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
#else
  read<TILE_K, TILE_N>(B, ldb, k0, K, column, N, aligned, [&](int k, int j, Vector value) {
    if constexpr (factor == 1) {
      local.vectors[k][j / V] = value;
    } else {
#pragma unroll
      for (int e = 0; e < V; ++e) *local.at(k / factor, (j + e) * factor + k % factor) = value[e];
    }
  });
#endif
}

inline const T* elements(const Word* local) { return reinterpret_cast<const T*>(local); }

}  // namespace funlib

FUNLIB_KERNEL(2, FUNLIB_TILE_M / FUNLIB_SUB_M * (FUNLIB_TILE_N / FUNLIB_SUB_N), FUNLIB_SUB_GROUP)
FUNLIB_SUB_GROUP_SIZE(FUNLIB_SUB_GROUP)
void gemm_matrix_engine(FUNLIB_GEMM_ARGUMENTS) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  FUNLIB_LOCAL(LocalA) a_storage;
  FUNLIB_LOCAL(LocalB) b_storage;
  FUNLIB_LOCAL(LocalSums) sum_storage;
  LocalA& a_local = a_storage;
  LocalB& b_local = b_storage;
  LocalSums& sums = sum_storage;
  const Tile tile = output_tile(M, N, TILE_M, TILE_N, batches, A, B, C);
  const Output output(C, ldc, alpha, beta, bias);
  const bool a_aligned = is_aligned(A, lda), b_aligned = is_aligned(B, ldb);
  const int sub_group = local_id<2>(0), lane = local_id<2>(1);
  const int row = sub_group / across * SUB_M, column = sub_group % across * SUB_N;
  SumTile<T, ENGINE_M, ENGINE_N> sum[down_tiles][across_tiles];
#pragma unroll
  for (int i = 0; i < down_tiles; ++i)
#pragma unroll
    for (int j = 0; j < across_tiles; ++j) sum[i][j].clear();
  for (int64 k0 = 0; k0 < K; k0 += TILE_K) {
    fill_a(a_local, A, lda, tile.row, M, k0, K, a_aligned);
    fill_b(b_local, B, ldb, k0, K, tile.column, N, b_aligned);
    barrier<2>();
#pragma unroll
    for (int k = 0; k < TILE_K; k += ENGINE_K) {
      TileA<T, ENGINE_M, ENGINE_K> a[down_tiles];
#pragma unroll
      for (int i = 0; i < down_tiles; ++i)
        a[i].load(elements(a_local.at(row + i * ENGINE_M, k)), LocalA::pitch);
#pragma unroll
      for (int j = 0; j < across_tiles; ++j) {
        TileB<T, ENGINE_K, ENGINE_N, factor> b;
        const int from = (column + j * ENGINE_N) * factor;
        b.load(elements(b_local.at(k / factor, from)), LocalB::pitch);
#pragma unroll
        for (int i = 0; i < down_tiles; ++i) sum[i][j].multiply_add(a[i], b);
      }
    }
    barrier<2>();
  }
  Acc* const own = sums.tile[sub_group];
#pragma unroll
  for (int i = 0; i < down_tiles; ++i)
#pragma unroll
    for (int j = 0; j < across_tiles; ++j) {
      const int64 first = tile.row + row + i * ENGINE_M;
      const int64 from = tile.column + column + j * ENGINE_N;
      sum[i][j].store(own, ENGINE_N);
      sub_group_barrier();
      for (int n = lane; n < ENGINE_M * ENGINE_N; n += lanes)
        if (first + n / ENGINE_N < M && from + n % ENGINE_N < N)
          output.store(first + n / ENGINE_N, from + n % ENGINE_N, own[n]);
      sub_group_barrier();
    }
}
