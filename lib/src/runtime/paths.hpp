// Where the pieces of the runtime lie on disk.
#pragma once

#include <string>

namespace funlib {

struct Paths {
  std::string library;     // libfunlib.so
  std::string sycl;        // libsycl.so as loaded
  std::string compiler;    // the compiler program, "" when missing
  std::string opencl_cpu;  // libintelocl.so, "" when missing
  // The adapter by which the runtime finds NVIDIA's GPUs, "" when there is none.
  std::string cuda_adapter;
};
const Paths& paths();

// The folder with nvvm/libdevice, NVIDIA's mathematical functions, "" when missing. Looked for by the first
// call: most processes have no use for it.
const std::string& cuda_toolkit();

std::string directory_of(const std::string& path);
std::string environment(const char* name, const char* fallback = "");

}  // namespace funlib
