// The device code under lib/kernels, embedded by the build.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace funlib {

struct EmbeddedSource {
  const char* name;
  const char* text;
};
extern const EmbeddedSource embedded_sources[];
extern const int embedded_source_count;

// Name and text of a kernel source, and of every header that kernels may include. From the directory
// named by FUNLIB_KERNEL_DIR if it is set.
std::string kernel_source(const std::string& name);
std::vector<std::pair<std::string, std::string>> kernel_headers();

}  // namespace funlib
