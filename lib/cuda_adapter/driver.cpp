#include "driver.hpp"

#include <dlfcn.h>

namespace cuda_adapter {
namespace {

const Driver* open_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  static Driver driver;
  bool complete = true;
#define CUDA_ADAPTER_FIND(member, symbol, arguments)                              \
  driver.member = reinterpret_cast<Result(*) arguments>(dlsym(library, #symbol)); \
  complete = complete && driver.member != nullptr;
  CUDA_ADAPTER_FUNCTIONS(CUDA_ADAPTER_FIND)
#undef CUDA_ADAPTER_FIND
  // The library stays open for the life of the process, as its threads do.
  return complete && driver.init(0) == success ? &driver : nullptr;
}

}  // namespace

const Driver* find_driver() {
  static const Driver* const driver = open_driver();
  return driver;
}

}  // namespace cuda_adapter
