#include "runtime/paths.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

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

Paths find_paths() {
  Paths found;
  found.library = object_holding(reinterpret_cast<const void*>(&funlib_version));
  found.sycl = object_holding(reinterpret_cast<const void*>(&sycl::platform::get_platforms));
  const std::string compiler = environment("FUNLIB_COMPILER");
  found.compiler = !compiler.empty() ? compiler : directory_of(found.library) + "/funlib-compiler";
  if (compiler.empty() && access(found.compiler.c_str(), X_OK) != 0) found.compiler.clear();
  const std::string opencl = directory_of(found.sycl) + "/libintelocl.so";
  if (readable(opencl)) found.opencl_cpu = opencl;
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

}  // namespace

const Paths& paths() {
  static const Paths* found = new Paths(find_paths());
  return *found;
}

}  // namespace funlib
