// Inner parts that the C interface can't provoke: asynchronous errors, messages between the library
// and its compiler program, the image cache's files, the allocator's reuse, kernels for other devices.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "gemm/registry.hpp"
#include "program/cache.hpp"
#include "program/message.hpp"
#include "runtime/queue.hpp"
#include "runtime/tensor.hpp"

namespace {

using namespace funlib;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> names;
  DIR* listing = opendir(directory.c_str());
  while (const dirent* entry = readdir(listing))
    if (entry->d_name[0] != '.') names.push_back(directory + "/" + entry->d_name);
  closedir(listing);
  return names;
}

struct TemporaryDirectory {
  std::string path;
  TemporaryDirectory() {
    char name[] = "/tmp/funlib-test-XXXXXX";
    path = mkdtemp(name);
  }
  ~TemporaryDirectory() {
    chmod(path.c_str(), 0700);
    for (const auto& file : files_in(path)) unlink(file.c_str());
    rmdir(path.c_str());
  }
};

// An error that arises on the device after the call returned surfaces at the wait, with the
// operation's name and shape.
void asynchronous_errors() {
  const auto queue = get_queue(nullptr);
  const Label label{"gemm_tiled", "float32", {12, 34, 56}, 3};
  Operation operation(queue, label);
  operation.add([](sycl::handler& handler) {
    handler.host_task([] { throw std::runtime_error("planted"); });
  });
  const auto event = operation.finish();
  std::string text;
  try {
    event->wait();
  } catch (const Error& error) {
    CHECK(error.status() == FUNLIB_ERROR_RUNTIME);
    text = error.what();
  }
  CHECK(contains(text, "gemm_tiled 12x34x56 float32"));
  CHECK(contains(text, "planted"));
  // Reported once; the queue goes on.
  queue->wait();
}

void messages() {
  Message message;
  message.add("empty", "");
  message.add("binary", std::string("\0\xff\n", 3));
  message.add("option", "-O3");
  const std::string bytes = message.encode();
  const auto same = Message::decode(bytes);
  CHECK(same.has_value());
  CHECK(same && same->fields() == message.fields());
  CHECK(!Message::decode("").has_value());
  CHECK(!Message::decode(bytes + "x").has_value());
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK(!Message::decode(bytes.substr(0, size)).has_value());
}

void cache_files() {
  const TemporaryDirectory directory;
  const std::string key = "the key", image(1000, 'i');
  ImageCache cache(directory.path, ImageCache::Mode::on, 1 << 20);
  CHECK(!cache.load(key).has_value());
  cache.store(key, image);
  CHECK(cache.load(key) == image);
  CHECK(!cache.load("another key").has_value());
  const auto files = files_in(directory.path);
  CHECK(files.size() == 1);

  // Every single damaged byte, every truncation and any addition is noticed.
  const std::string whole = read_file(files[0]);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = char(damaged[at] ^ 0x20);
    write_file(files[0], damaged);
    CHECK(!cache.load(key).has_value());
  }
  for (size_t size = 0; size < whole.size(); size += 7) {
    write_file(files[0], whole.substr(0, size));
    CHECK(!cache.load(key).has_value());
  }
  write_file(files[0], whole + "x");
  CHECK(!cache.load(key).has_value());
  write_file(files[0], whole);
  CHECK(cache.load(key) == image);

  ImageCache readonly(directory.path, ImageCache::Mode::readonly, 1 << 20);
  CHECK(readonly.load(key) == image);
  readonly.store("second", image);
  CHECK(!readonly.load("second").has_value());
  ImageCache off(directory.path, ImageCache::Mode::off, 1 << 20);
  CHECK(!off.load(key).has_value());
}

void cache_bound() {
  const TemporaryDirectory directory;
  ImageCache cache(directory.path, ImageCache::Mode::on, 5000);
  const std::string image(1500, 'i');
  for (int i = 0; i < 3; ++i) {
    cache.store("key " + std::to_string(i), image);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(cache.load("key 0") == image);  // now the youngest
  cache.store("key 3", image);
  CHECK(cache.load("key 0") == image);
  CHECK(!cache.load("key 1").has_value());
  CHECK(cache.load("key 3") == image);
  CHECK(files_in(directory.path).size() == 3);
}

// Not waited for, not allocated for.
void cache_oddities() {
  const TemporaryDirectory directory;
  ImageCache cache(directory.path, ImageCache::Mode::on, 1 << 20);
  cache.store("key", "image");
  const std::string name = files_in(directory.path)[0];
  unlink(name.c_str());
  CHECK(mkfifo(name.c_str(), 0600) == 0);
  CHECK(!cache.load("key").has_value());
  cache.store("key", "image");
  CHECK(cache.load("key") == "image");
  CHECK(truncate(name.c_str(), off_t(1) << 40) == 0);
  CHECK(!cache.load("key").has_value());
  CHECK(cache.rejected() == 2);
}

void cache_of_others() {
  const TemporaryDirectory directory;
  ImageCache mine(directory.path, ImageCache::Mode::on, 1 << 20);
  mine.store("key", "image");
  chmod(directory.path.c_str(), 0777);
  ImageCache cache(directory.path, ImageCache::Mode::on, 1 << 20);
  CHECK(!cache.load("key").has_value());
}

void allocator_reuse() {
  const auto queue = get_queue(nullptr);
  Pool& pool = queue->device.pool();
  pool.trim();
  const auto before = pool.info();
  Block first = pool.allocate(100000);
  void* const address = first.data;
  CHECK(first.size >= 100000);
  pool.give_back(std::move(first));
  Block second = pool.allocate(100000);
  CHECK(second.data == address);
  Block third = pool.allocate(100000);
  CHECK(third.data != address);
  CHECK(pool.info().driver_allocations - before.driver_allocations == 2);
  CHECK(pool.allocate(0).data == nullptr);
  pool.give_back(std::move(second));
  pool.give_back(std::move(third));
  CHECK(pool.info().cached_bytes > 0);
  CHECK(pool.trim() > 0);
  CHECK(pool.info().cached_bytes == 0);
  CHECK(pool.info().live_bytes == before.live_bytes);
}

// A block that comes back with work of another queue in flight carries it as a dependency.
void allocator_dependencies() {
  const auto queue = get_queue(nullptr);
  const auto other = Ref<Queue>::make("other", queue->device, true);
  void* address;
  {
    const auto storage = Ref<Storage>::make(queue, 4096);
    address = storage->data();
    Operation operation(other, Label{});
    operation.add([&](sycl::handler& handler) {
      // Still running when the block changes hands.
      handler.host_task([] { std::this_thread::sleep_for(std::chrono::milliseconds(500)); });
    });
    storage->record(*other, true, operation.finish());
  }
  const auto storage = Ref<Storage>::make(queue, 4096);
  CHECK(storage->data() == address);
  std::vector<sycl::event> dependencies;
  storage->add_dependencies(*queue, false, dependencies);
  CHECK(dependencies.size() == 1);
  dependencies.clear();
  storage->add_dependencies(*other, false, dependencies);
  CHECK(dependencies.empty());
  other->wait();
}

// What short-lived queues did to an allocation is forgotten once it is done.
void many_queues() {
  const auto queue = get_queue(nullptr);
  const auto storage = Ref<Storage>::make(queue, 4096);
  for (int i = 0; i < 40; ++i) {
    const auto other = Ref<Queue>::make("short-lived", queue->device, true);
    Operation operation(other, Label{});
    operation.add([&](sycl::handler& handler) { handler.memset(storage->data(), 0, 4096); });
    const auto event = operation.finish();
    event->wait();
    storage->record(*other, true, event);
  }
  CHECK(storage->events().size() <= 8);
}

// An operation on nothing leaves what is in flight on the allocation alone.
void empty_operations() {
  const auto queue = get_queue(nullptr);
  const int64_t shape[] = {4, 4};
  const auto tensor = create_tensor(queue, FUNLIB_FLOAT32, 2, shape);
  Operation slow(queue, Label{"slow", "float32", {}, 0});
  slow.writes(*tensor, "tensor");
  slow.add([](sycl::handler& handler) {
    handler.host_task([] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); });
  });
  const auto event = slow.finish();
  Operation nothing(queue, Label{"nothing", "float32", {}, 0});
  nothing.writes(*tensor, "tensor");
  CHECK(nothing.finish()->is_complete());
  CHECK(tensor->storage->last_write().get() == event.get());
  CHECK(!event->is_complete());
  funlib_mapping mapping;
  CHECK_OK(funlib_tensor_map(tensor.get(), FUNLIB_MAP_READ, &mapping));
  CHECK(event->is_complete());
  CHECK_OK(funlib_tensor_unmap(tensor.get(), mapping.data));
}

// While a mapping is open, what was composed before it is refused when it is submitted.
void mapping_against_composition() {
  const auto queue = get_queue(nullptr);
  const int64_t shape[] = {4, 4};
  const auto tensor = create_tensor(queue, FUNLIB_FLOAT32, 2, shape);
  bool ran = false;
  Operation operation(queue, Label{});
  operation.writes(*tensor, "tensor");
  operation.add([&](sycl::handler& handler) { handler.host_task([&] { ran = true; }); });
  funlib_mapping mapping;
  CHECK_OK(funlib_tensor_map(tensor.get(), FUNLIB_MAP_READ_WRITE, &mapping));
  bool busy = false;
  try {
    operation.finish();
  } catch (const Error& error) {
    busy = error.status() == FUNLIB_ERROR_BUSY;
  }
  queue->wait();
  CHECK(busy && !ran);
  CHECK_OK(funlib_tensor_unmap(tensor.get(), mapping.data));
}

void overlap() {
  const auto queue = get_queue(nullptr);
  const int64_t shape[] = {6, 8};
  const auto base = create_tensor(queue, FUNLIB_FLOAT32, 2, shape);
  const auto view = [&](int64_t rows, int64_t columns, int64_t row, int64_t column) {
    auto tensor = Ref<Tensor>::make();
    tensor->queue = base->queue;
    tensor->storage = base->storage;
    tensor->dtype = base->dtype;
    tensor->ndim = 2;
    tensor->shape[0] = rows;
    tensor->shape[1] = columns;
    tensor->strides[0] = 8;
    tensor->strides[1] = 1;
    tensor->offset = row * 8 + column;
    tensor->summarise();
    return tensor;
  };
  CHECK(may_overlap(*base, *base));
  CHECK(may_overlap(*view(6, 4, 0, 0), *view(6, 4, 0, 3)));
  CHECK(!may_overlap(*view(6, 4, 0, 0), *view(6, 4, 0, 4)));
  CHECK(!may_overlap(*view(2, 8, 0, 0), *view(2, 8, 2, 0)));
  CHECK(may_overlap(*view(3, 8, 0, 0), *view(2, 8, 2, 0)));
  CHECK(!may_overlap(*view(0, 8, 0, 0), *base));
  const auto transposed = [&](const Ref<Tensor>& tensor) {
    funlib_tensor* result = nullptr;
    CHECK_OK(funlib_tensor_transpose(tensor.get(), nullptr, &result));
    return Ref<Tensor>::adopt(result);
  };
  CHECK(!may_overlap(*transposed(view(6, 4, 0, 4)), *transposed(view(6, 4, 0, 0))));
  CHECK(!may_overlap(*view(4, 4, 0, 4), *transposed(view(4, 4, 0, 0))));
  CHECK(may_overlap(*view(4, 4, 0, 3), *transposed(view(4, 4, 0, 0))));
  // A destination whose elements share addresses is refused.
  const int64_t square[] = {2, 2}, shared[] = {1, 1}, still[] = {0, 1}, apart[] = {2, 1};
  const float value = 1;
  for (const int64_t* strides : {shared, still, apart}) {
    funlib_tensor* result = nullptr;
    CHECK_OK(funlib_tensor_view(base.get(), 2, square, strides, 0, &result));
    CHECK_STATUS(strides == apart ? FUNLIB_SUCCESS : FUNLIB_ERROR_INVALID_ARGUMENT,
                 funlib_tensor_fill(result, &value, nullptr));
    funlib_tensor_release(result);
  }
  const auto elsewhere = create_tensor(queue, FUNLIB_FLOAT32, 2, shape);
  CHECK(!may_overlap(*base, *elsewhere));
}

// Parameters of gemm_matrix_engine and gemv on devices of which only the description is here.
void gpu_parameters() {
  struct Gpu {
    const char* backend;
    std::vector<int64_t> sub_groups;
    std::vector<funlib_matrix_shape> shapes;
    funlib_dtype dtype;
    const char* parameters;
  };
  const std::vector<Gpu> gpus{
      {"level_zero",
       {8, 16, 32},
       {{"bf16", 8, 8, 16}, {"int8", 8, 8, 32}},
       FUNLIB_BFLOAT16,
       "ENGINE_M=8 ENGINE_N=8 ENGINE_K=16 SUB_GROUP=8 SUB_M=16 SUB_N=32 TILE_M=64 TILE_N=128 "
       "TILE_K=32 INTERLEAVED=1 STAGES=1 TEAMS_K=1"},
      {"opencl",
       {8, 16, 32},
       {{"bf16", 8, 8, 16}, {"int8", 8, 8, 32}},
       FUNLIB_INT8,
       "ENGINE_M=8 ENGINE_N=8 ENGINE_K=32 SUB_GROUP=8 SUB_M=16 SUB_N=32 TILE_M=64 TILE_N=128 "
       "TILE_K=64 INTERLEAVED=1 STAGES=1 TEAMS_K=1"},
      {"level_zero",
       {16, 32},
       {{"fp16", 8, 16, 16}, {"fp16", 16, 16, 16}, {"fp16", 32, 64, 16}},
       FUNLIB_FLOAT16,
       "ENGINE_M=8 ENGINE_N=16 ENGINE_K=16 SUB_GROUP=16 SUB_M=32 SUB_N=32 TILE_M=128 TILE_N=128 "
       "TILE_K=32 INTERLEAVED=1 STAGES=1 TEAMS_K=1"},
      {"cuda",
       {32},
       {{"bf16", 32, 8, 16}, {"bf16", 16, 16, 16}},
       FUNLIB_BFLOAT16,
       "ENGINE_M=16 ENGINE_N=16 ENGINE_K=16 SUB_GROUP=32 SUB_M=64 SUB_N=64 TILE_M=128 TILE_N=128 "
       "TILE_K=64 INTERLEAVED=0 STAGES=2 TEAMS_K=1"},
      {"cuda",
       {32},
       {{"tf32", 16, 16, 8}},
       FUNLIB_FLOAT32,
       "ENGINE_M=16 ENGINE_N=16 ENGINE_K=8 SUB_GROUP=32 SUB_M=64 SUB_N=64 TILE_M=128 TILE_N=128 "
       "TILE_K=32 INTERLEAVED=0 STAGES=2 TEAMS_K=1"},
      {"cuda",
       {32},
       {{"fp64", 8, 8, 4}},
       FUNLIB_FLOAT64,
       "ENGINE_M=8 ENGINE_N=8 ENGINE_K=4 SUB_GROUP=32 SUB_M=32 SUB_N=32 TILE_M=64 TILE_N=64 "
       "TILE_K=16 INTERLEAVED=0 STAGES=2 TEAMS_K=1"}};
  const GemmKernel &engine = gemm_kernel("gemm_matrix_engine"), &gemv = gemm_kernel("gemv");
  constexpr int64_t local_memory = 160 * 1024;
  for (const auto& gpu : gpus) {
    funlib_device_info info{};
    info.type = "gpu";
    info.backend = gpu.backend;
    info.compute_units = 100;
    info.local_memory_bytes = local_memory;
    info.sub_group_size_count = int64_t(gpu.sub_groups.size());
    std::copy(gpu.sub_groups.begin(), gpu.sub_groups.end(), info.sub_group_sizes);
    info.matrix_shape_count = int64_t(gpu.shapes.size());
    std::copy(gpu.shapes.begin(), gpu.shapes.end(), info.matrix_shapes);
    const auto values = engine.fit(dtype_of(gpu.dtype), info);
    CHECK(engine.text_of(values) == gpu.parameters);
    CHECK(engine.parse(gpu.parameters, engine.defaults()) == values);  // all are legal
    GemmProblem problem{1000, 1000, 1000, 1, gpu.dtype, gpu.dtype};
    CHECK((engine.plan(values, problem, info).objection == "") == (gpu.dtype != FUNLIB_FLOAT32));
    problem.precision = FUNLIB_PRECISION_TF32;
    const GemmPlan plan = engine.plan(values, problem, info);
    CHECK(plan.objection == "");
    const int64_t bytes = plan.local_elements * problem.sums().itemsize;
    CHECK((bytes == 0) == (gpu.backend == std::string("cuda")));
    CHECK(2 * (bytes + plan.launch_local_bytes) <= local_memory);
    // Where two work-groups with long lines don't find room, lines are shorter.
    info.local_memory_bytes = local_memory / 2;
    const auto short_lines = engine.fit(dtype_of(gpu.dtype), info);
    CHECK(2 * engine.plan(short_lines, problem, info).launch_local_bytes <= local_memory / 2);
    info.local_memory_bytes = local_memory;
    // A shape that the device doesn't list.
    auto other = values;
    other[2] = 64;
    CHECK(contains(engine.plan(other, problem, info).objection, "x64"));
    if (gpu.backend == std::string("cuda")) {
      CHECK(contains(engine.plan(engine.parse("INTERLEAVED=1", values), problem, info).objection,
                     "interleaves"));
    }

    const auto few_rows = gemv.fit(dtype_of(gpu.dtype), info);
    CHECK(gemv.parse(gemv.text_of(few_rows), gemv.defaults()) == few_rows);
    for (const int64_t n : {1, 1000, 1000000})
      for (const int64_t k : {0, 1, 100, 100000})
        for (const bool transpose_b : {false, true}) {
          GemmProblem narrow{4, n, k, 1, gpu.dtype, gpu.dtype};
          narrow.transpose_b = transpose_b;
          const GemmPlan slim = gemv.plan(few_rows, narrow, info);
          CHECK(slim.objection == "");
          // The slices cover K, and none is empty.
          const int64_t depth = slim.arguments[0];
          CHECK(depth * slim.slices >= k && depth * (slim.slices - 1) <= k);
          CHECK(slim.slices == 1 || depth >= few_rows[3]);
        }
  }
}

// gemm_wgmma on a Hopper GPU of which only the description is here.
void hopper_parameters() {
  const GemmKernel& kernel = gemm_kernel("gemm_wgmma");
  funlib_device_info info{};
  info.type = "gpu";
  info.backend = "cuda";
  info.compute_units = 132;
  info.local_memory_bytes = 232448;
  for (const funlib_dtype dtype : kernel.dtypes) {
    const auto values = kernel.fit(dtype_of(dtype), info);
    CHECK(kernel.parse(kernel.text_of(values), kernel.defaults()) == values);  // all are legal
    for (const int layout : {0, 1, 2, 3})
      for (const int64_t extent : {0, 1, 1000, 10000}) {
        GemmProblem problem{std::max<int64_t>(extent, 1), 1000, extent, 1, dtype, dtype};
        problem.transpose_a = layout / 2 != 0;
        problem.transpose_b = layout % 2 != 0;
        CHECK((kernel.plan(values, problem, info).objection == "") == (dtype != FUNLIB_FLOAT32));
        problem.precision = FUNLIB_PRECISION_TF32;
        const GemmPlan plan = kernel.plan(values, problem, info);
        CHECK(plan.objection == "");
        CHECK(plan.launch_local_bytes > 0 && plan.launch_local_bytes <= info.local_memory_bytes);
        CHECK(plan.arguments.at(0) == plan.groups(problem));
        CHECK(plan.groups(problem) <= info.compute_units);
        problem.batches = 7;
        const GemmPlan batch = kernel.plan(values, problem, info);
        CHECK(batch.tiles_per_group == 1 && batch.groups(problem) % 7 == 0);
        problem.aligned_b = false;
        CHECK(contains(kernel.plan(values, problem, info).objection, "16 bytes"));
        problem.aligned_b = true;
        problem.aligned_a = false;
        CHECK(contains(kernel.plan(values, problem, info).objection, "16 bytes"));
        problem.aligned_a = true;
        auto other = values;
        other[1] = 128;
        other[2] = 256;
        CHECK(contains(kernel.plan(other, problem, info).objection, "sums"));
      }
  }
}

}  // namespace

int main() {
  messages();
  gpu_parameters();
  hopper_parameters();
  cache_files();
  cache_bound();
  cache_oddities();
  cache_of_others();
  if (funlib::devices().empty()) {
    std::printf("no SYCL device: the rest is skipped\n");
    return checks_failed != 0 ? 1 : 77;
  }
  asynchronous_errors();
  allocator_reuse();
  allocator_dependencies();
  many_queues();
  empty_operations();
  mapping_against_composition();
  overlap();
  if (checks_failed == 0) std::printf("ok\n");
  return checks_failed != 0;
}
