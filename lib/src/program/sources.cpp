#include "program/sources.hpp"

#include <fstream>
#include <iterator>

#include "runtime/error.hpp"
#include "runtime/paths.hpp"

namespace funlib {

std::string kernel_source(const std::string& name) {
  const std::string directory = environment("FUNLIB_KERNEL_DIR");
  if (!directory.empty()) {
    const std::string path = concat(directory, "/", name);
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file) fail(FUNLIB_ERROR_COMPILE, "can't read ", path, " (FUNLIB_KERNEL_DIR is set)");
    return text;
  }
  for (int i = 0; i < embedded_source_count; ++i)
    if (name == embedded_sources[i].name) return embedded_sources[i].text;
  fail(FUNLIB_ERROR_COMPILE, "no kernel source ", name, " in the library");
}

std::vector<std::pair<std::string, std::string>> kernel_headers() {
  std::vector<std::pair<std::string, std::string>> headers;
  for (int i = 0; i < embedded_source_count; ++i) {
    const std::string name = embedded_sources[i].name;
    if (name.size() > 4 && name.compare(name.size() - 4, 4, ".hpp") == 0)
      headers.emplace_back(name, kernel_source(name));
  }
  return headers;
}

}  // namespace funlib
