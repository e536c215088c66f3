// Checks, packs and launches C = act(alpha * op(A) @ op(B) + beta * C + bias).
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "gemm/dispatch.hpp"
#include "gemm/weights.hpp"
#include "gemm_shape.hpp"
#include "program/arguments.hpp"
#include "runtime/tensor.hpp"

namespace funlib {
namespace {

constexpr int64_t most_batch_dimensions = Batches::most_dimensions;

// A batch of matrices as kernels take it; the batch is that of the product, with strides of zero where
// the operand is broadcast.
struct Operand {
  const void* data;
  int64_t rows, columns;              // of op(X)
  int64_t row_stride, column_stride;  // of op(X), elements
  int64_t batch_strides[most_batch_dimensions] = {};
  bool transposed = false;  // stored as columns x rows
  int64_t leading_dimension = 1;
};

struct BatchShape {
  int64_t dimensions = 0;
  int64_t extents[most_batch_dimensions] = {};
  int64_t count() const {
    return std::accumulate(extents, extents + dimensions, int64_t(1), std::multiplies<int64_t>());
  }
};

// The side of a product that an operand of one dimension stands on, and so its missing extent.
enum class Side { left, right };

Operand operand_of(const Tensor& tensor, Side side, bool transpose, const BatchShape& batch) {
  Operand operand{tensor.data(), 1, 1, 0, 0};
  if (tensor.ndim == 1) {
    (side == Side::left ? operand.columns : operand.rows) = tensor.shape[0];
    (side == Side::left ? operand.column_stride : operand.row_stride) = tensor.strides[0];
    return operand;
  }
  const int64_t own = tensor.ndim - 2;
  operand.rows = tensor.shape[own];
  operand.columns = tensor.shape[own + 1];
  operand.row_stride = tensor.strides[own];
  operand.column_stride = tensor.strides[own + 1];
  for (int64_t d = 0; d < own; ++d)
    if (tensor.shape[d] != 1) operand.batch_strides[batch.dimensions - own + d] = tensor.strides[d];
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

bool is_row_major(Operand operand) { return settle(operand) && !operand.transposed; }

// Whether all its rows, as they are stored, begin at multiples of 16 bytes.
bool is_aligned(const Operand& operand, const BatchShape& batch, int64_t itemsize) {
  const auto whole = [&](int64_t elements) { return elements * itemsize % 16 == 0; };
  return reinterpret_cast<uintptr_t>(operand.data) % 16 == 0 && whole(operand.leading_dimension) &&
         std::all_of(operand.batch_strides, operand.batch_strides + batch.dimensions, whole);
}

// The layout of the operand row-major, its matrices (each once, broadcast or not) one after the other.
Operand row_major(const Operand& operand, const BatchShape& batch) {
  Operand result{nullptr, operand.rows, operand.columns, operand.columns, 1};
  result.leading_dimension = std::max<int64_t>(operand.columns, 1);
  int64_t total = operand.rows * operand.columns;
  for (int64_t d = batch.dimensions - 1; d >= 0; --d)
    if (operand.batch_strides[d] != 0) {
      result.batch_strides[d] = total;
      total *= batch.extents[d];
    }
  return result;
}

// Memory for an operand that is laid out by row_major.
void* workspace_for(Operation& operation, const Operand& operand, const BatchShape& batch,
                    int64_t itemsize) {
  int64_t total = operand.rows * operand.columns;
  for (int64_t d = 0; d < batch.dimensions; ++d)
    if (operand.batch_strides[d] != 0) total *= batch.extents[d];
  return operation.workspace(size_t(total * itemsize))->data();
}

// Copies matrices between two layouts of the same operand.
void copy_operand(Operation& operation, const Operand& to, const Operand& from,
                  const BatchShape& batch, int64_t itemsize) {
  int64_t shape[FUNLIB_MAX_DIMS], to_strides[FUNLIB_MAX_DIMS], from_strides[FUNLIB_MAX_DIMS];
  int64_t ndim = 0;
  const auto add = [&](int64_t extent, int64_t to_stride, int64_t from_stride) {
    shape[ndim] = extent;
    to_strides[ndim] = to_stride;
    from_strides[ndim++] = from_stride;
  };
  for (int64_t d = 0; d < batch.dimensions; ++d)
    if (from.batch_strides[d] != 0)
      add(batch.extents[d], to.batch_strides[d], from.batch_strides[d]);
  add(from.rows, to.row_stride, from.row_stride);
  add(from.columns, to.column_stride, from.column_stride);
  copy_elements(operation, ndim, shape, itemsize, const_cast<void*>(to.data), to_strides, from.data,
                from_strides);
}

// The batch with as few dimensions as strides allow: those of one matrix dropped, those that follow
// each other in all operands merged.
Batches merged(const BatchShape& batch, const Operand& a, const Operand& b, const Operand& c) {
  Batches result{};
  result.count = batch.count();
  std::fill_n(result.shape, most_batch_dimensions, 1);
  for (int64_t d = 0; d < batch.dimensions; ++d) {
    const int64_t extent = batch.extents[d];
    if (extent == 1) continue;
    const int64_t last = result.dimensions - 1;
    const auto follows = [&](const long long* strides, const Operand& operand) {
      return strides[last] == operand.batch_strides[d] * extent;
    };
    int64_t place = result.dimensions;
    if (last >= 0 && follows(result.a_strides, a) && follows(result.b_strides, b) &&
        follows(result.c_strides, c)) {
      place = last;
      result.shape[place] *= extent;
    } else {
      ++result.dimensions;
      result.shape[place] = extent;
    }
    result.a_strides[place] = a.batch_strides[d];
    result.b_strides[place] = b.batch_strides[d];
    result.c_strides[place] = c.batch_strides[d];
  }
  return result;
}

// Rows of matrices that share B and follow each other in A and C are rows of one larger product.
void fold_into_rows(GemmProblem& problem, Batches& batches, const Operand& a, const Operand& c) {
  if (batches.dimensions == 0 || batches.count == 0) return;
  if (a.transposed || problem.bias == Bias::column) return;
  const int64_t last = batches.dimensions - 1;
  if (batches.b_strides[last] != 0 || batches.a_strides[last] != problem.m * a.leading_dimension ||
      batches.c_strides[last] != problem.m * c.leading_dimension)
    return;
  problem.m *= batches.shape[last];
  batches.count /= batches.shape[last];
  batches.shape[last] = 1;
  batches.dimensions = last;
}

// ---- launch ----------------------------------------------------------------------------------

struct Scalars {
  double alpha, beta;
};

// Arguments of a product: scalars have the type of the sums.
class GemmArguments : public Arguments {
 public:
  GemmArguments(sycl::handler& handler, const Device& device, const GemmProblem& problem)
      : Arguments(handler, device), problem_(problem) {}
  void shape(const GemmShape& shape) {
    add_struct(shape, problem_.batches > 1 ? sizeof shape : offsetof(GemmShape, batches));
  }
  void scalar(double value) {
    if (problem_.sums().is_integer)
      add(int32_t(value));
    else if (problem_.sums().itemsize == 8)
      add(value);
    else
      add(float(value));
  }

 private:
  const GemmProblem& problem_;
};

// A product with everything settled but its memory.
struct Arrangement {
  GemmProblem problem;
  BatchShape batch;
  Batches batches;  // as few as possible
  Operand left, right, output;
  // What the operands are copied from, output to, where kernels can't take their strides.
  Operand left_source, right_source, output_target;
  bool packs_left = false, packs_right = false, in_place = true;
  std::shared_ptr<const GemmChoice> choice;

  int64_t workspace_bytes() const {
    const GemmPlan& plan = choice->plan;
    int64_t elements = plan.workspace_elements * plan.groups(problem);
    if (plan.slices > 1) elements += plan.slices * problem.m * problem.n * problem.batches;
    return elements * problem.sums().itemsize;
  }
};

void launch_product(Operation& operation, const Arrangement& product, const GemmProblem& problem,
                    const Scalars& scalars, const Operand& c, const void* bias,
                    const Batches& batches) {
  const GemmChoice& choice = *product.choice;
  const GemmPlan& plan = choice.plan;
  const sycl::kernel code = gemm_code(operation.device(), choice, problem);
  const size_t groups = size_t(plan.groups(problem));
  const size_t rows = size_t(plan.group_rows), columns = size_t(plan.group_columns);
  const void* workspace = nullptr;
  if (plan.workspace_elements > 0)
    workspace =
        operation
            .workspace(groups * size_t(plan.workspace_elements) * size_t(problem.sums().itemsize))
            ->data();
  GemmShape shape{problem.m,
                  problem.n,
                  problem.k,
                  product.left.leading_dimension,
                  product.right.leading_dimension,
                  c.leading_dimension,
                  {},
                  batches};
  std::copy(plan.arguments.begin(), plan.arguments.end(), shape.extra);
  const void *const a = product.left.data, *const b = product.right.data;
  const size_t local_bytes = size_t(plan.launch_local_bytes), cluster = size_t(plan.cluster);
  const Device& device = operation.device();
  operation.add([=, &device](sycl::handler& handler) {
    GemmArguments arguments(handler, device, problem);
    arguments.shape(shape);
    arguments.scalar(scalars.alpha);
    arguments.add(a).add(b);
    arguments.scalar(scalars.beta);
    arguments.add(c.data).add(bias);
    if (workspace != nullptr) arguments.add(workspace);
    if (local_bytes > 0) arguments.add_local_memory(local_bytes);
    const sycl::nd_range<2> range({rows, groups * columns}, {rows, columns});
    if (cluster == 1) return handler.parallel_for(range, code);
    namespace experimental = sycl::ext::oneapi::experimental;
    // The runtime does not turn its dimensions as it does those of the range: the first is the fastest.
    const experimental::cuda::cluster_size<2> size({cluster, 1});
    experimental::nd_launch(
        handler, experimental::launch_config(range, experimental::properties{size}), code);
  });
}

sycl::kernel sum_kernel(Device& device, const GemmProblem& problem) {
  KernelSpec spec;
  spec.source = "gemm_sum_slices.cpp";
  spec.entry = "gemm_sum_slices";
  spec.label = concat(spec.entry, " ", dtype_of(problem.dtype).name);
  spec.define("FUNLIB_T", dtype_of(problem.dtype).device_type);
  spec.define("FUNLIB_OUT", dtype_of(problem.out_dtype).device_type);
  spec.define("FUNLIB_BIAS", int(problem.bias));
  spec.define("FUNLIB_ACTIVATION", int(problem.activation));
  spec.define("FUNLIB_BATCHED", problem.batches > 1);
  return get_kernel(device, spec);
}

void launch(Operation& operation, const Arrangement& product, const Scalars& scalars,
            const void* bias) {
  const GemmProblem& problem = product.problem;
  const int64_t slices = product.choice->plan.slices;
  const Operand& c = product.output;
  if (slices == 1)
    return launch_product(operation, product, problem, scalars, c, bias, product.batches);
  // The bare sums of the slices first, the epilogue when they are added up.
  GemmProblem part = problem;
  part.out_dtype = dtype_of(problem.dtype).sums;
  part.bias = Bias::none;
  part.activation = FUNLIB_ACTIVATION_NONE;
  Batches parts = product.batches;
  int64_t stride = slices * problem.m * problem.n;
  for (int64_t d = parts.dimensions - 1; d >= 0; --d) {
    parts.c_strides[d] = stride;
    stride *= parts.shape[d];
  }
  const auto sums = operation.workspace(size_t(stride * problem.sums().itemsize));
  Operand partial{};
  partial.data = sums->data();
  partial.leading_dimension = problem.n;
  launch_product(operation, product, part, {1, 0}, partial, nullptr, parts);
  const sycl::kernel code = sum_kernel(operation.device(), problem);
  const int64_t vectors = 32, rows = 4, row_bytes = problem.n * problem.sums().itemsize;
  const size_t groups =
      size_t(tiles(problem.m, rows) * tiles(row_bytes, vectors * 16) * problem.batches);
  const GemmShape shape{problem.m, problem.n,           problem.k, 0,
                        0,         c.leading_dimension, {slices},  product.batches};
  const Device& device = operation.device();
  operation.add([=, &device](sycl::handler& handler) {
    GemmArguments arguments(handler, device, problem);
    arguments.shape(shape);
    arguments.scalar(scalars.alpha);
    arguments.add(partial.data);
    arguments.scalar(scalars.beta);
    arguments.add(c.data).add(bias);
    handler.parallel_for(sycl::nd_range<2>({size_t(rows), groups * size_t(vectors)},
                                           {size_t(rows), size_t(vectors)}),
                         code);
  });
}

// ---- checks ----------------------------------------------------------------------------------

funlib_gemm_options default_options() {
  funlib_gemm_options options{};
  options.alpha = 1;
  options.out_dtype = -1;
  return options;
}

void check_scalar(const char* name, double value, const Dtype& type) {
  if (!type.is_integer) return;
  if (value != std::trunc(value) || value < double(INT32_MIN) || value > double(INT32_MAX))
    invalid(name, " is ", value, ", but ", type.name,
            " takes whole numbers of the int32 range only");
}

funlib_dtype output_dtype(const Dtype& type, funlib_dtype dtype, int32_t wanted) {
  const funlib_dtype natural = type.is_integer ? FUNLIB_INT32 : dtype;
  if (wanted < 0) return natural;
  const Dtype& out = dtype_of(funlib_dtype(wanted));
  // What is summed alike can be stored as any type that is summed alike, except that int8 would wrap.
  if (funlib_dtype(wanted) != natural && (type.is_integer || out.sums != type.sums))
    fail(FUNLIB_ERROR_TYPE, "a product of ", type.name, " can't be stored as ", out.name,
         type.is_integer   ? "; int32 is possible"
         : type.needs_fp64 ? "; float64 is possible"
                           : "; float32, float16 and bfloat16 are possible");
  return funlib_dtype(wanted);
}

// The operands of a call.
struct Call {
  const Tensor& a;
  const Tensor* b;  // null: packed weights
  const funlib_gemm_options& options;
  int64_t m, n, k;
  bool has_rows, has_columns;  // dimensions that C has
  BatchShape batch;
  funlib_dtype out_dtype;

  // The shape of C; returns the number of dimensions.
  int64_t shape(int64_t* extents) const {
    int64_t ndim = batch.dimensions;
    std::copy_n(batch.extents, ndim, extents);
    if (has_rows) extents[ndim++] = m;
    if (has_columns) extents[ndim++] = n;
    return ndim;
  }
};

void broadcast(const Tensor& a, const Tensor& b, BatchShape& batch) {
  const int64_t left = std::max<int64_t>(a.ndim - 2, 0), right = std::max<int64_t>(b.ndim - 2, 0);
  batch.dimensions = std::max(left, right);
  for (int64_t d = 0; d < batch.dimensions; ++d) {
    const int64_t i = d - (batch.dimensions - left), j = d - (batch.dimensions - right);
    const int64_t x = i >= 0 ? a.shape[i] : 1, y = j >= 0 ? b.shape[j] : 1;
    if (x != y && x != 1 && y != 1)
      invalid("A has shape ", a.shape_text(), " and B has shape ", b.shape_text(),
              "; dimensions before the last two must be equal or 1");
    batch.extents[d] = x == 1 ? y : x;
  }
}

Call check(const Tensor& a, const Tensor* b, const funlib_gemm_options& options) {
  const Weights* weights = options.weights;
  if ((b == nullptr) == (weights == nullptr))
    invalid(b == nullptr ? "B is NULL and there are no packed weights"
                         : "there are both B and packed weights; B must be NULL then");
  if (weights != nullptr && options.transpose_b != 0)
    invalid("transpose_b is set, but packed weights are op(B) already");
  const Tensor& right = b != nullptr ? *b : *weights->tensor;
  const Queue& queue = options.queue != nullptr ? *options.queue : *a.queue;
  check_reach(queue, a, "A");
  check_reach(queue, right, b != nullptr ? "B" : "weights");
  if (options.bias != nullptr) check_reach(queue, *options.bias, "bias");
  if (a.ndim == 0) invalid("A has shape ", a.shape_text(), "; at least one dimension is needed");
  if (right.ndim == 0)
    invalid("B has shape ", right.shape_text(), "; at least one dimension is needed");
  if (a.dtype != right.dtype)
    fail(FUNLIB_ERROR_TYPE, "A is ", a.type().name, " but B is ", right.type().name,
         "; convert one of them");
  if (options.transpose_a != 0 && a.ndim == 1)
    invalid("transpose_a is set, but A has shape ", a.shape_text());
  if (b != nullptr && options.transpose_b != 0 && b->ndim == 1)
    invalid("transpose_b is set, but B has shape ", b->shape_text());
  Call call{a, b, options, 0, 0, 0, a.ndim > 1, true, {}, {}};
  if (b != nullptr) {
    call.has_columns = b->ndim > 1;
    broadcast(a, *b, call.batch);
  } else {
    call.batch.dimensions = std::max<int64_t>(a.ndim - 2, 0);
    std::copy_n(a.shape, call.batch.dimensions, call.batch.extents);
  }
  const Operand left = operand_of(a, Side::left, options.transpose_a != 0, call.batch);
  Operand other{};
  if (b != nullptr) {
    other = operand_of(*b, Side::right, options.transpose_b != 0, call.batch);
  } else {
    other.rows = weights->k;
    other.columns = weights->n;
  }
  if (left.columns != other.rows) {
    const std::string origin =
        b != nullptr ? concat("B has shape ", b->shape_text()) : std::string("packed weights");
    invalid("op(A) is ", left.rows, "x", left.columns, " (A has shape ", a.shape_text(),
            ") and op(B) is ", other.rows, "x", other.columns, " (", origin,
            "); the columns of op(A) must equal the rows of op(B)");
  }
  call.m = left.rows;
  call.n = other.columns;
  call.k = left.columns;
  check_scalar("alpha", options.alpha, a.type());
  check_scalar("beta", options.beta, a.type());
  call.out_dtype = output_dtype(a.type(), a.dtype, options.out_dtype);
  if (options.precision < FUNLIB_PRECISION_DEFAULT || options.precision > FUNLIB_PRECISION_TF32)
    invalid("unknown precision number ", options.precision);
  if (options.precision != FUNLIB_PRECISION_DEFAULT && a.dtype != FUNLIB_FLOAT32)
    invalid("precision is TF32, which only products of float32 may be rounded to; A is ",
            a.type().name);
  if (options.activation < FUNLIB_ACTIVATION_NONE || options.activation > FUNLIB_ACTIVATION_SILU)
    invalid("unknown activation number ", options.activation);
  if (a.type().is_integer && options.activation > FUNLIB_ACTIVATION_RELU)
    fail(FUNLIB_ERROR_TYPE, "integers have no activation but relu; A is ", a.type().name);
  if (const Tensor* bias = options.bias) {
    if (bias->dtype != call.out_dtype)
      fail(FUNLIB_ERROR_TYPE, "bias is ", bias->type().name, " but the result is ",
           dtype_of(call.out_dtype).name);
    if (bias->ndim != 1 || bias->shape[0] != call.n)
      invalid("bias has shape ", bias->shape_text(), "; one element for each of the ", call.n,
              " columns is needed");
  }
  return call;
}

void check_output(const Tensor& c, const Call& call) {
  if (c.dtype != call.out_dtype)
    fail(FUNLIB_ERROR_TYPE, "out is ", c.type().name, " but the result is ",
         dtype_of(call.out_dtype).name);
  int64_t shape[FUNLIB_MAX_DIMS];
  const int64_t ndim = call.shape(shape);
  if (c.ndim != ndim || !std::equal(shape, shape + ndim, c.shape)) {
    std::string text;
    for (int64_t d = 0; d < ndim; ++d) text += concat(d == 0 ? "" : "x", shape[d]);
    invalid("out has shape ", c.shape_text(), " but the product is ",
            ndim == 0 ? "a scalar" : text);
  }
  check_writable(c, "out");
  if (may_overlap(c, call.a)) invalid("out overlaps A; give it memory of its own");
  if (call.b != nullptr && may_overlap(c, *call.b))
    invalid("out overlaps B; give it memory of its own");
  if (call.options.bias != nullptr && may_overlap(c, *call.options.bias))
    invalid("out overlaps bias; give it memory of its own");
}

// C as an operand; `c` null stands for one in C order.
Operand output_of(const Call& call, const Tensor* c) {
  int64_t shape[FUNLIB_MAX_DIMS], own[FUNLIB_MAX_DIMS];
  const int64_t ndim = call.shape(shape);
  const int64_t* strides = own;
  if (c != nullptr)
    strides = c->strides;
  else
    contiguous_strides(ndim, shape, own);
  Operand output{c != nullptr ? c->data() : nullptr, call.m, call.n, 0, 0};
  std::copy_n(strides, call.batch.dimensions, output.batch_strides);
  int64_t d = call.batch.dimensions;
  if (call.has_rows) output.row_stride = strides[d++];
  if (call.has_columns) output.column_stride = strides[d];
  return output;
}

// ---- the product as kernels take it ----------------------------------------------------------

// An empty product is planned too, by whoever asks what would be done.
GemmProblem plannable(GemmProblem problem) {
  for (int64_t* extent : {&problem.m, &problem.n, &problem.batches})
    *extent = std::max<int64_t>(*extent, 1);
  return problem;
}

// Lays the product out; mirrored, that is C^T = op(B)^T @ op(A)^T.
Arrangement lay_out(const Call& call, const Tensor* c, const Device& device, bool mirrored,
                    const GemmWish& wish) {
  const auto& options = call.options;
  const Weights* weights = options.weights;
  Arrangement product;
  product.batch = call.batch;
  GemmProblem& problem = product.problem;
  problem = {call.m, call.n, call.k, call.batch.count(), call.a.dtype, call.out_dtype};
  problem.activation = funlib_activation(options.activation);
  // A permission that no engine of the device could use changes nothing.
  if (std::strstr(device.info().matrix_types, "tf32") != nullptr)
    problem.precision = funlib_precision(options.precision);
  if (options.bias != nullptr) problem.bias = Bias::row;
  if (weights != nullptr) problem.panel_width = weights->panel_width;
  if (options.alpha == 0) problem.k = 0;
  Operand left = operand_of(call.a, Side::left, options.transpose_a != 0, call.batch);
  Operand right{};
  if (problem.panel_width != 0) {
    right.data = weights->tensor->data();
  } else {
    const Tensor& b = weights != nullptr ? *weights->tensor : *call.b;
    right = operand_of(b, Side::right, options.transpose_b != 0, call.batch);
  }
  Operand output = output_of(call, c);
  if (mirrored) {
    std::swap(problem.m, problem.n);
    std::swap(left, right);
    left = transposed(left);
    right = transposed(right);
    output = transposed(output);
    if (problem.bias == Bias::row) problem.bias = Bias::column;
  }
  product.in_place = is_row_major(output);
  if (product.in_place) {
    settle(output);
  } else {
    product.output_target = output;
    output = row_major(output, call.batch);
  }

  product.left_source = left;
  product.right_source = right;
  const bool reads = problem.k > 0;
  if (reads && !settle(left)) {
    product.packs_left = true;
    left = row_major(left, call.batch);
  }
  if (reads && problem.panel_width == 0 && !settle(right)) {
    product.packs_right = true;
    right = row_major(right, call.batch);
  }
  problem.transpose_a = left.transposed;
  problem.transpose_b = right.transposed;
  const int64_t itemsize = call.a.type().itemsize;
  problem.aligned_a = !reads || is_aligned(left, call.batch, itemsize);
  problem.aligned_b = !reads || is_aligned(right, call.batch, itemsize);
  constexpr int64_t most_lines = 512;  // of a tile
  const int64_t apart =
      std::max(std::abs(left.leading_dimension), std::abs(right.leading_dimension));
  problem.far = reads && apart >= (int64_t(1) << 32) / most_lines / itemsize;
  product.batches = merged(call.batch, left, right, output);
  // A kernel of few rows takes the products as they are.
  if (wish.kernel.empty() || gemm_kernel(wish.kernel).most_rows == INT64_MAX)
    fold_into_rows(problem, product.batches, left, output);
  problem.batches = product.batches.count;
  product.left = left;
  product.right = right;
  product.output = output;
  return product;
}

// Mirrored where C is stored by columns, or where C is so narrow that most of every tile would lie
// outside: unless a kernel is named that refuses just that.
Arrangement arrange(const Call& call, const Tensor* c, const Device& device) {
  const auto& options = call.options;
  GemmWish wish;
  if (options.kernel != nullptr) wish.kernel = options.kernel;
  if (options.parameters != nullptr) wish.parameters = options.parameters;
  constexpr int64_t narrow = 4;
  const bool is_narrow = call.n <= narrow && call.m > narrow;
  const bool is_packed = options.weights != nullptr && options.weights->panel_width != 0;
  const Operand output = output_of(call, c);
  const bool mirrored =
      !is_packed && (is_narrow || (!is_row_major(output) && is_row_major(transposed(output))));
  Arrangement product = lay_out(call, c, device, mirrored, wish);
  if (mirrored && !wish.kernel.empty()) {
    const GemmKernel& kernel = gemm_kernel(wish.kernel);
    const auto values = kernel.parse(wish.parameters, kernel.values_for(call.a.dtype, device));
    if (!kernel.objection(plannable(product.problem), values, device).empty())
      product = lay_out(call, c, device, false, wish);
  }
  product.choice = choose_gemm(plannable(product.problem), wish, device);
  return product;
}

Ref<Event> multiply(Tensor& a, Tensor* b, const funlib_gemm_options& options, Ref<Tensor>& c) {
  enter_runtime();
  const auto queue = options.queue != nullptr ? Ref<Queue>::share(options.queue) : a.queue;
  const Call call = check(a, b, options);
  if (c) {
    check_output(*c, call);
  } else if (options.beta != 0) {
    invalid("beta is ", options.beta, ", which needs an out to be scaled by it");
  }
  Arrangement product = arrange(call, c.get(), queue->device);
  if (!c) {
    int64_t shape[FUNLIB_MAX_DIMS];
    const int64_t ndim = call.shape(shape);
    c = create_tensor(queue, call.out_dtype, ndim, shape);
    (product.in_place ? product.output : product.output_target).data = c->data();
  }
  Operation operation(queue,
                      {product.choice->kernel->name, a.type().name, {call.m, call.k, call.n}, 3});
  operation.reads(a, "A");
  operation.reads(b != nullptr ? *b : *options.weights->tensor, b != nullptr ? "B" : "weights");
  if (options.bias != nullptr) operation.reads(*options.bias, "bias");
  operation.writes(*c, "out");
  if (c->size == 0) return operation.finish();

  const int64_t itemsize = a.type().itemsize;
  const auto pack = [&](Operand& operand, const Operand& source) {
    operand.data = workspace_for(operation, operand, call.batch, itemsize);
    copy_operand(operation, operand, source, call.batch, itemsize);
  };
  if (product.packs_left) pack(product.left, product.left_source);
  if (product.packs_right) pack(product.right, product.right_source);
  const void* bias = nullptr;
  if (options.bias != nullptr) {
    bias = options.bias->data();
    if (call.n > 1 && options.bias->strides[0] != 1) {
      const auto row = operation.workspace(size_t(options.bias->nbytes()));
      const int64_t unit = 1;
      copy_elements(operation, 1, options.bias->shape, options.bias->type().itemsize, row->data(),
                    &unit, bias, options.bias->strides);
      bias = row->data();
    }
  }
  const Scalars scalars{options.alpha, options.beta};
  if (product.in_place) {
    launch(operation, product, scalars, bias);
    return operation.finish();
  }
  // C is not as the kernel writes it: compute into a row-major workspace, copy in and out.
  const int64_t out_itemsize = c->type().itemsize;
  product.output.data = workspace_for(operation, product.output, call.batch, out_itemsize);
  if (scalars.beta != 0)
    copy_operand(operation, product.output, product.output_target, call.batch, out_itemsize);
  launch(operation, product, scalars, bias);
  copy_operand(operation, product.output_target, product.output, call.batch, out_itemsize);
  return operation.finish();
}

funlib_gemm_choice explain(const Tensor& a, const Tensor* b, const funlib_gemm_options& options) {
  enter_runtime();
  const Queue& queue = options.queue != nullptr ? *options.queue : *a.queue;
  const Arrangement product = arrange(check(a, b, options), nullptr, queue.device);
  const GemmChoice& choice = *product.choice;
  thread_local std::string parameters, reason;
  parameters = choice.kernel->text_of(choice.values);
  reason = choice.reason;
  const GemmPlan& plan = choice.plan;
  const GemmProblem& problem = product.problem;
  return {choice.kernel->name,
          parameters.c_str(),
          choice.source,
          reason.c_str(),
          plan.group_rows,
          plan.group_columns,
          plan.tile_rows,
          plan.tile_columns,
          plan.groups(problem),
          plan.slices,
          product.workspace_bytes(),
          product.packs_left,
          product.packs_right,
          problem.batches,
          problem.m,
          problem.n,
          problem.k,
          problem.transpose_a,
          problem.transpose_b};
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
      funlib_device_info none{};
      none.type = none.backend = none.architecture = "";
      const GemmPlan plan =
          kernel.plan(kernel.defaults(), {1, 1, 1, 1, FUNLIB_FLOAT32, FUNLIB_FLOAT32}, none);
      rows->push_back({kernel.name, kernel.idea, kernel.source, kernel.device_type,
                       kernel.architecture, int64_t(kernel.dtypes.size()), kernel.dtypes.data(),
                       int64_t(parameters->size()), parameters->data(), plan.group_rows,
                       plan.group_columns, plan.tile_rows, plan.tile_columns});
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
    auto& output = required(c, "c");
    auto result = Ref<Tensor>::share(output);
    auto done = multiply(left, b, options != nullptr ? *options : default_options(), result);
    if (output == nullptr) output = result.detach();
    if (event != nullptr) *event = done.detach();
  });
}

funlib_status funlib_gemm_explain(funlib_tensor* a, funlib_tensor* b,
                                  const funlib_gemm_options* options, funlib_gemm_choice* choice) {
  return guarded([&] {
    const auto& left = required(a, "A");
    auto& target = required(choice, "choice");
    target = explain(left, b, options != nullptr ? *options : default_options());
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

funlib_status funlib_gemm_kernel_object(funlib_queue* queue, const char* kernel, funlib_dtype dtype,
                                        int32_t transpose_a, int32_t transpose_b,
                                        const char* parameters, void** data, int64_t* size) {
  return guarded([&] {
    auto& owner = required(queue, "queue");
    const GemmKernel& row = gemm_kernel(&required(kernel, "kernel"));
    auto& target = required(data, "data");
    auto& target_size = required(size, "size");
    const Dtype& type = dtype_of(dtype);
    GemmProblem problem{1, 1, 1, 1, dtype, output_dtype(type, dtype, -1)};
    problem.transpose_a = transpose_a != 0;
    problem.transpose_b = transpose_b != 0;
    const auto values = row.parse(parameters != nullptr ? parameters : "", row.defaults());
    enter_runtime();
    const std::string image = compile_object(owner.device, gemm_spec(row, values, problem));
    void* copy = std::malloc(image.size());
    if (copy == nullptr) throw std::bad_alloc();
    std::memcpy(copy, image.data(), image.size());
    target = copy;
    target_size = int64_t(image.size());
  });
}

void funlib_free(void* data) { std::free(data); }

}  // extern "C"
