// The CUDA adapter through the SYCL runtime: what its interface offers beyond what funlib itself uses. On
// a GPU, or on the stub driver, which copies and fills but runs no kernels.
#include <algorithm>
#include <cstring>
#include <sycl/sycl.hpp>
#include <thread>
#include <vector>

#include "../c/check.h"

namespace {

sycl::device cuda_device(size_t index = 0) {
  for (const auto& device : sycl::device::get_devices(sycl::info::device_type::gpu))
    if (device.get_backend() == sycl::backend::ext_oneapi_cuda && index-- == 0) return device;
  throw std::runtime_error("no CUDA device");
}

void test_properties(const sycl::device& device) {
  namespace what = sycl::info::device;
  CHECK(device.get_info<what::vendor>() == "NVIDIA Corporation");
  CHECK(device.get_info<what::max_work_item_sizes<3>>()[0] >= 64);
  CHECK(device.get_info<what::max_work_group_size>() >= 512);
  CHECK(device.get_info<what::sub_group_sizes>() == std::vector<size_t>{32});
  CHECK(device.get_info<what::global_mem_size>() > 0);
  CHECK(device.get_info<what::max_mem_alloc_size>() <= device.get_info<what::global_mem_size>());
  CHECK(device.get_info<what::local_mem_size>() >= 48 * 1024);
  CHECK(device.get_info<what::global_mem_cache_size>() > 0);
  CHECK(!device.get_info<what::version>().empty());
  CHECK(device.has(sycl::aspect::fp64) && device.has(sycl::aspect::fp16));
  CHECK(device.has(sycl::aspect::usm_device_allocations));
  CHECK(device.has(sycl::aspect::usm_host_allocations));
  CHECK(!device.has(sycl::aspect::image));
  CHECK(device.has(sycl::aspect::ext_intel_free_memory));
  CHECK(device.get_info<sycl::ext::intel::info::device::free_memory>() > 0);
  const bool clusters = std::stoi(device.get_info<what::version>()) >= 9;  // compute capability
  CHECK(device.has(sycl::aspect::ext_oneapi_cuda_cluster_group) == clusters);
  const auto uuid = device.get_info<sycl::ext::intel::info::device::uuid>();
  CHECK(std::any_of(uuid.begin(), uuid.end(), [](unsigned char byte) { return byte != 0; }));
  CHECK(device.get_info<sycl::ext::intel::info::device::pci_address>().size() >= 12);
  CHECK(device.get_platform().get_info<sycl::info::platform::vendor>() == "NVIDIA Corporation");
}

void test_memory(sycl::queue& queue) {
  constexpr size_t count = 1000;
  int* const on_device = sycl::malloc_device<int>(count, queue);
  int* const on_host = sycl::malloc_host<int>(count, queue);
  int* const shared = sycl::malloc_shared<int>(count, queue);
  const sycl::context context = queue.get_context();
  CHECK(sycl::get_pointer_type(on_device, context) == sycl::usm::alloc::device);
  CHECK(sycl::get_pointer_type(on_host, context) == sycl::usm::alloc::host);
  CHECK(sycl::get_pointer_type(shared, context) == sycl::usm::alloc::shared);
  CHECK(sycl::get_pointer_type(&queue, context) == sycl::usm::alloc::unknown);
  CHECK(sycl::get_pointer_device(on_device + 5, context) == queue.get_device());

  for (size_t i = 0; i < count; ++i) on_host[i] = int(i) - 7;
  const sycl::event there = queue.memcpy(on_device, on_host, count * sizeof(int));
  const sycl::event within = queue.memcpy(shared, on_device, count * sizeof(int), there);
  std::vector<int> back(count);
  queue.memcpy(back.data(), shared, count * sizeof(int), within).wait();
  CHECK(std::equal(back.begin(), back.end(), on_host));

  // Patterns of one, two, four, eight and three bytes.
  queue.memset(on_device, 0x11, count * sizeof(int)).wait();
  queue.memcpy(back.data(), on_device, count * sizeof(int)).wait();
  CHECK(back[0] == 0x11111111 && back[count - 1] == 0x11111111);
  queue.fill(reinterpret_cast<uint16_t*>(on_device), uint16_t(0x1234), count).wait();
  queue.fill(on_device + count / 2, 77, count / 2).wait();
  queue.memcpy(back.data(), on_device, count * sizeof(int)).wait();
  CHECK(back[0] == 0x12341234 && back[count / 2 - 1] == 0x12341234);
  CHECK(back[count / 2] == 77 && back[count - 1] == 77);
  queue.fill(reinterpret_cast<uint64_t*>(on_device), uint64_t(0x0102030405060708), count / 2)
      .wait();
  queue.memcpy(back.data(), on_device, count * sizeof(int)).wait();
  CHECK(back[0] == 0x05060708 && back[1] == 0x01020304 && back[count - 1] == 0x01020304);
  struct Three {
    unsigned char bytes[3];
  };
  queue.fill(reinterpret_cast<Three*>(on_device), Three{{1, 2, 3}}, count).wait();
  queue.memcpy(back.data(), on_device, count * sizeof(int)).wait();
  const auto* bytes = reinterpret_cast<const unsigned char*>(back.data());
  CHECK(bytes[0] == 1 && bytes[1] == 2 && bytes[2] == 3 && bytes[2999] == 3);

  // 5 lines of 12 bytes out of lines of 40.
  queue.memset(on_device, 0, count * sizeof(int)).wait();
  for (size_t i = 0; i < count; ++i) on_host[i] = int(i);
  queue.ext_oneapi_memcpy2d(on_device, 20, on_host, 40, 12, 5).wait();
  queue.memcpy(back.data(), on_device, count * sizeof(int)).wait();
  CHECK(back[0] == 0 && back[2] == 2 && back[3] == 0 && back[5] == 10 && back[22] == 42);

  queue.prefetch(shared, count * sizeof(int)).wait();
  queue.mem_advise(shared, count * sizeof(int), 0).wait();

  bool refused = false;
  try {
    refused = sycl::malloc_device(size_t(1) << 50, queue) == nullptr;
  } catch (const sycl::exception& error) {
    refused = error.code() == sycl::errc::memory_allocation;
  }
  CHECK(refused);
  void* const aligned = sycl::aligned_alloc_device(256, 100, queue);
  CHECK(aligned != nullptr && reinterpret_cast<uintptr_t>(aligned) % 256 == 0);

  for (void* memory : {static_cast<void*>(on_device), static_cast<void*>(on_host),
                       static_cast<void*>(shared), aligned})
    sycl::free(memory, queue);
}

// In a queue that has just been made.
void test_barrier(const sycl::device& device) {
  sycl::queue queue(device);
  constexpr size_t count = 1 << 24;
  int* const memory = sycl::malloc_device<int>(count, queue);
  const sycl::event before = queue.fill(memory, 1, count);
  queue.ext_oneapi_submit_barrier();
  queue.fill(memory, 2, 1).wait();
  CHECK(before.get_info<sycl::info::event::command_execution_status>() ==
        sycl::info::event_command_status::complete);
  sycl::free(memory, queue);
}

void test_order(const sycl::device& device, bool in_order) {
  const sycl::property_list properties =
      in_order ? sycl::property_list{sycl::property::queue::in_order(),
                                     sycl::property::queue::enable_profiling()}
               : sycl::property_list{sycl::property::queue::enable_profiling()};
  sycl::queue queue(device, properties);
  test_memory(queue);
  constexpr size_t count = 1 << 20;
  int* const memory = sycl::malloc_device<int>(count, queue);
  int* const other = sycl::malloc_device<int>(count, queue);
  std::vector<int> back(count);
  // A chain over several streams: by events, then by a barrier.
  sycl::event last;
  for (int i = 1; i <= 10; ++i) last = queue.fill(memory, i, count, last);
  const sycl::event copied = queue.memcpy(other, memory, count * sizeof(int), last);
  queue.ext_oneapi_submit_barrier();
  queue.memcpy(back.data(), other, count * sizeof(int)).wait();
  CHECK(back[0] == 10 && back[count - 1] == 10);
  namespace when = sycl::info::event_profiling;
  const auto submitted = copied.get_profiling_info<when::command_submit>();
  const auto started = copied.get_profiling_info<when::command_start>();
  const auto ended = copied.get_profiling_info<when::command_end>();
  CHECK(started <= ended);
  // On one clock: no more than a second apart here.
  CHECK(started + 1000000000 > submitted && started < submitted + 1000000000);
  CHECK(last.get_profiling_info<when::command_end>() <= ended);
  // Long after the first of the moments that times are measured from.
  for (int i = 0; i < 4; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    sycl::event later = queue.memset(memory, i, count);
    later.wait();
    const auto start = later.get_profiling_info<when::command_start>();
    CHECK(start > ended && start < ended + uint64_t(60000000) * uint64_t(i + 1) + 1000000000);
  }
  CHECK(last.get_info<sycl::info::event::command_execution_status>() ==
        sycl::info::event_command_status::complete);
  queue.wait();
  CHECK(queue.ext_oneapi_empty());
  sycl::free(memory, queue);
  sycl::free(other, queue);
}

void test_without_profiling(const sycl::device& device) {
  sycl::queue queue(device, sycl::property::queue::in_order());
  int* const memory = sycl::malloc_device<int>(16, queue);
  sycl::event event = queue.memset(memory, 0, 64);
  event.wait();
  bool refused = false;
  try {
    event.get_profiling_info<sycl::info::event_profiling::command_start>();
  } catch (const sycl::exception&) {
    refused = true;
  }
  CHECK(refused);
  sycl::free(memory, queue);
}

void test_threads(const sycl::device& device) {
  sycl::queue queue(device);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      int* const memory = sycl::malloc_device<int>(1000, queue);
      int value = -1;
      for (int i = 0; i < 50; ++i) {
        const sycl::event filled = queue.fill(memory, t * 100 + i, 1000);
        queue.memcpy(&value, memory + 999, sizeof value, filled).wait();
        right += value == t * 100 + i;
      }
      sycl::free(memory, queue);
    });
  for (auto& thread : threads) thread.join();
  CHECK(right == 8 * 50);
}

void test_native(const sycl::device& device) {
  sycl::queue queue(device, sycl::property::queue::in_order());
  constexpr auto cuda = sycl::backend::ext_oneapi_cuda;
  CHECK(sycl::get_native<cuda>(device) >= 0);
  CHECK(sycl::get_native<cuda>(queue) != nullptr);
}

}  // namespace

int main() {
  const sycl::device device = cuda_device();
  test_properties(device);
  test_barrier(device);
  test_order(device, true);
  test_order(device, false);
  test_without_profiling(device);
  test_threads(device);
  test_native(device);
  return checks_failed == 0 ? 0 : 1;
}
