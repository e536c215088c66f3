#include "gemm/registry.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace funlib {
namespace {

const std::vector<funlib_dtype> every_dtype{FUNLIB_FLOAT32, FUNLIB_FLOAT64,  FUNLIB_INT32,
                                            FUNLIB_FLOAT16, FUNLIB_BFLOAT16, FUNLIB_INT8};

const KernelParameter edge{"EDGE", 16, {8, 16, 32}};

// EDGE x EDGE work-items with Block x Block outputs each, and LocalTiles tiles of EDGE x EDGE elements
// in local memory.
template <int Block, int LocalTiles>
GemmPlan square_plan(const ParameterValues& p, const GemmProblem&, const funlib_device_info&) {
  return {p[0], p[0], Block * p[0], Block * p[0], LocalTiles * p[0] * p[0]};
}

GemmPlan padded_plan(const ParameterValues& p, const GemmProblem&, const funlib_device_info&) {
  const int64_t edge = p[0], pad = p[1];
  return {edge, edge, 2 * edge, 2 * edge, 2 * edge * (edge + pad) + edge * (2 * edge + pad)};
}

bool has_sub_groups_of(int64_t size, const funlib_device_info& info) {
  const auto end = info.sub_group_sizes + info.sub_group_size_count;
  return std::find(info.sub_group_sizes, end, size) != end;
}

// Two tiles with a vector of 16 bytes of padding to each row.
GemmPlan register_blocked_plan(const ParameterValues& p, const GemmProblem& problem,
                               const funlib_device_info& info) {
  constexpr int64_t most_outputs = 128;  // no device keeps more in the registers of a work-item
  const int64_t tile_m = p[0], tile_n = p[1], tile_k = p[2], block_m = p[3], block_n = p[4];
  const int64_t lanes = p[5];
  const int64_t vector = 16 / problem.sums().itemsize;
  GemmPlan plan{tile_m / block_m, tile_n / block_n, tile_m, tile_n,
                tile_k * (tile_m + tile_n + 2 * vector)};
  if (tile_m % block_m != 0 || tile_n % block_n != 0 || block_m % vector != 0 ||
      block_n % vector != 0 || tile_k % vector != 0)
    plan.objection = concat("can't cut a tile of ", tile_m, "x", tile_n, "x", tile_k,
                            " into blocks of ", block_m, "x", block_n, " and vectors of ", vector);
  if (block_m * block_n > most_outputs)
    plan.objection = concat("keeps at most ", most_outputs,
                            " outputs a work-item in registers, not ", block_m, "x", block_n);
  if (lanes != 0 && !has_sub_groups_of(lanes, info))
    plan.objection = concat("needs sub-groups of ", lanes, ", which the device does not offer");
  return plan;
}

// Of 8 to 32 lanes; 0 if there are none.
int64_t smallest_sub_groups(const funlib_device_info& info) {
  for (const int64_t size : {8, 16, 32})
    if (has_sub_groups_of(size, info)) return size;
  return 0;
}

// Elements of 8 bytes take two registers each. A GPU's smallest sub-groups have the most registers a
// work-item.
ParameterValues register_blocked_fit(const Dtype& type, const funlib_device_info& info) {
  const Dtype& sums = dtype_of(type.sums);
  const int64_t lanes = info.type == std::string("gpu") ? smallest_sub_groups(info) : 0;
  return sums.itemsize > 4 ? ParameterValues{64, 64, 8, 4, 4, lanes}
                           : ParameterValues{128, 128, 8, 8, 8, lanes};
}

// A ring of STAGES tiles; what is turned on its way, or is double the work-items' sums at the end, as
// the kernel has it.
GemmPlan pipelined_plan(const ParameterValues& p, const GemmProblem& problem,
                        const funlib_device_info&) {
  constexpr int64_t team = 32;
  const int64_t most_outputs = 512 / problem.sums().itemsize;
  const int64_t tile_m = p[0], tile_n = p[1], tile_k = p[2], block_m = p[3], block_n = p[4];
  const int64_t lanes_m = p[5], teams_k = p[6], stages = p[7], parts = p[8];
  const int64_t slices = p[9];
  const int64_t vector = 16 / problem.sums().itemsize;
  const int64_t rows = lanes_m * block_m, columns = team / lanes_m * block_n;
  const int64_t work_items = tile_m / rows * (tile_n / columns) * team * teams_k;
  const int64_t pads = vector * (int64_t(!problem.transpose_a) + int64_t(problem.transpose_b));
  const int64_t ring = stages * tile_k * (tile_m + tile_n + pads);
  const int64_t exchange = work_items / teams_k * (teams_k - 1) * block_m * block_n;
  GemmPlan plan{1, work_items, tile_m, tile_n, std::max(ring, exchange)};
  const int64_t depth = std::max<int64_t>(tiles(tiles(problem.k, slices), tile_k), 1) * tile_k;
  plan.slices = std::max<int64_t>(tiles(problem.k, depth), 1);
  plan.arguments = {depth, plan.slices};
  if (tile_m % rows != 0 || tile_n % columns != 0 || tile_k % (2 * teams_k) != 0 ||
      tile_k % (parts * teams_k) != 0 || block_m % teams_k != 0 || block_m % vector != 0 ||
      block_n % vector != 0)
    plan.objection = concat("can't cut a tile of ", tile_m, "x", tile_n, "x", tile_k, " into ",
                            rows, "x", columns, " outputs a team and ", teams_k, " shares");
  if (block_m * block_n > most_outputs)
    plan.objection = concat("keeps at most ", most_outputs,
                            " outputs a work-item in registers, not ", block_m, "x", block_n);
  return plan;
}

ParameterValues pipelined_fit(const Dtype& type, const funlib_device_info&) {
  return dtype_of(type.sums).itemsize > 4 ? ParameterValues{64, 64, 8, 8, 4, 4, 1, 3, 1, 1}
                                          : ParameterValues{64, 128, 8, 16, 8, 4, 1, 3, 1, 1};
}

bool multiplies(const funlib_device_info& info, const char* type, int64_t m, int64_t n, int64_t k) {
  const auto end = info.matrix_shapes + info.matrix_shape_count;
  return std::any_of(info.matrix_shapes, end, [&](const funlib_matrix_shape& shape) {
    return shape.type == std::string(type) && shape.m == m && shape.n == n && shape.k == k;
  });
}

bool takes_interleaved(const funlib_device_info& info) {
  return info.backend == std::string("opencl") || info.backend == std::string("level_zero");
}

// Local memory of a stage, a tile of A and one of B, as the kernel has it.
int64_t engine_stage_bytes(int64_t tile_m, int64_t tile_n, int64_t tile_k, int64_t itemsize,
                           bool turned, bool transpose_a, bool transpose_b) {
  constexpr int64_t alignment = 64;
  const auto bytes = [&](int64_t lines, int64_t run, bool across) {
    const int64_t padding = turned || (across && itemsize >= 4) ? 32 : 16;
    return tiles(lines * (run * itemsize + padding), alignment) * alignment;
  };
  const int64_t factor = turned ? std::max<int64_t>(4 / itemsize, 1) : 1;
  const bool a_across = transpose_a && !turned, b_along = transpose_b && !turned;
  return (a_across ? bytes(tile_k, tile_m, true) : bytes(tile_m, tile_k, false)) +
         (b_along ? bytes(tile_n, tile_k, false) : bytes(tile_k / factor, tile_n * factor, true));
}

// A ring of stages; in its place, later, a tile of the engine for each sub-group's sums.
GemmPlan matrix_engine_plan(const ParameterValues& p, const GemmProblem& problem,
                            const funlib_device_info& info) {
  constexpr int64_t most_sum_bytes = 512, alignment = 64;  // a lane's; of the ring
  const int64_t engine_m = p[0], engine_n = p[1], engine_k = p[2], lanes = p[3];
  const int64_t sub_m = p[4], sub_n = p[5], tile_m = p[6], tile_n = p[7], tile_k = p[8];
  const bool turned = p[9] != 0;
  const int64_t stages = p[10], teams_k = p[11];
  const Dtype& type = dtype_of(problem.dtype);
  const int64_t sum_bytes = problem.sums().itemsize;
  const int64_t sub_groups = std::max<int64_t>(tile_m / sub_m * (tile_n / sub_n), 1) * teams_k;
  const int64_t bytes =
      std::max(stages * engine_stage_bytes(tile_m, tile_n, tile_k, type.itemsize, turned,
                                           problem.transpose_a, problem.transpose_b),
               sub_groups * engine_m * engine_n * sum_bytes);
  GemmPlan plan{sub_groups, lanes, tile_m, tile_n, 0};
  if (info.backend == std::string("cuda"))
    plan.launch_local_bytes = bytes + alignment;
  else
    plan.local_elements = tiles(bytes, sum_bytes);
  if (!multiplies(info, type.matrix_type, engine_m, engine_n, engine_k))
    plan.objection = concat("needs engines that multiply ", type.matrix_type, " ", engine_m, "x",
                            engine_n, "x", engine_k, "; the device lists none");
  else if (problem.dtype == FUNLIB_FLOAT32 && problem.precision != FUNLIB_PRECISION_TF32)
    plan.objection = "rounds float32 to TF32, which precision does not allow";
  else if (!has_sub_groups_of(lanes, info))
    plan.objection = concat("needs sub-groups of ", lanes, ", which the device does not offer");
  else if (turned && !takes_interleaved(info))
    plan.objection = "turns operands and interleaves B, which only Intel's engines take";
  else if (sub_m % engine_m != 0 || sub_n % engine_n != 0 || tile_k % (teams_k * engine_k) != 0 ||
           tile_m % sub_m != 0 || tile_n % sub_n != 0 || tile_k * type.itemsize % 16 != 0)
    plan.objection = concat("can't cut a tile of ", tile_m, "x", tile_n, "x", tile_k, " into ",
                            sub_m, "x", sub_n, " and ", engine_m, "x", engine_n, "x", engine_k);
  else if (problem.transpose_a && tile_m * type.itemsize % 16 != 0)
    plan.objection = concat("can't cut lines of ", tile_m, " elements into vectors of 16 bytes");
  else if (sub_m * sub_n * sum_bytes > most_sum_bytes * lanes)
    plan.objection = concat("keeps at most ", most_sum_bytes, " bytes of sums a lane, not ",
                            sub_m * sub_n * sum_bytes / lanes);
  return plan;
}

// The first shape in the device's list that is no larger than 16 x 16, with sub-groups as wide as it
// (Intel's engines want that; NVIDIA's warps are what they are).
ParameterValues matrix_engine_fit(const Dtype& type, const funlib_device_info& info) {
  constexpr int64_t largest = 16;
  funlib_matrix_shape shape{type.matrix_type, 16, 16, 16};
  for (int64_t i = info.matrix_shape_count - 1; i >= 0; --i) {
    const auto& listed = info.matrix_shapes[i];
    if (listed.type == std::string(type.matrix_type) && std::min(listed.m, listed.n) >= 8 &&
        std::max(listed.m, listed.n) <= largest)
      shape = listed;
  }
  int64_t lanes = 32;
  for (const int64_t size : {16, 8})
    if (size >= shape.n && has_sub_groups_of(size, info)) lanes = size;
  // Two work-groups of four warps fill the registers of an NVIDIA GPU, with 128 sums of four bytes a lane,
  // and should find local memory. On Intel's, 64 sums are about half of the registers.
  const bool cuda = info.backend == std::string("cuda");
  const int64_t itemsize = type.itemsize, sum_itemsize = dtype_of(type.sums).itemsize;
  const int64_t sum_bytes = cuda && sum_itemsize == 4 ? 512 : 256;
  const int64_t outputs = sum_bytes / sum_itemsize * lanes;
  int64_t sub_m = 8;
  while (4 * sub_m * sub_m <= outputs) sub_m *= 2;
  const int64_t sub_n = outputs / sub_m;
  const int64_t tile_m = cuda ? 2 * sub_m : 4 * sub_m;
  const int64_t tile_n = cuda ? 2 * sub_n : std::min<int64_t>(4 * sub_n, 128);
  const auto depth = [&](int64_t line_bytes) {
    return std::clamp<int64_t>(line_bytes / itemsize, shape.k, 64);
  };
  const auto fits = [&](int64_t tile_k, int64_t stages) {
    constexpr int64_t reserved = 1152;  // by the driver and for alignment
    const int64_t stage = engine_stage_bytes(tile_m, tile_n, tile_k, itemsize, false, false, true);
    return cuda && 2 * (stages * stage + reserved) <= info.local_memory_bytes;
  };
  const int64_t tile_k = depth(fits(depth(128), 2) ? 128 : 64);
  const int64_t stages = tile_k * itemsize < 128 && fits(tile_k, 3) ? 3 : cuda ? 2 : 1;
  return {shape.m, shape.n, shape.k, lanes,  sub_m,
          sub_n,   tile_m,  tile_n,  tile_k, takes_interleaved(info),
          stages,  1};
}

// As lib/kernels/gemm_ring.hpp has it: which operand is X, and where K lies.
struct RingOrder {
  bool any, a_along, b_along;
  explicit RingOrder(const GemmProblem& problem)
      : any(dtype_of(problem.dtype).itemsize == 2),
        a_along(!problem.transpose_a),
        b_along(problem.transpose_b) {}
  bool exchanged() const { return !any && a_along && !b_along; }
  bool x_across() const { return !any && !(a_along && b_along); }
  bool both_across() const { return !any && !a_along && !b_along; }
};

// Stages of 128 bytes of K, two tensor maps, two barriers a stage, and `more` bytes of local memory. A
// work-group does as many tiles as give each compute unit one; but one tile of a batch, whose matrices need
// maps of their own, or with slices of K, even if only one is left: their sums meet in the memory of the
// stages, where copies for another tile would be under way. Two groups of warps with the most sums are short
// of registers: a whole group of warps copies then, to leave them its own.
GemmPlan ring_plan(const ParameterValues& p, const GemmProblem& problem,
                   const funlib_device_info& info, int64_t most_outputs, int64_t more) {
  constexpr int64_t line = 128, alignment = 1024, map_bytes = 128, barrier_bytes = 8;
  constexpr int64_t most_extent = INT32_MAX - 1024;
  const int64_t warp_groups = p[0], rows = p[1], columns = p[2], stages = p[3], slices = p[5];
  const bool exchanged = RingOrder(problem).exchanged();
  const bool short_of_registers = warp_groups == 2 && rows * columns == most_outputs;
  GemmPlan plan{1, warp_groups * 128 + (short_of_registers ? 128 : 32),
                exchanged ? columns : warp_groups * rows, exchanged ? warp_groups * rows : columns,
                0};
  plan.launch_local_bytes = alignment + stages * (warp_groups * rows + columns) * line + more +
                            2 * map_bytes + 2 * barrier_bytes * stages;
  plan.workspace_elements = 2 * map_bytes / problem.sums().itemsize;
  const int64_t all_steps = tiles(problem.k * dtype_of(problem.dtype).itemsize, line);
  const int64_t steps = std::max<int64_t>(tiles(all_steps, slices), 1);
  plan.cluster = std::max<int64_t>(tiles(all_steps, steps), 1);
  if (problem.batches == 1 && slices == 1)
    plan.tiles_per_group = tiles(plan.groups(problem), std::max<int64_t>(info.compute_units, 1));
  plan.arguments = {plan.groups(problem), steps, plan.cluster};
  const int64_t sum_bytes = warp_groups * rows * columns * problem.sums().itemsize;
  if (problem.dtype == FUNLIB_FLOAT32 && problem.precision != FUNLIB_PRECISION_TF32)
    plan.objection = "rounds float32 to TF32, which precision does not allow";
  else if (!problem.aligned_a || !problem.aligned_b)
    plan.objection = "takes operands whose rows begin at multiples of 16 bytes only";
  else if (std::max({problem.m, problem.n, problem.k}) > most_extent)
    plan.objection = concat("takes extents up to ", most_extent);
  else if (slices > 1 && sum_bytes > stages * (warp_groups * rows + columns) * line)
    plan.objection = concat("finds no room for the sums of slices in ", stages, " stages");
  else if (rows * columns > most_outputs)
    plan.objection = concat("keeps at most ", most_outputs / 128, " sums a work-item, not ",
                            rows * columns / 128);
  return plan;
}

GemmPlan wgmma_plan(const ParameterValues& p, const GemmProblem& problem,
                    const funlib_device_info& info) {
  constexpr int64_t line = 128, most_outputs = 128 * 128;
  const int64_t rows = p[1], columns = p[2];
  const Dtype& type = dtype_of(problem.dtype);
  const RingOrder order(problem);
  GemmPlan plan =
      ring_plan(p, problem, info, most_outputs, order.both_across() ? 2 * columns * line : 0);
  if (!plan.objection.empty()) return plan;
  if (order.x_across() && rows != 128)
    plan.objection = concat("loads ", type.name, " with K across rows by 128 rows, not ", rows);
  else if (order.both_across() && columns * type.itemsize % line != 0)
    plan.objection = concat("can't cut ", columns, " columns into lines of ", line, " bytes");
  return plan;
}

GemmPlan mma_float64_plan(const ParameterValues& p, const GemmProblem& problem,
                          const funlib_device_info& info) {
  return ring_plan(p, problem, info, 64 * 128, 0);
}

// Types of two bytes have the wider tile; the others need rows of 128 to load them into registers.
ParameterValues wgmma_fit(const Dtype& type, const funlib_device_info&) {
  return type.itemsize == 2 ? ParameterValues{2, 64, 256, 4, 16, 1}
                            : ParameterValues{2, 128, 128, 4, 16, 1};
}

// One sub-group for each column of transposed B, else a run of columns for the work-group; slices of K
// where these are too few to fill the device.
GemmPlan few_rows_plan(const ParameterValues& p, const GemmProblem& problem,
                       const funlib_device_info& info) {
  constexpr int64_t rows = 4, groups_per_unit = 2;
  const int64_t lanes = p[0], sub_groups = p[1], columns = p[2];
  const int64_t width = columns * (problem.transpose_b ? sub_groups : lanes);
  GemmPlan plan{sub_groups, lanes, rows, width,
                problem.transpose_b ? 0 : rows * sub_groups * columns * lanes};
  const int64_t runs = std::max<int64_t>(tiles(problem.n, width) * problem.batches, 1);
  const int64_t wanted = groups_per_unit * std::max<int64_t>(info.compute_units, 1) / runs;
  const int64_t most = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(problem.k / p[3], 1));
  const int64_t depth = std::max<int64_t>(tiles(problem.k, most), 1);
  plan.slices = std::max<int64_t>(tiles(problem.k, depth), 1);
  plan.arguments = {depth, plan.slices};
  if (!has_sub_groups_of(lanes, info))
    plan.objection = concat("needs sub-groups of ", lanes, ", which the device does not offer");
  return plan;
}

// As many strips for each work-group as give each compute unit one. In local memory, two parts of A and
// the sums for each sub-group.
GemmPlan strips_plan(const ParameterValues& p, const GemmProblem& problem,
                     const funlib_device_info& info) {
  const Dtype &type = dtype_of(problem.dtype), &sums = problem.sums();
  const int64_t rows = p[0], width = p[1], lanes = p[2], sub_groups = p[3], steps = p[4];
  const int64_t vector = 16 / type.itemsize, columns = width * vector;
  const int64_t strips = std::max<int64_t>(tiles(problem.n, columns), 1);
  const int64_t products = tiles(problem.m, rows) * problem.batches;
  const int64_t units = std::max<int64_t>(info.compute_units, 1);
  const int64_t run = std::clamp<int64_t>(tiles(strips * products, units), 1, strips);
  const int64_t depth = lanes / width * steps;
  // As the kernel has it.
  const bool copies =
      rows >= 4 && !problem.transpose_a && problem.has_vectors_a() && depth % vector == 0;
  const int64_t copied = copies ? 2 * sub_groups * rows * depth * type.itemsize : 0;
  GemmPlan plan{sub_groups, lanes, rows, run * columns,
                copied / sums.itemsize + sub_groups * rows * columns};
  plan.arguments = {tiles(strips, run), run};
  if (!has_sub_groups_of(lanes, info))
    plan.objection = concat("needs sub-groups of ", lanes, ", which the device does not offer");
  else if (problem.transpose_b)
    plan.objection = "reads B along its rows, and B is transposed";
  else if (!problem.has_vectors_b())
    plan.objection = "reads B by vectors of 16 bytes, which its rows are not made of";
  return plan;
}

GemmPlan dots_plan(const ParameterValues& p, const GemmProblem& problem,
                   const funlib_device_info& info) {
  constexpr int64_t most_sum_bytes = 256;  // a lane
  const int64_t rows = p[0], columns = p[1], lanes = p[2], sub_groups = p[3];
  GemmPlan plan{sub_groups, lanes, rows, columns, sub_groups * rows * columns};
  if (!has_sub_groups_of(lanes, info))
    plan.objection = concat("needs sub-groups of ", lanes, ", which the device does not offer");
  else if (problem.k > 0 && !problem.transpose_b)
    plan.objection = "reads B along its columns, and B is not transposed";
  else if (problem.k > 0 && !problem.has_vectors_b())
    plan.objection = "reads B by vectors of 16 bytes, which its columns are not made of";
  else if (rows * columns * problem.sums().itemsize > most_sum_bytes)
    plan.objection =
        concat("keeps at most ", most_sum_bytes, " bytes of sums a lane, not ", rows, "x", columns);
  return plan;
}

GemmPlan subgroup_plan(const ParameterValues& p, const GemmProblem&,
                       const funlib_device_info& info) {
  const int64_t lanes = p[0], groups = p[1], rows = p[2], columns = p[3];
  GemmPlan plan{groups, lanes, groups * rows, columns * lanes, 0};
  if (!has_sub_groups_of(lanes, info))
    plan.objection = concat("needs sub-groups of ", lanes, ", which the device does not offer");
  return plan;
}

// The smallest sub-group from 16 lanes on, else the largest there is.
ParameterValues subgroup_fit(const Dtype&, const funlib_device_info& info) {
  constexpr int64_t wanted = 16;
  int64_t lanes = 0;
  for (int64_t i = 0; i < info.sub_group_size_count; ++i) {
    const int64_t size = info.sub_group_sizes[i];
    const bool better = lanes < wanted ? size > lanes : size >= wanted && size < lanes;
    if (better) lanes = size;
  }
  return {lanes == 0 ? wanted : lanes, 4, 8, 2};
}

ParameterValues few_rows_fit(const Dtype& type, const funlib_device_info& info) {
  return {subgroup_fit(type, info)[0], 8, 2, 512};
}

// The smallest sub-groups have the most registers a work-item.
int64_t lanes_of_few(const funlib_device_info& info) {
  const int64_t smallest = smallest_sub_groups(info);
  return smallest != 0 ? smallest : 64;
}

ParameterValues dots_fit(const Dtype&, const funlib_device_info& info) {
  return {4, 4, lanes_of_few(info), 4, 2};
}

ParameterValues strips_fit(const Dtype& type, const funlib_device_info& info) {
  const int64_t lanes = lanes_of_few(info);
  return {8, type.itemsize == 8 ? 8 : 4, lanes, type.itemsize == 4 ? 16 : 8, 4};
}

// Slices until there are a few work-groups for each compute unit, none thinner than DEPTH: below that,
// what the second kernel costs is more than what is won. The workspace holds slices * M * N elements:
// as much as that number of work-groups writes, whatever the shape.
GemmPlan split_k_plan(const ParameterValues& p, const GemmProblem& problem,
                      const funlib_device_info& info) {
  constexpr int64_t groups_per_unit = 4;
  const int64_t edge = p[0], tile = 2 * edge;
  const int64_t groups = groups_per_unit * std::max<int64_t>(info.compute_units, 1);
  const int64_t output_tiles = tiles(problem.m, tile) * tiles(problem.n, tile) * problem.batches;
  const int64_t thinnest = std::max<int64_t>(problem.k / p[1], 1);
  const int64_t most = std::clamp<int64_t>(groups / output_tiles, 1, thinnest);
  const int64_t depth = std::max<int64_t>(tiles(tiles(problem.k, most), edge), 1) * edge;
  GemmPlan plan{edge, edge, tile, tile, 4 * edge * edge};
  plan.slices = std::max<int64_t>(tiles(problem.k, depth), 1);
  plan.arguments = {depth, plan.slices};
  return plan;
}

struct VectorParameters {
  int64_t lanes, mr, nr, nc, kc;
  explicit VectorParameters(const ParameterValues& p)
      : lanes(p[0]), mr(p[1]), nr(p[0] * p[2]), nc(p[3]), kc(p[4]) {}
};

// Registers of 64 bytes come in 32, shorter ones in 16: 14 x 2 or 6 x 2 accumulators leave room for
// two vectors of B and an element of A. A panel of A takes 12 to 14 KiB of the L1 cache, a block of B
// 256 KiB of the L2 cache.
ParameterValues vector_fit(const Dtype& type, const funlib_device_info& info) {
  const Dtype& sums = dtype_of(type.sums);
  const bool wide = info.vector_bytes >= 64;
  const int64_t lanes = std::max<int64_t>(info.vector_bytes / sums.itemsize, 2);
  return {lanes, wide ? 14 : 6, 2, wide ? 256 : 128, (wide ? 256 : 512) * 4 / sums.itemsize};
}

// Splits C into blocks so that the threads finish early and together. What a block costs is counted in
// multiply-adds of a whole vector: packing an element of A or B costs about as much as `pack` of them.
GemmPlan vector_plan(const ParameterValues& p, const GemmProblem& problem,
                     const funlib_device_info& info) {
  const VectorParameters kernel(p);
  const int64_t threads = std::max<int64_t>(info.compute_units, 1);
  const int64_t row_tiles = tiles(problem.m, kernel.mr);
  const int64_t column_tiles = tiles(problem.n, kernel.nr);
  GemmPlan plan{1, 1, kernel.mr, kernel.nr, 0};
  if (problem.panel_width != 0 && problem.panel_width != kernel.nr)
    plan.objection = concat("reads panels of ", kernel.nr, " columns, not ", problem.panel_width);
  // Sums that C can't hold wait in the workspace, which bounds the block.
  const bool keeps_sums =
      dtype_of(problem.out_dtype).itemsize < problem.sums().itemsize && problem.k > kernel.kc;
  const int64_t most = keeps_sums ? 256 : INT64_MAX / 2;
  const int64_t fewest_down = tiles(row_tiles, std::max<int64_t>(most / kernel.mr, 1));
  const int64_t fewest_across = tiles(column_tiles, std::max<int64_t>(most / kernel.nr, 1));
  double best = 0;
  for (int64_t down = fewest_down; down <= std::min(row_tiles, fewest_down + 4 * threads); ++down) {
    const int64_t rows = tiles(row_tiles, down);
    // Only numbers of blocks that the threads share evenly, up to four rounds.
    for (int64_t rounds = 1; rounds <= 4; ++rounds) {
      const int64_t even = tiles(rounds * threads, tiles(row_tiles, rows) * problem.batches);
      const int64_t across = std::min(column_tiles, std::max(even, fewest_across));
      const int64_t columns = tiles(column_tiles, across);
      const int64_t blocks =
          tiles(row_tiles, rows) * tiles(column_tiles, columns) * problem.batches;
      constexpr double pack_a = 1.0, pack_b = 0.6, start = 4096;
      const double cost = double(rows * kernel.mr * columns * kernel.nr) / double(kernel.lanes) +
                          pack_a * double(rows * kernel.mr) + pack_b * double(columns * kernel.nr);
      const double total = double(tiles(blocks, threads)) * (cost * double(problem.k) + start);
      if (best == 0 || total < best) {
        best = total;
        plan.tile_rows = rows * kernel.mr;
        plan.tile_columns = columns * kernel.nr;
      }
    }
  }
  // Equal steps along K and equal blocks of B.
  const int64_t steps = std::max<int64_t>(tiles(problem.k, kernel.kc), 1);
  const int64_t depth = std::max<int64_t>(tiles(tiles(problem.k, steps), 4), 1) * 4;
  const int64_t most_width = std::max(kernel.nc * kernel.kc / depth, kernel.nr);
  const int64_t widths = tiles(plan.tile_columns, most_width);
  const int64_t width = tiles(tiles(plan.tile_columns, widths), kernel.nr) * kernel.nr;
  const int64_t kept = keeps_sums ? plan.tile_rows * plan.tile_columns : 0;
  // Many small products are shared out in advance; and all work-groups together have workspace of a
  // MiB a thread, or 64 MiB.
  constexpr int64_t groups_per_thread = 16, usual_height = 1024, mib = int64_t(1) << 20;
  const int64_t budget = std::max<int64_t>(64, threads) * mib / problem.sums().itemsize;
  const int64_t blocks = plan.groups(problem);
  plan.tiles_per_group = tiles(blocks, groups_per_thread * threads);
  // Equal blocks of A, which are read again for each block of B and so had better fit the L3 cache.
  const int64_t heights = tiles(plan.tile_rows, tiles(usual_height, kernel.mr) * kernel.mr);
  int64_t height = tiles(tiles(plan.tile_rows, heights), kernel.mr) * kernel.mr;
  // Packing A pays over many blocks of B; for a few, long rows are as good where they lie (a_can_stay in
  // the kernel, which goes by packed_rows), if the L1 cache has a way for each row: those a power of two
  // apart share its sets.
  constexpr int64_t few_blocks = 6, long_rows = 192, ways = 8;
  const bool in_place = widths <= few_blocks && depth >= long_rows && kernel.mr <= ways &&
                        !problem.transpose_a &&
                        dtype_of(problem.dtype).itemsize == problem.sums().itemsize;
  const auto packed_rows = [&] { return in_place ? kernel.mr : height; };
  const auto elements = [&] { return tiles(kept + (packed_rows() + width) * depth, 64) * 64; };
  if (elements() * plan.groups(problem) > budget) {
    plan.tiles_per_group = tiles(blocks, threads);
    const int64_t fits = (budget / plan.groups(problem) - kept) / depth - width;
    if (!in_place) height = std::clamp(fits / kernel.mr * kernel.mr, kernel.mr, height);
  }
  plan.workspace_elements = elements();
  plan.arguments = {plan.tile_rows, plan.tile_columns, plan.tiles_per_group,   height, width,
                    depth,          packed_rows(),     plan.workspace_elements};
  return plan;
}

int64_t vector_panel_width(const ParameterValues& p) { return VectorParameters(p).nr; }

ParameterValues gemv_fit(const Dtype& type, const funlib_device_info& info) {
  const Dtype& sums = dtype_of(type.sums);
  return {std::max<int64_t>(info.vector_bytes / sums.itemsize, 2), 16384 / sums.itemsize};
}

// One block a thread: the longer the runs, the better memory keeps up. Below 64 columns they get too
// short.
GemmPlan gemv_plan(const ParameterValues& p, const GemmProblem& problem,
                   const funlib_device_info& info) {
  constexpr int64_t shortest = 64, rows = 4;
  const int64_t threads = std::max<int64_t>(info.compute_units, 1);
  const int64_t most = p[1] / std::clamp<int64_t>(problem.m, 1, rows);
  const int64_t even = std::max(tiles(tiles(problem.n, threads), shortest), int64_t(1)) * shortest;
  // Equal blocks, as many for each thread.
  const int64_t rounds = tiles(even, most / shortest * shortest);
  const int64_t columns = tiles(tiles(even, rounds), shortest) * shortest;
  return {1, 1, rows, columns, p[1], {columns}};
}

}  // namespace

const std::vector<GemmKernel>& gemm_kernels() {
  static const auto* table = new std::vector<GemmKernel>{
      {"gemm",
       "one work-item, one output, global memory",
       "gemm.cpp",
       every_dtype,
       {edge},
       square_plan<1, 0>},
      {"gemm_tiled",
       "one output a work-item, A and B tiles in local memory",
       "gemm_tiled.cpp",
       every_dtype,
       {edge},
       square_plan<1, 2>},
      {"gemm_blocked2x2",
       "2x2 outputs a work-item in registers, global memory",
       "gemm_blocked2x2.cpp",
       every_dtype,
       {edge},
       square_plan<2, 0>},
      {"gemm_tiled_blocked2x2",
       "2x2 outputs a work-item in registers, tiles in local memory",
       "gemm_tiled_blocked2x2.cpp",
       every_dtype,
       {edge},
       square_plan<2, 4>},
      {"gemm_blocked4x4",
       "4x4 outputs a work-item in registers, global memory",
       "gemm_blocked4x4.cpp",
       every_dtype,
       {edge},
       square_plan<4, 0>},
      {"gemm_padded",
       "tiles turned while loading, rows padded against bank conflicts",
       "gemm_padded.cpp",
       every_dtype,
       {edge, {"PAD", 1, {0, 1, 2, 4}}},
       padded_plan},
      {"gemm_double_buffered",
       "the next tile is loaded while this one is used",
       "gemm_double_buffered.cpp",
       every_dtype,
       {edge},
       square_plan<2, 8>},
      {"gemm_register_blocked",
       "large tiles, 8x8 outputs a work-item, vector loads",
       "gemm_register_blocked.cpp",
       every_dtype,
       {{"TILE_M", 128, {32, 64, 128, 256}},
        {"TILE_N", 128, {32, 64, 128, 256}},
        {"TILE_K", 8, {8, 16, 32}},
        {"BLOCK_M", 8, {4, 8, 16}},
        {"BLOCK_N", 8, {4, 8, 16}},
        {"SUB_GROUP", 0, {0, 8, 16, 32}}},
       register_blocked_plan,
       register_blocked_fit},
      {"gemm_pipelined",
       "tiles copied while others are multiplied, 16x8 outputs a work-item",
       "gemm_pipelined.cpp",
       {FUNLIB_FLOAT32, FUNLIB_FLOAT64, FUNLIB_INT32},
       {{"TILE_M", 64, {32, 64, 128, 256}},
        {"TILE_N", 128, {32, 64, 128, 256}},
        {"TILE_K", 8, {8, 16, 32}},
        {"BLOCK_M", 16, {4, 8, 16}},
        {"BLOCK_N", 8, {4, 8, 16}},
        {"LANES_M", 4, {4, 8}},
        {"TEAMS_K", 1, {1, 2, 4, 8}},
        {"STAGES", 3, {2, 3, 4}},
        {"PARTS", 1, {1, 2, 4, 8}},
        {"SLICES", 1, {1, 2, 3, 4, 6, 8, 16, 32}}},
       pipelined_plan,
       pipelined_fit,
       "",
       INT64_MAX,
       nullptr,
       true},
      {"gemm_subgroup",
       "operands of A exchanged between the lanes of a sub-group, no local memory",
       "gemm_subgroup.cpp",
       every_dtype,
       {{"SUB_GROUP", 16, {8, 16, 32, 64}},
        {"SUB_GROUPS", 4, {1, 2, 4, 8, 16}},
        {"ROWS", 8, {4, 8, 16}},
        {"COLUMNS", 2, {1, 2, 4}}},
       subgroup_plan,
       subgroup_fit},
      {"gemm_split_k",
       "few outputs, long K: slices of K side by side, summed in fixed order",
       "gemm_split_k.cpp",
       every_dtype,
       {edge, {"DEPTH", 128, {64, 128, 256, 512}}},
       split_k_plan},
      {"gemm_matrix_engine",
       "matrix engines (joint_matrix) fed from local memory",
       "gemm_matrix_engine.cpp",
       {FUNLIB_FLOAT32, FUNLIB_FLOAT64, FUNLIB_FLOAT16, FUNLIB_BFLOAT16, FUNLIB_INT8},
       {{"ENGINE_M", 16, {8, 16}},
        {"ENGINE_N", 16, {8, 16, 32}},
        {"ENGINE_K", 16, {4, 8, 16, 32, 64}},
        {"SUB_GROUP", 32, {8, 16, 32}},
        {"SUB_M", 32, {8, 16, 32, 64}},
        {"SUB_N", 64, {16, 32, 64}},
        {"TILE_M", 128, {8, 16, 32, 64, 128, 256}},
        {"TILE_N", 128, {16, 32, 64, 128, 256}},
        {"TILE_K", 32, {8, 16, 32, 64, 128, 256}},
        {"INTERLEAVED", 0, {0, 1}},
        {"STAGES", 2, {1, 2, 3, 4}},
        {"TEAMS_K", 1, {1, 2, 4, 8, 16}}},
       matrix_engine_plan,
       matrix_engine_fit},
      {"gemm_wgmma",
       "Hopper's matrix engines, fed by bulk copies that run beside them",
       "gemm_wgmma.cpp",
       {FUNLIB_FLOAT32, FUNLIB_FLOAT16, FUNLIB_BFLOAT16, FUNLIB_INT8},
       {{"WARP_GROUPS", 2, {1, 2}},
        {"ROWS", 64, {64, 128}},
        {"COLUMNS", 256, {64, 128, 256}},
        {"STAGES", 4, {2, 3, 4, 5, 6, 8}},
        {"BAND", 16, {4, 8, 16, 32}},
        {"SLICES", 1, {1, 2, 3, 4, 6, 8}}},
       wgmma_plan,
       wgmma_fit,
       "gpu",
       INT64_MAX,
       nullptr,
       false,
       "sm_90a"},
      {"gemm_mma_float64",
       "float64 on Hopper's matrix engines, fed by bulk copies",
       "gemm_mma_float64.cpp",
       {FUNLIB_FLOAT64},
       {{"WARP_GROUPS", 2, {1, 2}},
        {"ROWS", 64, {32, 64}},
        {"COLUMNS", 128, {64, 128}},
        {"STAGES", 5, {2, 3, 4, 5, 6}},
        {"BAND", 16, {4, 8, 16, 32}},
        {"SLICES", 1, {1, 2, 3, 4, 6, 8}}},
       mma_float64_plan,
       nullptr,
       "gpu",
       INT64_MAX,
       nullptr,
       false,
       "sm_90a"},
      {"gemv",
       "at most 4 rows of A: B read once, coalesced, by sub-groups that share K",
       "gemv.cpp",
       every_dtype,
       {{"SUB_GROUP", 16, {8, 16, 32, 64}},
        {"SUB_GROUPS", 8, {4, 8, 16}},
        {"COLUMNS", 2, {1, 2, 4}},
        {"DEPTH", 512, {256, 512, 1024}}},
       few_rows_plan,
       few_rows_fit,
       "",
       4},
      {"gemv_strips",
       "at most 16 rows of A: strips of B, by vectors, and A copied beside",
       "gemv_strips.cpp",
       every_dtype,
       {{"ROWS", 8, {1, 2, 4, 8}},
        {"WIDTH", 4, {2, 4, 8}},
        {"SUB_GROUP", 16, {8, 16, 32, 64}},
        {"SUB_GROUPS", 16, {8, 16, 32}},
        {"STEPS", 4, {2, 4, 8}}},
       strips_plan,
       strips_fit,
       "",
       16,
       nullptr,
       true},
      {"gemv_dots",
       "at most 16 rows of A, B transposed: products of whole lines",
       "gemv_dots.cpp",
       every_dtype,
       {{"ROWS", 4, {1, 2, 4, 8, 16}},
        {"COLUMNS", 4, {1, 2, 4}},
        {"SUB_GROUP", 16, {8, 16, 32, 64}},
        {"SUB_GROUPS", 4, {1, 2, 4, 8, 16}},
        {"STEPS", 2, {1, 2, 4, 8}}},
       dots_plan,
       dots_fit,
       "",
       16,
       nullptr,
       true},
      {"gemm_vector",
       "CPU micro-kernel on explicit vectors, packed panels, cache blocking",
       "gemm_vector.cpp",
       every_dtype,
       {{"LANES", 8, {2, 4, 8, 16}},
        {"MR", 6, {4, 6, 8, 12, 14}},
        {"NV", 2, {1, 2, 3}},
        {"NC", 128, {64, 128, 160, 192, 256}},
        {"KC", 512, {128, 192, 256, 384, 512, 1024}}},
       vector_plan,
       vector_fit,
       "cpu",
       INT64_MAX,
       vector_panel_width},
      {"gemv_vector",
       "at most 4 rows of A, CPU vectors, B read once in long runs",
       "gemv_vector.cpp",
       every_dtype,
       {{"LANES", 8, {2, 4, 8, 16}}, {"COLUMNS", 4096, {1024, 2048, 4096}}},
       gemv_plan,
       gemv_fit,
       "cpu",
       4},
  };
  return *table;
}

ParameterValues GemmKernel::defaults() const {
  ParameterValues values;
  for (const auto& parameter : parameters) values.push_back(parameter.value);
  return values;
}

ParameterValues GemmKernel::values_for(funlib_dtype dtype, const Device& device) const {
  return fit != nullptr ? fit(dtype_of(dtype), device.info()) : defaults();
}

ParameterValues GemmKernel::parse(const std::string& text, ParameterValues values) const {
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t sign = word.find('=');
    const auto found =
        std::find_if(parameters.begin(), parameters.end(), [&](const KernelParameter& parameter) {
          return sign != std::string::npos && word.compare(0, sign, parameter.name) == 0;
        });
    if (found == parameters.end())
      invalid("\"", word, "\" sets no parameter of ", name, "; it has ", text_of(defaults()));
    char* end = nullptr;
    const int64_t value = std::strtoll(word.c_str() + sign + 1, &end, 10);
    if (end == word.c_str() + sign + 1 || *end != '\0' ||
        std::find(found->legal.begin(), found->legal.end(), value) == found->legal.end()) {
      std::string legal;
      for (const int64_t each : found->legal) legal += concat(legal.empty() ? "" : ", ", each);
      invalid("\"", word, "\": ", found->name, " of ", name, " can be ", legal);
    }
    values[size_t(found - parameters.begin())] = value;
  }
  return values;
}

std::string GemmKernel::text_of(const ParameterValues& values) const {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i)
    text += concat(text.empty() ? "" : " ", parameters[i].name, "=", values[i]);
  return text;
}

std::string GemmKernel::objection(const GemmProblem& problem, const ParameterValues& values,
                                  const Device& device) const {
  const Dtype& type = dtype_of(problem.dtype);
  const auto& info = device.info();
  if (std::find(dtypes.begin(), dtypes.end(), problem.dtype) == dtypes.end())
    return concat(name, " does not take ", type.name);
  if (type.needs_fp64 && !info.has_fp64) return concat(info.name, " has no ", type.name);
  if (*device_type != '\0' && std::string(device_type) != info.type)
    return concat(name, " is for devices of type ", device_type, "; ", info.name, " is a ",
                  info.type);
  if (*architecture != '\0' && std::string(architecture) != info.architecture)
    return concat(name, " needs the instructions of ", architecture, ", which ", info.name,
                  " does not have");
  if (problem.m > most_rows)
    return concat(name, " takes at most ", most_rows, " rows; the product has ", problem.m);
  if (problem.panel_width != 0 && panel_width == nullptr)
    return concat(name, " does not take packed weights");
  const GemmPlan plan = this->plan(values, problem, info);
  if (!plan.objection.empty()) return concat(name, " ", plan.objection);
  const int64_t work_items = plan.group_rows * plan.group_columns;
  if (work_items > info.max_work_group_size)
    return concat(name, " needs work-groups of ", work_items, "; ", info.name, " takes ",
                  info.max_work_group_size);
  const int64_t local_bytes = plan.local_elements * problem.sums().itemsize;
  if (local_bytes + plan.launch_local_bytes > info.local_memory_bytes)
    return concat(name, " needs ", local_bytes + plan.launch_local_bytes,
                  " bytes of local memory; ", info.name, " has ", info.local_memory_bytes);
  // CUDA has more, but not for variables of a fixed size.
  constexpr int64_t most_on_cuda = 48 * 1024;
  const int64_t offered = info.backend == std::string("cuda")
                              ? std::min(info.local_memory_bytes, most_on_cuda)
                              : info.local_memory_bytes;
  if (local_bytes > offered)
    return concat(name, " needs ", local_bytes, " bytes of local memory; ", info.name, " has ",
                  offered);
  return "";
}

int64_t GemmPlan::groups(const GemmProblem& problem) const {
  const int64_t all = tiles(problem.m, tile_rows) * tiles(problem.n, tile_columns);
  return tiles(all * problem.batches * slices, tiles_per_group) * cluster;
}

const GemmKernel& gemm_kernel(const std::string& name) {
  for (const auto& kernel : gemm_kernels())
    if (name == kernel.name) return kernel;
  std::string names;
  for (const auto& kernel : gemm_kernels()) names += concat(names.empty() ? "" : ", ", kernel.name);
  fail(FUNLIB_ERROR_NOT_FOUND, "no GEMM kernel is called \"", name, "\"; there are ", names);
}

}  // namespace funlib
