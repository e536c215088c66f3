// Packs op(B) as the kernels of its device read it fastest.
#include "gemm/weights.hpp"

#include "gemm/registry.hpp"
#include "program/program.hpp"

namespace funlib {
namespace {

sycl::kernel pack_kernel(Device& device, const Dtype& type, int64_t width, int64_t run,
                         bool transposed) {
  KernelSpec spec;
  spec.source = "gemm_pack_panels.cpp";
  spec.entry = "gemm_pack_panels";
  spec.label = concat(spec.entry, " ", type.name, " ", transposed ? "t" : "n");
  spec.define("FUNLIB_T", type.device_type);
  spec.define("FUNLIB_TRANSPOSE_B", transposed);
  spec.define("FUNLIB_NR", width);
  spec.define("FUNLIB_RUN", run);
  return get_kernel(device, spec);
}

// The panel kernel that the device has; null if row-major is what its kernels want.
const GemmKernel* panel_kernel(const Device& device) {
  for (const auto& kernel : gemm_kernels())
    if (kernel.panel_width != nullptr && kernel.device_type == std::string(device.info().type))
      return &kernel;
  return nullptr;
}

Ref<Event> pack(Tensor& b, bool transpose, const Ref<Queue>& queue, Ref<Weights>& result) {
  if (b.ndim != 2)
    invalid("B has shape ", b.shape_text(), "; weights of two dimensions are packed");
  auto weights = Ref<Weights>::make();
  const int64_t rows = transpose ? 1 : 0;
  weights->k = b.shape[rows];
  weights->n = b.shape[1 - rows];
  const int64_t k_stride = b.strides[rows], n_stride = b.strides[1 - rows];
  const Dtype& type = b.type();
  Device& device = queue->device;
  Operation operation(queue, {"pack_weights", type.name, {weights->k, weights->n}, 2});
  operation.reads(b, "B");
  const GemmKernel* kernel = panel_kernel(device);
  if (kernel == nullptr) {
    // Rows that begin at multiples of 64 bytes let every kernel load vectors.
    const int64_t unit = 64 / type.itemsize;
    const int64_t stored[] = {weights->k, tiles(weights->n, unit) * unit};
    weights->tensor = create_tensor(queue, b.dtype, 2, stored);
    weights->tensor->shape[1] = weights->n;
    weights->tensor->summarise();
    operation.writes(*weights->tensor, "weights");
    const int64_t from[] = {k_stride, n_stride};
    copy_elements(operation, 2, weights->tensor->shape, type.itemsize, weights->tensor->data(),
                  weights->tensor->strides, b.data(), from);
  } else {
    const int64_t width = kernel->panel_width(kernel->values_for(b.dtype, device));
    const int64_t panels = tiles(weights->n, width), size = panels * width * weights->k;
    weights->panel_width = width;
    weights->tensor = create_tensor(queue, b.dtype, 1, &size);
    operation.writes(*weights->tensor, "weights");
    if (size > 0) {
      const void* source = b.data();
      int64_t leading = k_stride;
      bool transposed = false;
      if (n_stride != 1 && weights->n > 1) {
        transposed = k_stride == 1 || weights->k == 1;
        leading = n_stride;
        if (!transposed) {
          const auto copy = operation.workspace(size_t(b.nbytes()));
          const int64_t shape[] = {weights->k, weights->n};
          const int64_t to[] = {weights->n, 1}, from[] = {k_stride, n_stride};
          copy_elements(operation, 2, shape, type.itemsize, copy->data(), to, source, from);
          source = copy->data();
          leading = weights->n;
        }
      }
      constexpr int64_t run = 64;
      const sycl::kernel code = pack_kernel(device, type, width, run, transposed);
      const int64_t k = weights->k, n = weights->n;
      void* const target = weights->tensor->data();
      operation.add([=](sycl::handler& handler) {
        handler.set_args(k, n, source, leading, target);
        handler.parallel_for(sycl::nd_range<1>(size_t(panels * tiles(k, run)), 1), code);
      });
    }
  }
  auto event = operation.finish();
  result = std::move(weights);
  return event;
}

}  // namespace
}  // namespace funlib

using namespace funlib;

extern "C" {

funlib_status funlib_weights_pack(funlib_tensor* b, int32_t transpose_b, funlib_queue* queue,
                                  funlib_weights** weights, funlib_event** event) {
  return guarded([&] {
    auto& source = required(b, "B");
    auto& target = required(weights, "weights");
    Ref<Weights> packed;
    auto done = pack(source, transpose_b != 0,
                     queue != nullptr ? Ref<Queue>::share(queue) : source.queue, packed);
    target = packed.detach();
    if (event != nullptr) *event = done.detach();
  });
}

void funlib_weights_release(funlib_weights* weights) {
  if (weights != nullptr && !forked_after_start()) weights->release();
}

funlib_status funlib_weights_get_info(funlib_weights* weights, funlib_weights_info* info) {
  return guarded([&] {
    const auto& source = required(weights, "weights");
    required(info, "info") = {source.tensor->dtype, source.k, source.n,
                              source.tensor->storage ? int64_t(source.tensor->storage->bytes()) : 0,
                              source.panel_width};
  });
}

funlib_status funlib_weights_get_queue(funlib_weights* weights, funlib_queue** queue) {
  return guarded([&] {
    auto& source = required(weights, "weights");
    required(queue, "queue") = Ref<Queue>(source.tensor->queue).detach();
  });
}

}  // extern "C"
