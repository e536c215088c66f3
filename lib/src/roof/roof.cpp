// Measures the two roofs of a device: how fast it copies, and how many multiply-adds it does.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "program/program.hpp"
#include "runtime/tensor.hpp"

namespace funlib {
namespace {

// How a kernel is cut for a device.
struct RoofShape {
  int64_t group, lanes;  // work-items of a work-group, elements of a vector
  int64_t vectors;       // of a work-item: what it copies, or its accumulators
  int64_t group_elements() const { return group * lanes * vectors; }
};

struct RoofKernel {
  RoofShape shape;
  KernelSpec spec;
};

// One work-item a work-group is a thread of a CPU, with vectors of its own; elsewhere the work-items of
// a sub-group are the vector.
bool has_threads(const funlib_device_info& info) { return std::strcmp(info.type, "cpu") == 0; }

int64_t vector_lanes(const funlib_device_info& info, int64_t itemsize) {
  return std::max<int64_t>(info.vector_bytes / itemsize, 2);
}

constexpr int64_t work_group = 256;
constexpr int64_t word_bytes = 4;  // what roof_copy counts in

RoofKernel copy_kernel(const funlib_device_info& info) {
  constexpr int64_t thread_block_bytes = 64 << 10;
  RoofKernel kernel{{std::min(work_group, info.max_work_group_size), 4, 4}, {}};
  if (has_threads(info)) {
    const int64_t lanes = vector_lanes(info, word_bytes);
    kernel.shape = {1, lanes, thread_block_bytes / word_bytes / lanes};
  }
  kernel.spec.source = "roof_copy.cpp";
  kernel.spec.entry = kernel.spec.label = "roof_copy";
  kernel.spec.define("FUNLIB_GROUP", kernel.shape.group);
  kernel.spec.define("FUNLIB_LANES", kernel.shape.lanes);
  kernel.spec.define("FUNLIB_VECTORS", kernel.shape.vectors);
  return kernel;
}

// A multiply-add takes 4 to 5 cycles, at most two of them begin in one, and an int32 product takes
// twice as long: 12 accumulators, which with the operands just fit into 16 registers.
RoofKernel multiply_add_kernel(const funlib_device_info& info, const Dtype& type) {
  RoofKernel kernel{{std::min(work_group, info.max_work_group_size), 1, 8}, {}};
  if (has_threads(info)) kernel.shape = {1, vector_lanes(info, type.itemsize), 12};
  kernel.spec.source = "roof_multiply_add.cpp";
  kernel.spec.entry = "roof_multiply_add";
  kernel.spec.label = concat(kernel.spec.entry, " ", type.name);
  kernel.spec.define("FUNLIB_T", type.device_type);
  kernel.spec.define("FUNLIB_INTEGER", type.is_integer);
  kernel.spec.define("FUNLIB_GROUP", kernel.shape.group);
  kernel.spec.define("FUNLIB_LANES", kernel.shape.lanes);
  kernel.spec.define("FUNLIB_ACCUMULATORS", kernel.shape.vectors);
  return kernel;
}

// Runs one command to its end; returns the nanoseconds that it took: the device's, where its queue
// tells, else the host's from submission to completion.
template <typename Compose>
uint64_t run(const Ref<Queue>& queue, const Label& label, Compose&& compose) {
  Operation operation(queue, label);
  compose(operation);
  const auto start = std::chrono::steady_clock::now();
  const auto event = operation.finish();
  event->wait();
  const std::chrono::nanoseconds host = std::chrono::steady_clock::now() - start;
  const uint64_t device = queue->profiling ? event->times().kernel_ns : 0;
  return std::max<uint64_t>(device > 0 ? device : uint64_t(host.count()), 1);
}

Label label_of(const char* operation, const Tensor& tensor) {
  return {operation, tensor.type().name, {tensor.size}, 1};
}

// Moves all bytes of a tensor to or from the host.
void upload(Tensor& tensor, const void* host) {
  run(tensor.queue, label_of("roof_upload", tensor), [&](Operation& operation) {
    operation.writes(tensor, "tensor");
    operation.add_copy(tensor.data(), host, size_t(tensor.nbytes()));
  });
}
void download(Tensor& tensor, void* host) {
  run(tensor.queue, label_of("roof_download", tensor), [&](Operation& operation) {
    operation.reads(tensor, "tensor");
    operation.add_copy(host, tensor.data(), size_t(tensor.nbytes()));
  });
}
// Bytes that no right result holds, so that what was not written shows.
void poison(Tensor& tensor) {
  run(tensor.queue, label_of("roof_poison", tensor), [&](Operation& operation) {
    operation.writes(tensor, "tensor");
    operation.add([&](sycl::handler& handler) {
      handler.memset(tensor.data(), 0x7f, size_t(tensor.nbytes()));
    });
  });
}

// The fastest of several launches of some `work` each; `launch` returns nanoseconds. Other programs
// and a clock that is still rising only ever make a launch slower.
template <typename Launch>
funlib_roof_result fastest(double work, Launch&& launch) {
  constexpr std::chrono::milliseconds enough{300};
  constexpr int64_t fewest = 5;
  launch();
  funlib_roof_result result{0, work, UINT64_MAX, 0};
  const auto start = std::chrono::steady_clock::now();
  while (result.launches < fewest || std::chrono::steady_clock::now() - start < enough) {
    result.time_ns = std::min(result.time_ns, launch());
    ++result.launches;
  }
  result.per_second = work / (double(result.time_ns) * 1e-9);
  return result;
}

uint32_t word_at(size_t index) { return uint32_t(index) * 2654435761u; }

// Both arrays together are at least eight times as large as the last-level cache.
funlib_roof_result measure_copy(const Ref<Queue>& queue) {
  constexpr int64_t least = int64_t(128) << 20;
  Device& device = queue->device;
  const auto& info = device.info();
  const RoofKernel kernel = copy_kernel(info);
  const sycl::kernel code = get_kernel(device, kernel.spec);
  const int64_t cache =
      int64_t(device.handle().get_info<sycl::info::device::global_mem_cache_size>());
  const int64_t bytes = std::min(
      {std::max(least, 4 * cache), info.max_allocation_bytes, info.global_memory_bytes / 8});
  const int64_t block = kernel.shape.group_elements();
  const int64_t groups = std::max<int64_t>(bytes / word_bytes / block, 1);
  const int64_t words = groups * block;
  const auto source = create_tensor(queue, FUNLIB_INT32, 1, &words);
  const auto destination = create_tensor(queue, FUNLIB_INT32, 1, &words);

  std::vector<uint32_t> host(static_cast<size_t>(words));
  for (size_t i = 0; i < host.size(); ++i) host[i] = word_at(i);
  upload(*source, host.data());
  poison(*destination);
  const size_t group = size_t(kernel.shape.group);
  const auto result = fastest(2.0 * double(source->nbytes()), [&] {
    return run(queue, label_of("roof_copy", *source), [&](Operation& operation) {
      operation.reads(*source, "source");
      operation.writes(*destination, "destination");
      operation.add([&](sycl::handler& handler) {
        handler.set_args(static_cast<uint32_t*>(destination->data()),
                         static_cast<const uint32_t*>(source->data()));
        handler.parallel_for(sycl::nd_range<1>(size_t(groups) * group, group), code);
      });
    });
  });
  download(*destination, host.data());
  for (size_t i = 0; i < host.size(); ++i)
    if (host[i] != word_at(i))
      fail(FUNLIB_ERROR_RUNTIME, "roof_copy on ", info.name, " wrote ", host[i], " at word ", i,
           "; ", word_at(i), " would be right");
  return result;
}

template <typename T>
funlib_roof_result measure_multiply_add(const Ref<Queue>& queue, funlib_dtype dtype) {
  // Whole numbers up to twice this are exact.
  constexpr int32_t steps = 1 << std::min(14, std::numeric_limits<T>::digits - 1);
  constexpr uint64_t long_enough_ns = 2'000'000;
  Device& device = queue->device;
  const auto& info = device.info();
  const RoofKernel kernel = multiply_add_kernel(info, dtype_of(dtype));
  const sycl::kernel code = get_kernel(device, kernel.spec);
  const size_t group = size_t(kernel.shape.group);

  Ref<Tensor> out;
  const auto launch = [&] {
    return run(queue, label_of("roof_multiply_add", *out), [&](Operation& operation) {
      operation.writes(*out, "out");
      operation.add([&](sycl::handler& handler) {
        handler.set_args(steps, T(-1), T(1), T(-1), static_cast<T*>(out->data()));
        handler.parallel_for(sycl::nd_range<1>(size_t(out->size), group), code);
      });
    });
  };
  // More work-groups until a launch takes so long that its start and its end no longer count. Not
  // longer: of short launches some run undisturbed even beside other programs.
  int64_t groups = 2 * std::max<int64_t>(info.compute_units, 1);
  uint64_t time_ns = 0;
  while (time_ns < long_enough_ns) {
    groups *= 2;
    const int64_t items = groups * int64_t(group);
    out = create_tensor(queue, dtype, 1, &items);
    launch();
    time_ns = launch();
  }
  poison(*out);
  const double operations = 2.0 * steps * double(groups) * double(kernel.shape.group_elements());
  const auto result = fastest(operations, launch);
  std::vector<T> host(static_cast<size_t>(out->size));
  download(*out, host.data());
  for (const T value : host)
    if (value != T(-steps))
      fail(FUNLIB_ERROR_RUNTIME, kernel.spec.label, " on ", info.name, " gave ", value, "; ",
           -steps, " would be right");
  return result;
}

// Of the type that products of `dtype` are summed in.
funlib_roof_result measure_multiply_add(const Ref<Queue>& queue, funlib_dtype dtype) {
  const funlib_dtype sums = dtype_of(dtype).sums;
  if (sums == FUNLIB_FLOAT64) return measure_multiply_add<double>(queue, sums);
  if (sums == FUNLIB_INT32) return measure_multiply_add<int32_t>(queue, sums);
  return measure_multiply_add<float>(queue, sums);
}

void check_roof(funlib_roof roof) {
  if (roof != FUNLIB_ROOF_COPY && roof != FUNLIB_ROOF_MULTIPLY_ADD)
    invalid("unknown roof number ", int(roof));
}

funlib_roof_result measure(const Ref<Queue>& queue, funlib_roof roof, funlib_dtype dtype) {
  check_roof(roof);
  const Dtype& type = dtype_of(dtype);
  enter_runtime();
  if (roof == FUNLIB_ROOF_COPY) return measure_copy(queue);
  if (type.needs_fp64 && !queue->device.info().has_fp64)
    fail(FUNLIB_ERROR_UNSUPPORTED, queue->device.info().name, " has no ", type.name);
  return measure_multiply_add(queue, dtype);
}

}  // namespace
}  // namespace funlib

using namespace funlib;

extern "C" {

funlib_status funlib_roof_measure(funlib_queue* queue, funlib_roof roof, funlib_dtype dtype,
                                  funlib_roof_result* result) {
  return guarded([&] {
    const auto held = Ref<Queue>::share(&required(queue, "queue"));
    auto& target = required(result, "result");
    target = measure(held, roof, dtype);
    // The arrays were far larger than what is worth keeping for reuse.
    held->device.pool().trim();
  });
}

funlib_status funlib_roof_kernel_object(funlib_queue* queue, funlib_roof roof, funlib_dtype dtype,
                                        void** data, int64_t* size) {
  return guarded([&] {
    auto& owner = required(queue, "queue");
    auto& target = required(data, "data");
    auto& target_size = required(size, "size");
    check_roof(roof);
    const Dtype& type = dtype_of(dtype_of(dtype).sums);
    enter_runtime();
    funlib_device_info gpu{};
    gpu.type = "gpu";
    gpu.max_work_group_size = work_group;
    const RoofKernel kernel =
        roof == FUNLIB_ROOF_COPY ? copy_kernel(gpu) : multiply_add_kernel(gpu, type);
    const std::string image = compile_object(owner.device, kernel.spec);
    void* copy = std::malloc(image.size());
    if (copy == nullptr) throw std::bad_alloc();
    std::memcpy(copy, image.data(), image.size());
    target = copy;
    target_size = int64_t(image.size());
  });
}

}  // extern "C"
