// The GEMM kernels of the library: one row each. Dispatch, tests, benchmarks and documentation go
// over this table; a new kernel is a file under lib/kernels and a row in registry.cpp.
#pragma once

#include <string>
#include <vector>

#include "runtime/device.hpp"
#include "runtime/dtype.hpp"

namespace funlib {

// A tunable constant of a kernel source, passed to it as FUNLIB_<name>.
struct KernelParameter {
  const char* name;
  int64_t value;  // default
  std::vector<int64_t> legal;
};

// One product in the form that kernels take: row-major C, A and B each either row-major or
// transposed, unit stride within a row.
struct GemmProblem {
  int64_t m, n, k;
  funlib_dtype dtype;
  bool transpose_a, transpose_b;
};

using ParameterValues = std::vector<int64_t>;  // in the order of GemmKernel::parameters

// How a kernel is launched for one problem.
struct GemmPlan {
  int64_t group_rows, group_columns;    // work-group
  int64_t tile_rows, tile_columns;      // outputs of a work-group
  int64_t local_elements;               // local memory, in elements
  std::vector<int64_t> arguments = {};  // of the kernel, after those that all have
  // Parts of K, each the work of its own work-groups. With more than one, slice s writes its bare
  // product at C + s * M * ldc, C being a workspace, and gemm_sum_slices makes the result of them.
  int64_t slices = 1;
  // Why these parameters don't fit together or the device; "" if they do.
  std::string objection = "";
};

struct GemmKernel {
  const char* name;  // of the row and of the kernel function
  const char* idea;
  const char* source;
  std::vector<funlib_dtype> dtypes;
  std::vector<KernelParameter> parameters;
  GemmPlan (*plan)(const ParameterValues&, const GemmProblem&, const funlib_device_info&);
  // Parameters that follow from the device; null where the defaults do for all.
  ParameterValues (*fit)(const Dtype&, const funlib_device_info&) = nullptr;
  const char* device_type = "";   // the only type of device that it is for; "" for all
  int64_t most_rows = INT64_MAX;  // largest M

  ParameterValues defaults() const;
  ParameterValues values_for(funlib_dtype dtype, const Device& device) const;
  // Why this kernel can't do the problem on the device; "" if it can.
  std::string objection(const GemmProblem& problem, const Device& device) const;
};

const std::vector<GemmKernel>& gemm_kernels();
// Throws FUNLIB_ERROR_NOT_FOUND with the names that there are.
const GemmKernel& gemm_kernel(const std::string& name);
// The kernel for a problem when the caller names none.
const GemmKernel& select_gemm_kernel(const GemmProblem& problem, const Device& device);

}  // namespace funlib
