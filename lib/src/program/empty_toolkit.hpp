// A CUDA toolkit for compilers that demand one: without a libdevice they make no PTX, of kernels that call
// nothing of it neither. A folder that lasts as long as the object, with a libdevice that has no functions.
#pragma once

#include <filesystem>

namespace funlib {

class EmptyToolkit {
 public:
  // Throws FUNLIB_ERROR_COMPILE if no folder can be made.
  EmptyToolkit();
  EmptyToolkit(const EmptyToolkit&) = delete;
  EmptyToolkit& operator=(const EmptyToolkit&) = delete;
  ~EmptyToolkit();

  const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace funlib
