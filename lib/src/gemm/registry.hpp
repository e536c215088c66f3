// The GEMM kernels of the library: one row each. Dispatch, tests, benchmarks and documentation go
// over this table; a new kernel is a file under lib/kernels and a row in registry.cpp.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "gemm_shape.hpp"
#include "runtime/device.hpp"
#include "runtime/dtype.hpp"

namespace funlib {

// A tunable constant of a kernel source, passed to it as FUNLIB_<name>.
struct KernelParameter {
  const char* name;
  int64_t value;  // default
  std::vector<int64_t> legal;
};

// How the outputs of a product take a bias.
enum class Bias { none = 0, row = FUNLIB_BIAS_ROW, column = FUNLIB_BIAS_COLUMN };

// A batch of products in the form that kernels take: row-major C, A and B each either row-major or
// transposed, unit stride within a row.
struct GemmProblem {
  int64_t m, n, k, batches;
  funlib_dtype dtype, out_dtype;
  bool transpose_a = false, transpose_b = false;
  Bias bias = Bias::none;
  funlib_activation activation = FUNLIB_ACTIVATION_NONE;
  int64_t panel_width = 0;  // columns of a panel of packed B; 0: B is a matrix
  funlib_precision precision = FUNLIB_PRECISION_DEFAULT;
  // All rows of the operand, as they are stored, begin at multiples of 16 bytes.
  bool aligned_a = true, aligned_b = true;
  // Lines of an operand are so far apart that its tiles are wider than 4 GiB.
  bool far = false;

  // And they are whole vectors of 16 bytes.
  bool has_vectors_a() const { return aligned_a && is_whole(transpose_a ? m : k); }
  bool has_vectors_b() const { return aligned_b && is_whole(transpose_b ? k : n); }

  auto key() const {
    return std::make_tuple(m, n, k, batches, int(dtype), int(out_dtype), transpose_a, transpose_b,
                           int(bias), int(activation), panel_width, int(precision), aligned_a,
                           aligned_b, far);
  }
  const Dtype& sums() const { return dtype_of(dtype_of(dtype).sums); }

 private:
  bool is_whole(int64_t run) const { return run * dtype_of(dtype).itemsize % 16 == 0; }
};

using ParameterValues = std::vector<int64_t>;  // in the order of GemmKernel::parameters

// How a kernel is launched for one problem.
struct GemmPlan {
  int64_t group_rows, group_columns;    // work-group
  int64_t tile_rows, tile_columns;      // outputs of a work-group
  int64_t local_elements;               // local memory, in elements of the sums
  std::vector<int64_t> arguments = {};  // GemmShape::extra
  // Parts of K, each the work of its own work-groups. With more than one, slice s of a matrix writes
  // its bare product at C + s * M * ldc, C being a workspace, and gemm_sum_slices makes the result.
  int64_t slices = 1;
  // Tiles that a work-group does one after the other.
  int64_t tiles_per_group = 1;
  // Work-groups that share a tile and reach each other's local memory (NVIDIA's clusters).
  int64_t cluster = 1;
  // Elements of the sums that a work-group has in a workspace, the kernel's last argument if there are
  // any.
  int64_t workspace_elements = 0;
  // Bytes of local memory beside that of a fixed size: the kernel's last argument if there are any.
  int64_t launch_local_bytes = 0;
  // Why these parameters don't fit together or the device; "" if they do.
  std::string objection = "";

  int64_t groups(const GemmProblem& problem) const;
};

struct GemmKernel {
  const char* name;  // of the row and of the kernel function
  const char* idea;
  const char* source;
  std::vector<funlib_dtype> dtypes;
  std::vector<KernelParameter> parameters;
  GemmPlan (*plan)(const ParameterValues&, const GemmProblem&, const funlib_device_info&);
  // Parameters that follow from the device and the type; null where the defaults do for all.
  ParameterValues (*fit)(const Dtype&, const funlib_device_info&) = nullptr;
  const char* device_type = "";   // the only type of device that it is for; "" for all
  int64_t most_rows = INT64_MAX;  // largest M
  // Columns of the panels that it takes packed B in; null if it takes none.
  int64_t (*panel_width)(const ParameterValues&) = nullptr;
  bool by_alignment = false;      // compiled for what is known of the operands' lines in memory
  const char* architecture = "";  // the only one, as funlib_device_info names it; "" for all

  ParameterValues defaults() const;
  ParameterValues values_for(funlib_dtype dtype, const Device& device) const;
  // "NAME=value NAME=value" over the given values. Throws FUNLIB_ERROR_INVALID_ARGUMENT on a name that
  // is none or a value that is not legal.
  ParameterValues parse(const std::string& text, ParameterValues values) const;
  std::string text_of(const ParameterValues& values) const;
  // Why this kernel can't do the problem on the device; "" if it can.
  std::string objection(const GemmProblem& problem, const ParameterValues& values,
                        const Device& device) const;
};

const std::vector<GemmKernel>& gemm_kernels();
// Throws FUNLIB_ERROR_NOT_FOUND with the names that there are.
const GemmKernel& gemm_kernel(const std::string& name);

inline int64_t tiles(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

}  // namespace funlib
