// The devices of this process, found once, and where the pieces of the runtime lie on disk.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <sycl/sycl.hpp>
#include <vector>

#include "runtime/error.hpp"
#include "runtime/memory.hpp"

namespace funlib {

class Device {
 public:
  Device(int64_t index, int64_t ordinal, const sycl::device& handle);

  int64_t index() const noexcept { return index_; }
  // Place among all devices of the runtime, those that funlib can't use included.
  int64_t ordinal() const noexcept { return ordinal_; }
  const sycl::device& handle() const noexcept { return handle_; }
  const funlib_device_info& info() const noexcept { return info_; }
  // One context a device, made on first use: some backends take long over it.
  const sycl::context& context();
  Pool& pool() noexcept { return pool_; }
  StagingPool& staging() noexcept { return staging_; }
  // Held from the checks of an operation until it is recorded with the memory that it uses.
  std::mutex& submission() noexcept { return submission_; }
  // NVIDIA's target for PTX, "sm_90a"; "" for other devices.
  const std::string& ptx_target() const noexcept { return ptx_target_; }
  // Kernels get structs in pieces (lib/kernels/funlib_device.hpp).
  bool takes_pieces() const noexcept { return !ptx_target_.empty(); }
  // What native code for this device depends on.
  const std::string& code_identity() const noexcept { return code_identity_; }

 private:
  int64_t index_, ordinal_;
  sycl::device handle_;
  std::string name_, vendor_, driver_, matrix_types_, ptx_target_, code_identity_, identity_;
  funlib_device_info info_{};
  std::once_flag context_once_;
  std::unique_ptr<sycl::context> context_;
  Pool pool_;
  StagingPool staging_;
  std::mutex submission_;
};

// All devices, in the runtime's order. Throws FUNLIB_ERROR_FORKED in a forked child and
// FUNLIB_ERROR_NO_DEVICE if the runtime can't list devices; an empty list is no error.
const std::vector<std::unique_ptr<Device>>& devices();

// One line for each device, for messages that say what there is.
std::string describe_devices();

}  // namespace funlib
