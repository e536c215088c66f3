#include "runtime/paths.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "runtime/error.hpp"
#include "sycl/backend_types.hpp"
#include "sycl/platform.hpp"

namespace funlib {

std::string directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string environment(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

namespace {

std::string object_holding(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  char resolved[4096];
  return realpath(info.dli_fname, resolved) != nullptr ? resolved : info.dli_fname;
}

bool readable(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

constexpr const char* adapter_name = "libur_adapter_cuda.so.0";
constexpr const char* libdevice = "nvvm/libdevice/libdevice.10.bc";

// FUNLIB_CUDA_ADAPTER names another ("off": none). One beside the runtime is the vendor's, and is used.
std::string find_cuda_adapter(const Paths& found) {
  namespace fs = std::filesystem;
  const std::string wish = environment("FUNLIB_CUDA_ADAPTER");
  if (wish == "off") return "";
  // The runtime's loader is told a folder, and looks for this name in it.
  if (!wish.empty())
    return fs::path(wish).filename() == adapter_name && readable(wish) ? fs::absolute(wish) : "";
  const std::string official = directory_of(found.sycl) + "/" + adapter_name;
  if (readable(official)) return official;
  const std::string own = directory_of(found.library) + "/cuda_adapter/" + adapter_name;
  return readable(own) ? own : "";
}

std::string find_cuda_toolkit() {
  namespace fs = std::filesystem;
  const std::string wish = environment("FUNLIB_CUDA_TOOLKIT");
  if (!wish.empty()) return readable(fs::path(wish) / libdevice) ? wish : "";
  std::vector<fs::path> places{environment("CUDA_HOME"), environment("CUDA_PATH")};
  // Where pip puts NVIDIA's packages: beside funlib's, and in the environment of the runtime.
  std::vector<fs::path> packages{fs::path(directory_of(paths().library)).parent_path()};
  std::error_code ignored;
  const fs::path libraries = directory_of(paths().sycl);
  for (const auto& entry : fs::directory_iterator(libraries, ignored))
    if (entry.path().filename().string().rfind("python3", 0) == 0)
      packages.push_back(entry.path() / "site-packages");
  for (const auto& folder : packages)
    for (const auto& entry : fs::directory_iterator(folder / "nvidia", ignored))
      places.push_back(entry.path());
  places.emplace_back("/usr/local/cuda");
  places.emplace_back("/usr/lib/cuda");  // Debian's
  for (const auto& place : places)
    if (!place.empty() && readable(place / libdevice)) return place;
  return "";
}

Paths find_paths() {
  Paths found;
  found.library = object_holding(reinterpret_cast<const void*>(&funlib_version));
  found.sycl = object_holding(reinterpret_cast<const void*>(&sycl::platform::get_platforms));
  const std::string compiler = environment("FUNLIB_COMPILER");
  found.compiler = !compiler.empty() ? compiler : directory_of(found.library) + "/funlib-compiler";
  if (compiler.empty() && access(found.compiler.c_str(), X_OK) != 0) found.compiler.clear();
  const std::string opencl = directory_of(found.sycl) + "/libintelocl.so";
  if (readable(opencl)) found.opencl_cpu = opencl;
  found.cuda_adapter = find_cuda_adapter(found);
  return found;
}

// The OpenCL loader finds Intel's CPU device only through this variable, which it reads when the
// runtime starts. Set when the library is loaded, before threads are likely.
__attribute__((constructor)) void announce_opencl_cpu() {
  const std::string& library = paths().opencl_cpu;
  if (library.empty()) return;
  const std::string present = environment("OCL_ICD_FILENAMES");
  if (present.find("libintelocl.so") != std::string::npos) return;
  setenv("OCL_ICD_FILENAMES", present.empty() ? library.c_str() : (present + ":" + library).c_str(),
         1);
}

// So does the runtime's loader adapters, by the folder they are in.
__attribute__((constructor)) void announce_cuda_adapter() {
  const std::string& adapter = paths().cuda_adapter;
  const std::string own = directory_of(paths().library) + "/cuda_adapter";
  const std::string wanted = adapter.empty() ? "" : directory_of(adapter);
  // Without what a parent process announced, which may have wished for another one.
  std::string folders = wanted;
  std::istringstream present(environment("UR_ADAPTERS_SEARCH_PATH"));
  for (std::string folder; std::getline(present, folder, ':');)
    if (folder != own && folder != wanted && !folder.empty())
      folders += (folders.empty() ? "" : ":") + folder;
  if (folders.empty())
    unsetenv("UR_ADAPTERS_SEARCH_PATH");
  else
    setenv("UR_ADAPTERS_SEARCH_PATH", folders.c_str(), 1);
}

}  // namespace

const Paths& paths() {
  static const Paths* found = new Paths(find_paths());
  return *found;
}

const std::string& cuda_toolkit() {
  static const std::string* found = new std::string(find_cuda_toolkit());
  return *found;
}

}  // namespace funlib
