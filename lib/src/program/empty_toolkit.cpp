#include "program/empty_toolkit.hpp"

#include <cstdlib>
#include <fstream>
#include <string>

#include "runtime/error.hpp"

namespace funlib {
namespace {

namespace fs = std::filesystem;

// LLVM bitcode of a module that holds nothing: the magic number; a block of number 8, a module, one word
// long; in it a record of code 1, the format's version, which is 1; the block's end.
constexpr unsigned char empty_module[] = {'B',  'C',  0xc0, 0xde, 0x21, 0x0c, 0x00, 0x00,
                                          0x01, 0x00, 0x00, 0x00, 0x0b, 0x82, 0x00, 0x00};

}  // namespace

EmptyToolkit::EmptyToolkit() {
  std::error_code error;
  std::string name = (fs::temp_directory_path(error) / "funlib-toolkit.XXXXXX").string();
  if (error || mkdtemp(name.data()) == nullptr)
    fail(FUNLIB_ERROR_COMPILE, "can't make a folder in the directory for temporary files (TMPDIR)");
  folder_ = name;
  for (const char* part : {"bin", "include", "nvvm/libdevice"})
    fs::create_directories(folder_ / part, error);
  const fs::path libdevice = folder_ / "nvvm/libdevice/libdevice.10.bc";
  std::ofstream file(libdevice, std::ios::binary);
  file.write(reinterpret_cast<const char*>(empty_module), sizeof empty_module);
  file.close();
  if (file.fail()) {
    fs::remove_all(folder_, error);
    fail(FUNLIB_ERROR_COMPILE, "can't write to ", libdevice.string());
  }
}

EmptyToolkit::~EmptyToolkit() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace funlib
