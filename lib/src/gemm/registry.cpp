#include "gemm/registry.hpp"

#include <algorithm>

namespace funlib {
namespace {

const std::vector<funlib_dtype> every_dtype{FUNLIB_FLOAT32, FUNLIB_FLOAT64, FUNLIB_INT32};

const KernelParameter edge{"EDGE", 16, {8, 16, 32}};

}  // namespace

const std::vector<GemmKernel>& gemm_kernels() {
  static const auto* table = new std::vector<GemmKernel>{
      {"gemm",
       "one work-item, one output, global memory",
       "gemm.cpp",
       every_dtype,
       {edge},
       [](const ParameterValues& p) -> GemmGeometry {
         return {p[0], p[0], p[0], p[0], 0};
       }},
      {"gemm_tiled",
       "one output a work-item, A and B tiles in local memory",
       "gemm_tiled.cpp",
       every_dtype,
       {edge},
       [](const ParameterValues& p) -> GemmGeometry {
         return {p[0], p[0], p[0], p[0], 2 * p[0] * p[0]};
       }},
      {"gemm_blocked2x2",
       "2x2 outputs a work-item in registers, global memory",
       "gemm_blocked2x2.cpp",
       every_dtype,
       {edge},
       [](const ParameterValues& p) -> GemmGeometry {
         return {p[0], p[0], 2 * p[0], 2 * p[0], 0};
       }},
      {"gemm_tiled_blocked2x2",
       "2x2 outputs a work-item in registers, tiles in local memory",
       "gemm_tiled_blocked2x2.cpp",
       every_dtype,
       {edge},
       [](const ParameterValues& p) -> GemmGeometry {
         return {p[0], p[0], 2 * p[0], 2 * p[0], 4 * p[0] * p[0]};
       }},
  };
  return *table;
}

ParameterValues GemmKernel::defaults() const {
  ParameterValues values;
  for (const auto& parameter : parameters) values.push_back(parameter.value);
  return values;
}

std::string GemmKernel::objection(const GemmProblem& problem, const Device& device) const {
  const Dtype& type = dtype_of(problem.dtype);
  const auto& info = device.info();
  if (std::find(dtypes.begin(), dtypes.end(), problem.dtype) == dtypes.end())
    return concat(name, " does not take ", type.name);
  if (type.needs_fp64 && !info.has_fp64) return concat(info.name, " has no ", type.name);
  const GemmGeometry geometry = this->geometry(defaults());
  const int64_t work_items = geometry.group_rows * geometry.group_columns;
  if (work_items > info.max_work_group_size)
    return concat(name, " needs work-groups of ", work_items, "; ", info.name, " takes ",
                  info.max_work_group_size);
  const int64_t local_bytes = geometry.local_elements * type.itemsize;
  if (local_bytes > info.local_memory_bytes)
    return concat(name, " needs ", local_bytes, " bytes of local memory; ", info.name, " has ",
                  info.local_memory_bytes);
  return "";
}

const GemmKernel& gemm_kernel(const std::string& name) {
  for (const auto& kernel : gemm_kernels())
    if (name == kernel.name) return kernel;
  std::string names;
  for (const auto& kernel : gemm_kernels()) names += concat(names.empty() ? "" : ", ", kernel.name);
  fail(FUNLIB_ERROR_NOT_FOUND, "no GEMM kernel is called \"", name, "\"; there are ", names);
}

const GemmKernel& select_gemm_kernel(const GemmProblem& problem, const Device& device) {
  // Reuse in registers and local memory pays on every device measured so far, but only where there
  // are rows and columns to reuse: a tile of which most is outside the matrix costs as much as a full
  // one.
  constexpr int64_t few = 8;
  const GemmKernel& blocked = gemm_kernel("gemm_tiled_blocked2x2");
  const bool skinny = problem.m < few || problem.n < few;
  return !skinny && blocked.objection(problem, device).empty() ? blocked : gemm_kernel("gemm");
}

}  // namespace funlib
