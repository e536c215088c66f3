#include "runtime/device.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sycl/ext/oneapi/matrix/matrix.hpp>

#include "program/digest.hpp"
#include "runtime/paths.hpp"

namespace funlib {
namespace {

const char* backend_name(sycl::backend backend) {
  switch (backend) {
    case sycl::backend::opencl:
      return "opencl";
    case sycl::backend::ext_oneapi_level_zero:
      return "level_zero";
    case sycl::backend::ext_oneapi_cuda:
      return "cuda";
    case sycl::backend::ext_oneapi_hip:
      return "hip";
    default:
      return "other";
  }
}

const char* type_name(sycl::info::device_type type) {
  switch (type) {
    case sycl::info::device_type::cpu:
      return "cpu";
    case sycl::info::device_type::gpu:
      return "gpu";
    default:
      return "accelerator";
  }
}

// The OpenCL CPU device compiles for the very processor it runs on, and its name does not tell
// processors apart: a cache shared between machines needs the instruction sets too.
std::string host_instruction_sets() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.rfind("flags", 0) == 0) return digest(line);
  return "unknown";
}

const char* name_of(sycl::ext::oneapi::experimental::matrix::matrix_type type) {
  using sycl::ext::oneapi::experimental::matrix::matrix_type;
  switch (type) {
    case matrix_type::bf16:
      return "bf16";
    case matrix_type::fp16:
      return "fp16";
    case matrix_type::tf32:
      return "tf32";
    case matrix_type::fp64:
      return "fp64";
    case matrix_type::sint8:
      return "int8";
    default:
      return nullptr;
  }
}

// Fills in the shapes, of operands of one type and sums as wide as funlib keeps them.
void list_matrix_shapes(const sycl::device& device, funlib_device_info& info) {
  using sycl::ext::oneapi::experimental::matrix::matrix_type;
  namespace what = sycl::ext::oneapi::experimental::info::device;
  try {
    for (const auto& row : device.get_info<what::matrix_combinations>()) {
      const char* type = name_of(row.atype);
      const matrix_type sums = row.atype == matrix_type::sint8  ? matrix_type::sint32
                               : row.atype == matrix_type::fp64 ? matrix_type::fp64
                                                                : matrix_type::fp32;
      if (type == nullptr || row.btype != row.atype || row.ctype != sums || row.dtype != sums)
        continue;
      // A size of 0 is any up to the maximum.
      const auto size = [](size_t fixed, size_t most) {
        return int64_t(fixed != 0 ? fixed : most);
      };
      const funlib_matrix_shape shape{type, size(row.msize, row.max_msize),
                                      size(row.nsize, row.max_nsize),
                                      size(row.ksize, row.max_ksize)};
      if (info.matrix_shape_count < FUNLIB_MAX_MATRIX_SHAPES)
        info.matrix_shapes[info.matrix_shape_count++] = shape;
    }
  } catch (const sycl::exception&) {
    // A device of an architecture that the runtime does not know has none to report.
  }
}

std::string matrix_types(const funlib_device_info& info) {
  std::set<std::string> names;
  for (int64_t i = 0; i < info.matrix_shape_count; ++i) names.insert(info.matrix_shapes[i].type);
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

// The target of a compute capability such as "9.0". From 9 on, only the name with an "a" lets kernels use
// all instructions of the architecture.
std::string ptx_target_of(const std::string& compute) {
  const int major = std::atoi(compute.c_str());
  std::string digits = compute;
  digits.erase(std::remove(digits.begin(), digits.end(), '.'), digits.end());
  return concat("sm_", digits, major >= 9 ? "a" : "");
}

bool shares_host_memory(const sycl::device& device) {
  if (environment("FUNLIB_HOST_ACCESS") == "staging") return false;
  if (!device.has(sycl::aspect::usm_shared_allocations)) return false;
  return device.is_cpu();
}

void warn_of_missing_adapter() {
  const std::string wish = environment("FUNLIB_CUDA_ADAPTER");
  if (wish.empty() || wish == "off" || !paths().cuda_adapter.empty()) return;
  log(FUNLIB_LOG_WARNING,
      concat(
          "FUNLIB_CUDA_ADAPTER is \"", wish,
          "\", which is no readable file called libur_adapter_cuda.so.0, so NVIDIA's GPUs are not "
          "found; name that file by its path, or unset the variable to use funlib's own"));
}

std::vector<std::unique_ptr<Device>> discover() {
  warn_of_missing_adapter();
  std::vector<std::unique_ptr<Device>> found;
  try {
    int64_t ordinal = -1;
    for (const auto& device : sycl::device::get_devices()) {
      ++ordinal;
      if (!device.has(sycl::aspect::usm_device_allocations)) continue;
      try {
        found.push_back(std::make_unique<Device>(int64_t(found.size()), ordinal, device));
      } catch (const sycl::exception& error) {
        log(FUNLIB_LOG_WARNING,
            concat("a device that can't be described is left out: ", error.what()));
      }
    }
  } catch (const sycl::exception& error) {
    const std::string selector = environment("ONEAPI_DEVICE_SELECTOR");
    fail(FUNLIB_ERROR_NO_DEVICE, "the SYCL runtime could not list its devices: ", error.what(),
         selector.empty() ? std::string()
                          : concat(" (ONEAPI_DEVICE_SELECTOR is \"", selector, "\")"));
  }
  return found;
}

}  // namespace

Device::Device(int64_t index, int64_t ordinal, const sycl::device& handle)
    : index_(index),
      ordinal_(ordinal),
      handle_(handle),
      name_(handle.get_info<sycl::info::device::name>()),
      vendor_(handle.get_info<sycl::info::device::vendor>()),
      driver_(handle.get_info<sycl::info::device::driver_version>()),
      pool_(*this),
      staging_(*this) {
  namespace what = sycl::info::device;
  info_.name = name_.c_str();
  info_.vendor = vendor_.c_str();
  info_.backend = backend_name(handle.get_backend());
  info_.driver = driver_.c_str();
  info_.type = type_name(handle.get_info<what::device_type>());
  list_matrix_shapes(handle, info_);
  matrix_types_ = matrix_types(info_);
  info_.matrix_types = matrix_types_.c_str();
  info_.compute_units = handle.get_info<what::max_compute_units>();
  info_.local_memory_bytes = int64_t(handle.get_info<what::local_mem_size>());
  info_.global_memory_bytes = int64_t(handle.get_info<what::global_mem_size>());
  info_.max_allocation_bytes = int64_t(handle.get_info<what::max_mem_alloc_size>());
  info_.max_work_group_size = int64_t(handle.get_info<what::max_work_group_size>());
  info_.vector_bytes = 4 * int64_t(handle.get_info<what::native_vector_width_float>());
  const auto sizes = handle.get_info<what::sub_group_sizes>();
  info_.sub_group_size_count = std::min<int64_t>(int64_t(sizes.size()), 16);
  std::copy_n(sizes.begin(), info_.sub_group_size_count, info_.sub_group_sizes);
  info_.has_fp64 = handle.has(sycl::aspect::fp64);
  info_.has_fp16 = handle.has(sycl::aspect::fp16);
  info_.host_accessible = shares_host_memory(handle);
  std::string kind = concat(info_.backend, " | ", vendor_, " | ", name_);
  if (handle.is_cpu())
    kind += concat(" | ", host_instruction_sets(), " | ", environment("CL_CONFIG_CPU_TARGET_ARCH"));
  if (handle.get_backend() == sycl::backend::ext_oneapi_cuda) {
    ptx_target_ = ptx_target_of(handle.get_info<what::version>());
    kind += concat(" | ", ptx_target_);
  }
  info_.architecture = ptx_target_.c_str();
  code_identity_ = concat(kind, " | ", driver_);
  identity_ = digest(concat(kind, " | ", info_.compute_units));
  info_.identity = identity_.c_str();
}

const sycl::context& Device::context() {
  std::call_once(context_once_, [this] { context_ = std::make_unique<sycl::context>(handle_); });
  return *context_;
}

const std::vector<std::unique_ptr<Device>>& devices() {
  enter_runtime();
  const DeferredLog deferred;
  // Never destroyed: the SYCL runtime may be gone before static objects are.
  static const auto* found = new std::vector<std::unique_ptr<Device>>(discover());
  return *found;
}

std::string describe_devices() {
  const auto& all = devices();
  const std::string selector = environment("ONEAPI_DEVICE_SELECTOR");
  if (all.empty() && !selector.empty())
    return concat("the SYCL runtime found no device, with ONEAPI_DEVICE_SELECTOR set to \"",
                  selector, "\"");
  if (all.empty())
    return concat("the SYCL runtime found no device at all",
                  paths().opencl_cpu.empty()
                      ? "; for the CPU device: pip install \"intel-opencl-rt==2026.2.*\""
                      : "");
  std::string text = "available:";
  for (const auto& device : all)
    text +=
        concat(device->index() == 0 ? " " : ", ", device->info().name, " (", device->info().type,
               ", ", device->info().backend, ", ", device->info().vendor, ")");
  return text;
}

}  // namespace funlib

extern "C" {

funlib_status funlib_device_count(int64_t* count) {
  return funlib::guarded([&] {
    auto& target = funlib::required(count, "count");
    target = int64_t(funlib::devices().size());
  });
}

funlib_status funlib_device_get_info(int64_t index, funlib_device_info* info) {
  return funlib::guarded([&] {
    auto& target = funlib::required(info, "info");
    const auto& all = funlib::devices();
    if (index < 0 || index >= int64_t(all.size()))
      funlib::invalid("device index ", index, " is out of range: there are ", all.size(),
                      " devices");
    target = all[size_t(index)]->info();
  });
}

}  // extern "C"
