#include "gemm/registry.hpp"

#include <algorithm>

namespace funlib {
namespace {

const std::vector<funlib_dtype> every_dtype{FUNLIB_FLOAT32, FUNLIB_FLOAT64, FUNLIB_INT32};

const KernelParameter edge{"EDGE", 16, {8, 16, 32}};

int64_t tiles(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

// EDGE x EDGE work-items with Block x Block outputs each, and LocalTiles tiles of EDGE x EDGE elements
// in local memory.
template <int Block, int LocalTiles>
GemmPlan square_plan(const ParameterValues& p, const GemmProblem&, const funlib_device_info&) {
  return {p[0], p[0], Block * p[0], Block * p[0], LocalTiles * p[0] * p[0]};
}

struct VectorParameters {
  int64_t lanes, mr, nr, mc, kc;
  explicit VectorParameters(const ParameterValues& p)
      : lanes(p[0]), mr(p[1]), nr(p[0] * p[2]), mc(p[3]), kc(p[4]) {}
};

// Registers of 64 bytes come in 32, shorter ones in 16: 14 x 2 or 6 x 2 accumulators leave room for
// two vectors of B and an element of A. The block of A fills a good part of the L2 cache.
ParameterValues vector_fit(const Dtype& type, const funlib_device_info& info) {
  const bool wide = info.vector_bytes >= 64;
  const int64_t lanes = std::max<int64_t>(info.vector_bytes / type.itemsize, 2);
  const int64_t mc = (wide ? 112 : 144) * 4 / type.itemsize / (wide ? 14 : 6) * (wide ? 14 : 6);
  return {lanes, wide ? 14 : 6, 2, mc, 256};
}

// Splits C into blocks, one a work-group, so that the threads finish early and together. What a block
// costs is counted in micro-kernel steps; packing an element of A or B costs about as much as `pack`
// multiply-adds of a whole vector.
GemmPlan vector_plan(const ParameterValues& p, const GemmProblem& problem,
                     const funlib_device_info& info) {
  const VectorParameters kernel(p);
  const int64_t threads = std::max<int64_t>(info.compute_units, 1);
  const int64_t row_tiles = tiles(problem.m, kernel.mr), column_tiles = tiles(problem.n, kernel.nr);
  const int64_t most_rows = kernel.mc / kernel.mr;
  const int64_t fewest = tiles(row_tiles, most_rows);
  GemmPlan plan{1, 1, kernel.mr, kernel.nr,
                kernel.mc * kernel.kc + kernel.kc * kernel.nr + kernel.mr * kernel.nr};
  double best = 0;
  for (int64_t down = fewest; down <= std::min(row_tiles, fewest + 4 * threads); ++down) {
    for (int64_t across = 1; across <= std::min(column_tiles, 4 * threads); ++across) {
      const int64_t rows = tiles(row_tiles, down), columns = tiles(column_tiles, across);
      const int64_t blocks = tiles(row_tiles, rows) * tiles(column_tiles, columns);
      constexpr double pack_a = 2.0, pack_b = 0.5, start = 4096;
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
  plan.arguments = {plan.tile_rows, plan.tile_columns};
  return plan;
}

ParameterValues gemv_fit(const Dtype& type, const funlib_device_info& info) {
  return {std::max<int64_t>(info.vector_bytes / type.itemsize, 2), 4096 / type.itemsize};
}

// Two blocks a thread even out what other programs take of the processor; below 64 columns the runs
// get too short.
GemmPlan gemv_plan(const ParameterValues& p, const GemmProblem& problem,
                   const funlib_device_info& info) {
  constexpr int64_t shortest = 64, blocks_per_thread = 2, rows = 4;
  const int64_t threads = std::max<int64_t>(info.compute_units, 1);
  const int64_t even = tiles(tiles(problem.n, blocks_per_thread * threads), shortest) * shortest;
  const int64_t columns = std::clamp(even, shortest, p[1]);
  return {1, 1, rows, columns, rows * p[1], {columns}};
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
      {"gemm_vector",
       "CPU micro-kernel on explicit vectors, packed panels, cache blocking",
       "gemm_vector.cpp",
       every_dtype,
       {{"LANES", 8, {2, 4, 8, 16}},
        {"MR", 6, {4, 6, 8, 12, 14}},
        {"NV", 2, {1, 2, 3}},
        {"MC", 96, {48, 72, 96, 112, 120, 144, 168, 192}},
        {"KC", 256, {128, 192, 256, 384, 512}}},
       vector_plan,
       vector_fit,
       "cpu"},
      {"gemv_vector",
       "at most 4 rows of A, CPU vectors, B read once in long runs",
       "gemv_vector.cpp",
       every_dtype,
       {{"LANES", 8, {2, 4, 8, 16}}, {"COLUMNS", 1024, {256, 512, 1024, 2048}}},
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

std::string GemmKernel::objection(const GemmProblem& problem, const Device& device) const {
  const Dtype& type = dtype_of(problem.dtype);
  const auto& info = device.info();
  if (std::find(dtypes.begin(), dtypes.end(), problem.dtype) == dtypes.end())
    return concat(name, " does not take ", type.name);
  if (type.needs_fp64 && !info.has_fp64) return concat(info.name, " has no ", type.name);
  if (*device_type != '\0' && std::string(device_type) != info.type)
    return concat(name, " is for devices of type ", device_type, "; ", info.name, " is a ",
                  info.type);
  if (problem.m > most_rows)
    return concat(name, " takes at most ", most_rows, " rows; the product has ", problem.m);
  const GemmPlan plan = this->plan(values_for(problem.dtype, device), problem, info);
  const int64_t work_items = plan.group_rows * plan.group_columns;
  if (work_items > info.max_work_group_size)
    return concat(name, " needs work-groups of ", work_items, "; ", info.name, " takes ",
                  info.max_work_group_size);
  const int64_t local_bytes = plan.local_elements * type.itemsize;
  if (local_bytes > info.local_memory_bytes)
    return concat(name, " needs ", local_bytes, " bytes of local memory; ", info.name, " has ",
                  info.local_memory_bytes);
  return "";
}

const GemmKernel& gemm_kernel(const std::string& name) {
  std::string names;
  for (const auto& kernel : gemm_kernels()) {
    if (name == kernel.name) return kernel;
    names += concat(names.empty() ? "" : ", ", kernel.name);
  }
  fail(FUNLIB_ERROR_NOT_FOUND, "no GEMM kernel is called \"", name, "\"; there are ", names);
}

const GemmKernel& select_gemm_kernel(const GemmProblem& problem, const Device& device) {
  // Reuse in registers and local memory pays on every device measured so far, but only where there
  // are rows and columns to reuse: a tile of which most is outside the matrix costs as much as a full
  // one.
  constexpr int64_t few = 8;
  const GemmKernel& gemv = gemm_kernel("gemv_vector");
  if (gemv.objection(problem, device).empty()) return gemv;
  const GemmKernel& vector = gemm_kernel("gemm_vector");
  if (vector.objection(problem, device).empty()) return vector;
  const GemmKernel& blocked = gemm_kernel("gemm_tiled_blocked2x2");
  const bool skinny = problem.m < few || problem.n < few;
  return !skinny && blocked.objection(problem, device).empty() ? blocked : gemm_kernel("gemm");
}

}  // namespace funlib
