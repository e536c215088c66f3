// Checks, packs and launches C = alpha * op(A) @ op(B) + beta * C.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "gemm/registry.hpp"
#include "program/program.hpp"
#include "runtime/tensor.hpp"

namespace funlib {
namespace {

// A matrix as kernels take it.
struct Operand {
  const void* data;
  int64_t rows, columns;              // of op(X)
  int64_t row_stride, column_stride;  // of op(X), elements
  bool transposed = false;            // stored as columns x rows
  int64_t leading_dimension = 1;
};

Operand operand_of(const Tensor& tensor, bool transpose) {
  Operand operand{tensor.data(), tensor.shape[0], tensor.shape[1], tensor.strides[0],
                  tensor.strides[1]};
  if (transpose) {
    std::swap(operand.rows, operand.columns);
    std::swap(operand.row_stride, operand.column_stride);
  }
  return operand;
}

Operand transposed(Operand operand) {
  std::swap(operand.rows, operand.columns);
  std::swap(operand.row_stride, operand.column_stride);
  return operand;
}

// Settles on row-major or transposed storage; false if the strides fit neither. The stride of a
// dimension of extent one is never used, whatever its value.
bool settle(Operand& operand) {
  const auto fits = [](int64_t extent, int64_t unit_stride, int64_t other_extent,
                       int64_t other_stride) {
    return (extent <= 1 || unit_stride == 1) && (other_extent <= 1 || other_stride >= extent);
  };
  const auto leading = [](int64_t extent, int64_t other_extent, int64_t other_stride) {
    return other_extent <= 1 ? std::max<int64_t>(extent, 1) : other_stride;
  };
  if (fits(operand.columns, operand.column_stride, operand.rows, operand.row_stride)) {
    operand.transposed = false;
    operand.leading_dimension = leading(operand.columns, operand.rows, operand.row_stride);
    return true;
  }
  if (fits(operand.rows, operand.row_stride, operand.columns, operand.column_stride)) {
    operand.transposed = true;
    operand.leading_dimension = leading(operand.rows, operand.columns, operand.column_stride);
    return true;
  }
  return false;
}

// Makes the operand row-major in a workspace.
Ref<Storage> pack(Operation& operation, Operand& operand, int64_t itemsize) {
  auto packed = operation.workspace(size_t(operand.rows * operand.columns * itemsize));
  const int64_t shape[] = {operand.rows, operand.columns};
  const int64_t to[] = {operand.columns, 1};
  const int64_t from[] = {operand.row_stride, operand.column_stride};
  copy_elements(operation, 2, shape, itemsize, packed->data(), to, operand.data, from);
  operand.data = packed->data();
  operand.transposed = false;
  operand.leading_dimension = operand.columns;
  return packed;
}

KernelSpec spec_of(const GemmKernel& kernel, const ParameterValues& values, funlib_dtype dtype,
                   bool transpose_a, bool transpose_b) {
  KernelSpec spec;
  spec.source = kernel.source;
  spec.entry = kernel.name;
  spec.label = concat(kernel.name, " ", dtype_of(dtype).name, " ", transpose_a ? "t" : "n",
                      transpose_b ? "t" : "n");
  spec.define("FUNLIB_T", dtype_of(dtype).device_type);
  spec.define("FUNLIB_INTEGER", dtype_of(dtype).is_integer);
  spec.define("FUNLIB_TRANSPOSE_A", transpose_a);
  spec.define("FUNLIB_TRANSPOSE_B", transpose_b);
  for (size_t i = 0; i < values.size(); ++i)
    spec.define(concat("FUNLIB_", kernel.parameters[i].name).c_str(), values[i]);
  return spec;
}

// Specialisations in use, found without building their specification again.
class Launchables {
 public:
  struct Key {
    int64_t device;
    const GemmKernel* kernel;
    int dtype;
    bool transpose_a, transpose_b;
    bool operator<(const Key& other) const {
      return std::tie(device, kernel, dtype, transpose_a, transpose_b) <
             std::tie(other.device, other.kernel, other.dtype, other.transpose_a,
                      other.transpose_b);
    }
  };

  sycl::kernel get(Device& device, const GemmKernel& kernel, const GemmProblem& problem) {
    const Key key{device.index(), &kernel, problem.dtype, problem.transpose_a, problem.transpose_b};
    {
      std::shared_lock<std::shared_mutex> lock(mutex_);
      const auto found = kernels_.find(key);
      if (found != kernels_.end()) return found->second;
    }
    sycl::kernel made =
        get_kernel(device, spec_of(kernel, kernel.values_for(problem.dtype, device), problem.dtype,
                                   problem.transpose_a, problem.transpose_b));
    std::lock_guard<std::shared_mutex> lock(mutex_);
    return kernels_.emplace(key, std::move(made)).first->second;
  }

 private:
  std::shared_mutex mutex_;
  std::map<Key, sycl::kernel> kernels_;
};

Launchables& launchables() {
  static auto* all = new Launchables;
  return *all;
}

size_t tiles(int64_t extent, int64_t tile) { return size_t((extent + tile - 1) / tile); }

template <typename T>
void launch_plan(Operation& operation, const GemmKernel& kernel, const GemmPlan& plan,
                 const GemmProblem& problem, double alpha, const Operand& a, const Operand& b,
                 double beta, void* c, int64_t ldc) {
  const sycl::kernel code = launchables().get(operation.device(), kernel, problem);
  const size_t groups =
      tiles(problem.m, plan.tile_rows) * tiles(problem.n, plan.tile_columns) * size_t(plan.slices);
  const size_t rows = size_t(plan.group_rows), columns = size_t(plan.group_columns);
  operation.add([=](sycl::handler& handler) {
    handler.set_args(problem.m, problem.n, problem.k, T(alpha), static_cast<const T*>(a.data),
                     a.leading_dimension, static_cast<const T*>(b.data), b.leading_dimension,
                     T(beta), static_cast<T*>(c), ldc);
    int position = 11;
    for (const int64_t argument : plan.arguments) handler.set_arg(position++, argument);
    handler.parallel_for(sycl::nd_range<2>({rows, groups * columns}, {rows, columns}), code);
  });
}

// C = alpha * (the sum of the slices' products) + beta * C.
template <typename T>
void sum_slices(Operation& operation, const GemmProblem& problem, int64_t slices,
                const void* partial, double alpha, double beta, void* c, int64_t ldc) {
  KernelSpec spec;
  spec.source = "gemm_sum_slices.cpp";
  spec.entry = "gemm_sum_slices";
  spec.label = concat(spec.entry, " ", dtype_of(problem.dtype).name);
  spec.define("FUNLIB_T", dtype_of(problem.dtype).device_type);
  spec.define("FUNLIB_INTEGER", dtype_of(problem.dtype).is_integer);
  const sycl::kernel code = get_kernel(operation.device(), spec);
  constexpr size_t group = 256;
  const size_t groups = tiles(problem.m * problem.n, group);
  operation.add([=](sycl::handler& handler) {
    handler.set_args(problem.m, problem.n, slices, T(alpha), static_cast<const T*>(partial),
                     T(beta), static_cast<T*>(c), ldc);
    handler.parallel_for(sycl::nd_range<1>(groups * group, group), code);
  });
}

template <typename T>
void launch(Operation& operation, const GemmKernel& kernel, const GemmProblem& problem,
            double alpha, const Operand& a, const Operand& b, double beta, void* c, int64_t ldc) {
  const ParameterValues values = kernel.values_for(problem.dtype, operation.device());
  const GemmPlan plan = kernel.plan(values, problem, operation.device().info());
  if (plan.slices == 1)
    return launch_plan<T>(operation, kernel, plan, problem, alpha, a, b, beta, c, ldc);
  const auto partial = operation.workspace(size_t(plan.slices * problem.m * problem.n) * sizeof(T));
  launch_plan<T>(operation, kernel, plan, problem, 1, a, b, 0, partial->data(), problem.n);
  sum_slices<T>(operation, problem, plan.slices, partial->data(), alpha, beta, c, ldc);
}

void launch(Operation& operation, const GemmKernel& kernel, const GemmProblem& problem,
            double alpha, const Operand& a, const Operand& b, double beta, void* c, int64_t ldc) {
  switch (problem.dtype) {
    case FUNLIB_FLOAT32:
      return launch<float>(operation, kernel, problem, alpha, a, b, beta, c, ldc);
    case FUNLIB_FLOAT64:
      return launch<double>(operation, kernel, problem, alpha, a, b, beta, c, ldc);
    case FUNLIB_INT32:
      return launch<int32_t>(operation, kernel, problem, alpha, a, b, beta, c, ldc);
  }
}

funlib_gemm_options default_options() { return {1.0, 0.0, 0, 0, nullptr, nullptr}; }

void check_scalar(const char* name, double value, const Dtype& type) {
  if (!type.is_integer) return;
  if (value != std::trunc(value) || value < double(INT32_MIN) || value > double(INT32_MAX))
    invalid(name, " is ", value, ", but ", type.name, " takes whole numbers of its range only");
}

void check_matrix(const Tensor& tensor, const char* name) {
  if (tensor.ndim != 2)
    invalid(name, " has shape ", tensor.shape_text(), "; a matrix of two dimensions is needed");
}

// Shapes and types; returns the problem of op(A), op(B).
GemmProblem check(const Tensor& a, const Tensor& b, const funlib_gemm_options& options) {
  check_matrix(a, "A");
  check_matrix(b, "B");
  if (a.dtype != b.dtype)
    fail(FUNLIB_ERROR_TYPE, "A is ", a.type().name, " but B is ", b.type().name,
         "; convert one of them");
  const Operand left = operand_of(a, options.transpose_a != 0);
  const Operand right = operand_of(b, options.transpose_b != 0);
  if (left.columns != right.rows)
    invalid("op(A) is ", left.rows, "x", left.columns, " (A has shape ", a.shape_text(),
            ") and op(B) is ", right.rows, "x", right.columns, " (B has shape ", b.shape_text(),
            "); the columns of op(A) must equal the rows of op(B)");
  check_scalar("alpha", options.alpha, a.type());
  check_scalar("beta", options.beta, a.type());
  return {left.rows, right.columns, left.columns, a.dtype, false, false};
}

void check_output(const Tensor& c, const Tensor& a, const Tensor& b, const GemmProblem& problem) {
  check_matrix(c, "out");
  if (c.dtype != a.dtype)
    fail(FUNLIB_ERROR_TYPE, "out is ", c.type().name, " but A and B are ", a.type().name);
  if (c.shape[0] != problem.m || c.shape[1] != problem.n)
    invalid("out has shape ", c.shape_text(), " but the product is ", problem.m, "x", problem.n);
  check_writable(c, "out");
  if (may_overlap(c, a)) invalid("out overlaps A; give it memory of its own");
  if (may_overlap(c, b)) invalid("out overlaps B; give it memory of its own");
}

const GemmKernel& choose(const funlib_gemm_options& options, const GemmProblem& problem,
                         const Device& device) {
  if (options.kernel == nullptr) return select_gemm_kernel(problem, device);
  const GemmKernel& kernel = gemm_kernel(options.kernel);
  const std::string objection = kernel.objection(problem, device);
  if (!objection.empty()) fail(FUNLIB_ERROR_UNSUPPORTED, objection);
  return kernel;
}

Ref<Event> multiply(Tensor& a, Tensor& b, const funlib_gemm_options& options, Ref<Tensor>& c) {
  const auto queue = options.queue != nullptr ? Ref<Queue>::share(options.queue) : a.queue;
  GemmProblem problem = check(a, b, options);
  const GemmKernel& kernel = choose(options, problem, queue->device);
  double alpha = options.alpha;
  const double beta = options.beta;
  if (c) {
    check_output(*c, a, b, problem);
  } else {
    if (beta != 0) invalid("beta is ", beta, ", which needs an out to be scaled by it");
    const int64_t shape[] = {problem.m, problem.n};
    c = create_tensor(queue, problem.dtype, 2, shape);
  }
  Label label{kernel.name, a.type().name, {problem.m, problem.k, problem.n}, 3};
  Operation operation(queue, label);
  const bool reads_inputs = problem.k > 0 && alpha != 0;
  operation.reads(a, "A");
  operation.reads(b, "B");
  operation.writes(*c, "out");
  if (problem.m == 0 || problem.n == 0) return operation.finish();
  if (!reads_inputs) {
    alpha = 0;
    problem.k = 0;
  }

  Operand left = operand_of(a, options.transpose_a != 0);
  Operand right = operand_of(b, options.transpose_b != 0);
  Operand output = operand_of(*c, false);
  // A C that is stored by columns is the row-major C^T = op(B)^T @ op(A)^T, if the kernel takes that.
  bool in_place = settle(output);
  if (in_place && output.transposed) {
    GemmProblem mirrored = problem;
    std::swap(mirrored.m, mirrored.n);
    in_place = kernel.objection(mirrored, operation.device()).empty();
    if (in_place) {
      const Operand previous = left;
      left = transposed(right);
      right = transposed(previous);
      problem = mirrored;
    }
  }
  const int64_t itemsize = a.type().itemsize;
  if (reads_inputs) {
    if (!settle(left)) pack(operation, left, itemsize);
    if (!settle(right)) pack(operation, right, itemsize);
  }
  problem.transpose_a = left.transposed;
  problem.transpose_b = right.transposed;

  if (in_place) {
    launch(operation, kernel, problem, alpha, left, right, beta, c->data(),
           output.leading_dimension);
    return operation.finish();
  }
  // C is not as the kernel writes it: compute into a row-major workspace, copy in and out.
  const auto rows = operation.workspace(size_t(c->nbytes()));
  int64_t strides[FUNLIB_MAX_DIMS];
  contiguous_strides(2, c->shape, strides);
  if (beta != 0)
    copy_elements(operation, 2, c->shape, itemsize, rows->data(), strides, c->data(), c->strides);
  launch(operation, kernel, problem, alpha, left, right, beta, rows->data(), c->shape[1]);
  copy_elements(operation, 2, c->shape, itemsize, c->data(), c->strides, rows->data(), strides);
  return operation.finish();
}

// The registry as the C interface shows it.
const std::vector<funlib_kernel_info>& kernel_infos() {
  static const auto* infos = [] {
    auto* rows = new std::vector<funlib_kernel_info>;
    for (const auto& kernel : gemm_kernels()) {
      auto* parameters = new std::vector<funlib_kernel_parameter>;
      for (const auto& parameter : kernel.parameters)
        parameters->push_back({parameter.name, parameter.value, int64_t(parameter.legal.size()),
                               parameter.legal.data()});
      const GemmPlan plan =
          kernel.plan(kernel.defaults(), {1, 1, 1, FUNLIB_FLOAT32, false, false}, {});
      rows->push_back({kernel.name, kernel.idea, kernel.source, int64_t(kernel.dtypes.size()),
                       kernel.dtypes.data(), int64_t(parameters->size()), parameters->data(),
                       plan.group_rows, plan.group_columns, plan.tile_rows, plan.tile_columns});
    }
    return rows;
  }();
  return *infos;
}

}  // namespace
}  // namespace funlib

using namespace funlib;

extern "C" {

funlib_status funlib_gemm_options_init(funlib_gemm_options* options) {
  return guarded([&] { required(options, "options") = default_options(); });
}

funlib_status funlib_gemm(funlib_tensor* a, funlib_tensor* b, const funlib_gemm_options* options,
                          funlib_tensor** c, funlib_event** event) {
  return guarded([&] {
    auto& left = required(a, "A");
    auto& right = required(b, "B");
    auto& output = required(c, "c");
    auto result = Ref<Tensor>::share(output);
    auto done = multiply(left, right, options != nullptr ? *options : default_options(), result);
    if (output == nullptr) output = result.detach();
    if (event != nullptr) *event = done.detach();
  });
}

funlib_status funlib_gemm_kernel_count(int64_t* count) {
  return guarded([&] { required(count, "count") = int64_t(gemm_kernels().size()); });
}

funlib_status funlib_gemm_kernel_get_info(int64_t index, funlib_kernel_info* info) {
  return guarded([&] {
    auto& target = required(info, "info");
    const auto& rows = kernel_infos();
    if (index < 0 || index >= int64_t(rows.size()))
      invalid("kernel index ", index, " is out of range: there are ", rows.size(), " kernels");
    target = rows[size_t(index)];
  });
}

funlib_status funlib_gemm_select(funlib_tensor* a, funlib_tensor* b,
                                 const funlib_gemm_options* options, const char** kernel) {
  return guarded([&] {
    const auto& left = required(a, "A");
    const auto& right = required(b, "B");
    auto& target = required(kernel, "kernel");
    const auto chosen = options != nullptr ? *options : default_options();
    const auto& queue = chosen.queue != nullptr ? *chosen.queue : *left.queue;
    target = choose(chosen, check(left, right, chosen), queue.device).name;
  });
}

funlib_status funlib_gemm_kernel_object(funlib_queue* queue, const char* kernel, funlib_dtype dtype,
                                        int32_t transpose_a, int32_t transpose_b, void** data,
                                        int64_t* size) {
  return guarded([&] {
    auto& owner = required(queue, "queue");
    const GemmKernel& row = gemm_kernel(&required(kernel, "kernel"));
    auto& target = required(data, "data");
    auto& target_size = required(size, "size");
    dtype_of(dtype);
    enter_runtime();
    const std::string image = compile_object(
        owner.device, spec_of(row, row.defaults(), dtype, transpose_a != 0, transpose_b != 0));
    void* copy = std::malloc(image.size());
    if (copy == nullptr) throw std::bad_alloc();
    std::memcpy(copy, image.data(), image.size());
    target = copy;
    target_size = int64_t(image.size());
  });
}

void funlib_free(void* data) { std::free(data); }

}  // extern "C"
