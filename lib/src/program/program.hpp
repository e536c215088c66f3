// Kernels by specification: from memory, from the cache directory, or from the compiler program.
#pragma once

#include <string>
#include <sycl/sycl.hpp>
#include <utility>
#include <vector>

#include "runtime/device.hpp"

namespace funlib {

// One specialisation of a kernel source.
struct KernelSpec {
  std::string source;  // file under lib/kernels
  std::string entry;   // name of the kernel function
  std::string label;   // for messages: "gemm_tiled float32 nn"
  std::vector<std::pair<std::string, std::string>> defines;

  template <typename Value>
  void define(const char* name, const Value& value) {
    defines.emplace_back(name, concat(value));
  }
};

// Thread-safe; a specialisation is compiled once, whoever asks for it. Throws FUNLIB_ERROR_COMPILE;
// after a failure the next call tries again.
sycl::kernel get_kernel(Device& device, const KernelSpec& spec);

// The object-state SYCLBIN of a specialisation, compiled anew.
std::string compile_object(Device& device, const KernelSpec& spec);

}  // namespace funlib
