// What Hopper GPUs (compute capability 9.0) have for matrix products, as PTX: bulk copies of boxes of a
// matrix to local memory, barriers that count their bytes, and products by groups of four warps.
//
// Local memory is addressed here by numbers of 32 bits.
//
// Tiles in local memory are lines of 128 bytes, which the copies write and the products read swizzled:
// the 16 bytes at place p of line l are at place p ^ l % 8, so that neither lines nor columns meet in a
// few banks. A tile begins at a multiple of 1024 bytes.
#pragma once

#if !defined(__NVPTX__)
#error "for NVIDIA GPUs, whose target is sm_90a"
#endif

#include "funlib_device.hpp"
#include "funlib_launch_local.hpp"
#include "funlib_sub_group.hpp"
#include "funlib_types.hpp"

namespace funlib {

using uint32 = unsigned;

// ---- barriers ----------------------------------------------------------------------------------

// Waits for the work-items of some warps; number 0 is the work-group's barrier.
template <int Number, int WorkItems>
inline void barrier_of() {
  asm volatile("bar.sync %0, %1;" ::"n"(Number), "n"(WorkItems) : "memory");
}

// A barrier in 8 bytes of local memory. A phase ends when `count` have arrived and all bytes that were
// announced are there.
struct CopyBarrier {
  uint32 local;

  void init(int count) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(local), "r"(count) : "memory");
  }
  void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(local) : "memory");
  }
  void arrive_and_expect(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(local), "r"(bytes)
                 : "memory");
  }
  // Waits for the end of phase 0, 2, .. with parity 0, of phase 1, 3, .. with parity 1. The phase
  // before phase 0 counts as ended.
  void wait(uint32 parity) const {
    uint32 done;
    do {
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n"
          "}"
          : "=r"(done)
          : "r"(local), "r"(parity)
          : "memory");
    } while (done == 0);
  }
  // All lanes of a warp wait, and go on together: each sees the end of a phase for itself, and what follows
  // may be an instruction of the whole warp.
  void wait_together(uint32 parity) const {
    wait(parity);
    sub_group_barrier();
  }
};

// What work-items have written to local memory, barriers too, is seen by copies and products; what they
// have read is not overwritten by copies that start later.
inline void fence_local_for_engines() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// True for one work-item of a warp, whose work-items all call it.
inline bool is_elected() {
  uint32 elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

// Registers of a work-item, which groups of four warps give back or take; all their work-items call it.
template <int Registers>
inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

// ---- clusters ----------------------------------------------------------------------------------

// Waits for all work-items of the cluster that have not ended, and shows each what the others have written
// to local memory.
inline void cluster_barrier() {
  sub_group_barrier();  // the instruction is one of the whole warp
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// 16 bytes of local memory, and of that of work-group `rank` of the cluster.
template <typename Value>
inline void store_local(uint32 local, Value value) {
  const auto words = __builtin_bit_cast(VectorOf<uint32, 4>, value);
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(local), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}
template <typename Value>
inline Value load_of_cluster(uint32 local, int rank) {
  VectorOf<uint32, 4> words;
  asm volatile(
      "{\n"
      ".reg .b32 place;\n"
      "mapa.shared::cluster.u32 place, %4, %5;\n"
      "ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [place];\n"
      "}"
      : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
      : "r"(local), "r"(rank)
      : "memory");
  return __builtin_bit_cast(Value, words);
}

// ---- copies ------------------------------------------------------------------------------------

// The number of an element type in a tensor map.
template <typename Element>
struct MapElement;
template <>
struct MapElement<int8> {
  static constexpr int number = 0;
};
template <>
struct MapElement<float16> {
  static constexpr int number = 6;
};
template <>
struct MapElement<bfloat16> {
  static constexpr int number = 10;
};
template <>
struct MapElement<double> {
  static constexpr int number = 9;
};
// Rounded to TF32 by the copy.
template <>
struct MapElement<float> {
  static constexpr int number = 11;
};

// A matrix as copies know it: lines of elements side by side, taken in boxes that are 128 bytes wide.
// What of a box lies outside of the matrix becomes zero.
struct TensorMap {
  static constexpr int bytes = 128;
  uint64 global;

  // Makes the map, in `bytes` bytes of local memory at first. All lanes of a warp call it together; who
  // copies by it waits for them and calls acquire(). `stride` counts bytes; it and data are multiples of 16.
  template <typename Element>
  void make(uint32 local, int lane, const Element* data, int64 length, int64 lines, int64 stride,
            int box_lines) const {
#define FUNLIB_REPLACE(field, width, ...)                                                        \
  asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." width " [%0], " __VA_ARGS__ \
               : "memory")
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(local + 4 * uint32(lane)), "r"(0) : "memory");
    sub_group_barrier();
    if (lane == 0) {
      FUNLIB_REPLACE("global_address", "b64", "%1;" ::"r"(local), "l"(data));
      FUNLIB_REPLACE("rank", "b32", "1;" ::"r"(local));  // two dimensions
      FUNLIB_REPLACE("box_dim", "b32", "0, %1;" ::"r"(local), "r"(int(128 / sizeof(Element))));
      FUNLIB_REPLACE("box_dim", "b32", "1, %1;" ::"r"(local), "r"(box_lines));
      FUNLIB_REPLACE("global_dim", "b32", "0, %1;" ::"r"(local), "r"(int(length)));
      FUNLIB_REPLACE("global_dim", "b32", "1, %1;" ::"r"(local), "r"(int(lines)));
      FUNLIB_REPLACE("global_stride", "b64", "0, %1;" ::"r"(local), "l"(stride));
      FUNLIB_REPLACE("element_stride", "b32", "0, %1;" ::"r"(local), "r"(1));
      FUNLIB_REPLACE("element_stride", "b32", "1, %1;" ::"r"(local), "r"(1));
      FUNLIB_REPLACE("elemtype", "b32", "%1;" ::"r"(local), "n"(MapElement<Element>::number));
      FUNLIB_REPLACE("interleave_layout", "b32", "0;" ::"r"(local));
      FUNLIB_REPLACE("swizzle_mode", "b32", "3;" ::"r"(local));  // 128 bytes
      FUNLIB_REPLACE("fill_mode", "b32", "0;" ::"r"(local));     // zeros
    }
    sub_group_barrier();
    asm volatile(
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
        "[%0], [%1], 128;" ::"l"(global),
        "r"(local)
        : "memory");
#undef FUNLIB_REPLACE
  }
  void acquire() const {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(global) : "memory");
  }

  // Starts copying the box at element `element` of line `line`; its bytes arrive at the barrier.
  void copy(uint32 local, int element, int line, CopyBarrier barrier) const {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(local),
        "l"(global), "r"(element), "r"(line), "r"(barrier.local)
        : "memory");
  }
};

// ---- products ----------------------------------------------------------------------------------

// Products are asynchronous: fence before the first one that uses registers which were written, commit
// to make a set of them, wait until at most `Pending` sets are not done.
inline void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// How products are told of a tile in local memory. Where lines run across K, the next line_elements
// rows or columns are box_bytes further on; where they run along K, it does not matter.
inline uint64 tile_descriptor(uint32 local, int box_bytes) {
  constexpr uint64 swizzle_128 = uint64(1) << 62, eight_lines = uint64(1024 / 16) << 32;
  return swizzle_128 | eight_lines | uint64(box_bytes / 16) << 16 | (local / 16 & 0x3fff);
}

// clang-format off
#define FUNLIB_NAMES_64                                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FUNLIB_NAMES_128 FUNLIB_NAMES_64                                                       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, "    \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FUNLIB_NAMES_256 FUNLIB_NAMES_128                                                      \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, "    \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, " \
  "%99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, "  \
  "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define FUNLIB_SUMS_8(kind, s, i)                                                      \
  kind(s[i]), kind(s[i + 1]), kind(s[i + 2]), kind(s[i + 3]), kind(s[i + 4]), kind(s[i + 5]), \
  kind(s[i + 6]), kind(s[i + 7])
#define FUNLIB_SUMS_32(kind, s, i)                                                     \
  FUNLIB_SUMS_8(kind, s, i), FUNLIB_SUMS_8(kind, s, i + 8), FUNLIB_SUMS_8(kind, s, i + 16),    \
  FUNLIB_SUMS_8(kind, s, i + 24)
#define FUNLIB_SUMS_64(kind, s) FUNLIB_SUMS_32(kind, s, 0)
#define FUNLIB_SUMS_128(kind, s) FUNLIB_SUMS_64(kind, s), FUNLIB_SUMS_32(kind, s, 32)
#define FUNLIB_SUMS_256(kind, s)                                                       \
  FUNLIB_SUMS_128(kind, s), FUNLIB_SUMS_32(kind, s, 64), FUNLIB_SUMS_32(kind, s, 96)
#define FUNLIB_TILES_64 "%32, %33"
#define FUNLIB_TILES_128 "%64, %65"
#define FUNLIB_TILES_256 "%128, %129"
#define FUNLIB_FRAGMENT_64 "{%32, %33, %34, %35}, %36"
#define FUNLIB_FRAGMENT_128 "{%64, %65, %66, %67}, %68"
#define FUNLIB_FRAGMENT_256 "{%128, %129, %130, %131}, %132"
// clang-format on

// x by y, both tiles: 64 rows of x, N columns of y, 32 bytes of K.
#define FUNLIB_MULTIPLY_TILES(N, types, options, kind)                            \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #N types " {" FUNLIB_NAMES_##N \
               "}, " FUNLIB_TILES_##N ", 1" options ";"                           \
               : FUNLIB_SUMS_##N(kind, sum)                                       \
               : "l"(x), "l"(y))
// x a fragment in registers.
#define FUNLIB_MULTIPLY_FRAGMENT(N, types, options, kind)                         \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #N types " {" FUNLIB_NAMES_##N \
               "}, " FUNLIB_FRAGMENT_##N ", 1" options ";"                        \
               : FUNLIB_SUMS_##N(kind, sum)                                       \
               : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y))
// The instruction for N columns.
#define FUNLIB_FOR_COLUMNS(multiply, N, types, options, kind) \
  if constexpr (N == 256)                                     \
    multiply(256, types, options, kind);                      \
  else if constexpr (N == 128)                                \
    multiply(128, types, options, kind);                      \
  else                                                        \
    multiply(64, types, options, kind)

}  // namespace funlib
