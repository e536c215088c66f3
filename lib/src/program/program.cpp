#include "program/program.hpp"

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <map>
#include <mutex>
#include <optional>

#include "program/cache.hpp"
#include "program/compile.hpp"
#include "program/digest.hpp"
#include "program/empty_toolkit.hpp"
#include "program/sources.hpp"
#include "runtime/paths.hpp"

namespace funlib {
namespace {

namespace experimental = sycl::ext::oneapi::experimental;

// What every kernel is compiled with: the compiler's default floating point is not strict, and its
// work-item ids are of 32 bits.
const std::vector<std::string>& compiler_options() {
  static const std::vector<std::string> options{"-O3", "-fno-fast-math", "-ffp-contract=fast",
                                                "-fno-sycl-id-queries-fit-in-int"};
  return options;
}

std::atomic<int64_t> compilations{0};

// An upgraded compiler makes other code; its size tells releases apart without starting it.
std::string compiler_identity() {
  struct stat status;
  const std::string library = directory_of(paths().sycl) + "/libsycl-jit.so";
  const long long size = stat(library.c_str(), &status) == 0 ? (long long)status.st_size : 0;
  return concat(__SYCL_COMPILER_VERSION, " ", size);
}

struct Text {
  std::string source;
  std::vector<std::pair<std::string, std::string>> headers;
};

Text read_text(const KernelSpec& spec) { return {kernel_source(spec.source), kernel_headers()}; }

std::string key_of(const Device& device, const KernelSpec& spec, const Text& text) {
  std::string everything = text.source;
  for (const auto& [name, body] : text.headers) everything += concat("\n", name, "\n", body);
  std::string key = concat("funlib ", funlib_version(), "\nsource ", spec.source, " ",
                           digest(everything), "\nentry ", spec.entry, "\n");
  for (const auto& [name, value] : spec.defines) key += concat("define ", name, "=", value, "\n");
  for (const auto& option : compiler_options()) key += concat("option ", option, "\n");
  return key + concat("device ", device.code_identity(), "\ncompiler ", compiler_identity(), "\n");
}

std::string compile(const Device& device, const KernelSpec& spec, const Text& text,
                    const char* state) {
  Message request;
  std::optional<EmptyToolkit> empty_toolkit;
  request.add("device", std::to_string(device.ordinal()));
  request.add("name", device.info().name);
  request.add("driver", device.info().driver);
  request.add("state", state);
  if (!device.ptx_target().empty()) {
    request.add("ptx_target", device.ptx_target());
    // Always named: else the compiler looks around itself.
    std::string toolkit = cuda_toolkit();
    if (toolkit.empty()) toolkit = empty_toolkit.emplace().folder();
    request.add("option", "--cuda-path=" + toolkit);
  }
  request.add("source_name", spec.source);
  request.add("source", text.source);
  for (const auto& [name, body] : text.headers) request.add("include:" + name, body);
  for (const auto& option : compiler_options()) request.add("option", option);
  for (const auto& [name, value] : spec.defines)
    request.add("option", concat("-D", name, "=", value));
  const auto start = std::chrono::steady_clock::now();
  std::string image = run_compiler(request, concat(spec.label, " (", spec.source, ")"));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  ++compilations;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f s", taken.count());
  log(FUNLIB_LOG_INFO,
      concat("compiled ", spec.label, " for ", device.info().name, " in ", seconds));
  return image;
}

sycl::kernel load(Device& device, const KernelSpec& spec, const std::string& image) {
  std::vector<char> bytes(image.begin(), image.end());
  auto bundle = experimental::get_kernel_bundle<sycl::bundle_state::executable>(
      device.context(), std::vector<sycl::device>{device.handle()},
      sycl::span<char>(bytes.data(), bytes.size()));
  return bundle.ext_oneapi_get_kernel(spec.entry);
}

sycl::kernel make_kernel(Device& device, const KernelSpec& spec) {
  const Text text = read_text(spec);
  const std::string key = key_of(device, spec, text);
  auto& cache = ImageCache::shared();
  if (const auto image = cache.load(key)) {
    try {
      return load(device, spec, *image);
    } catch (const sycl::exception& error) {
      log(FUNLIB_LOG_WARNING, concat("a cached image of ", spec.label,
                                     " does not load and is compiled anew: ", error.what()));
    }
  }
  const std::string image = compile(device, spec, text, "executable");
  sycl::kernel kernel = load(device, spec, image);
  cache.store(key, image);
  return kernel;
}

struct Kernels {
  std::mutex mutex;
  std::map<std::pair<int64_t, std::string>, std::shared_future<sycl::kernel>> by_identity;
};

// Never destroyed, like the devices.
Kernels& kernels() {
  static Kernels* all = new Kernels;
  return *all;
}

}  // namespace

sycl::kernel get_kernel(Device& device, const KernelSpec& spec) {
  std::string identity = concat(spec.source, " ", spec.entry);
  for (const auto& [name, value] : spec.defines) identity += concat(" ", name, "=", value);
  const std::pair<int64_t, std::string> place{device.index(), identity};
  auto& all = kernels();
  std::promise<sycl::kernel> promise;
  std::shared_future<sycl::kernel> future;
  bool mine = false;
  {
    std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.by_identity.find(place);
    if (found != all.by_identity.end()) {
      future = found->second;
    } else {
      future = promise.get_future().share();
      all.by_identity.emplace(place, future);
      mine = true;
    }
  }
  if (mine) {
    // A handler of the message may need this very kernel.
    const DeferredLog deferred;
    try {
      promise.set_value(make_kernel(device, spec));
    } catch (...) {
      {
        std::lock_guard<std::mutex> lock(all.mutex);
        all.by_identity.erase(place);
      }
      promise.set_exception(std::current_exception());
    }
  }
  return future.get();
}

std::string compile_object(Device& device, const KernelSpec& spec) {
  return compile(device, spec, read_text(spec), "object");
}

}  // namespace funlib

extern "C" {

funlib_status funlib_cache_get_info(funlib_cache_info* info) {
  return funlib::guarded([&] {
    auto& target = funlib::required(info, "info");
    const auto& cache = funlib::ImageCache::shared();
    target = {cache.directory().c_str(), cache.mode_name(), cache.max_bytes(),
              funlib::compilations,      cache.hits(),      cache.rejected()};
  });
}

funlib_status funlib_runtime_get_info(funlib_runtime_info* info) {
  return funlib::guarded([&] {
    auto& target = funlib::required(info, "info");
    static const std::string* directory =
        new std::string(funlib::environment("FUNLIB_KERNEL_DIR", "embedded"));
    const auto& found = funlib::paths();
    target = {found.library.c_str(),         found.sycl.c_str(), found.compiler.c_str(),
              found.opencl_cpu.c_str(),      directory->c_str(), found.cuda_adapter.c_str(),
              funlib::cuda_toolkit().c_str()};
  });
}

}  // extern "C"
