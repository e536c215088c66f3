// The compiler program: reads one request from standard input, writes one answer to standard output.
// Fields of a request: device (index), name, driver (as a check that both processes count alike),
// state ("executable" or "object"), ptx_target ("sm_90a", empty where the device takes no PTX),
// source_name, source, any number of option and include:NAME.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <sycl/sycl.hpp>
#include <vector>

#include "program/message.hpp"

namespace {

namespace experimental = sycl::ext::oneapi::experimental;

bool read_all(int descriptor, std::string& into) {
  char buffer[65536];
  ssize_t count;
  while ((count = read(descriptor, buffer, sizeof buffer)) > 0) into.append(buffer, size_t(count));
  return count == 0;
}

bool write_all(int descriptor, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t count = write(descriptor, bytes.data() + at, bytes.size() - at);
    if (count <= 0) return false;
    at += size_t(count);
  }
  return true;
}

sycl::device find_device(const funlib::Message& request) {
  int64_t index = std::stoll(request.get("device"));
  for (const auto& device : sycl::device::get_devices()) {
    if (index-- != 0) continue;
    if (device.get_info<sycl::info::device::name>() == request.get("name") &&
        device.get_info<sycl::info::device::driver_version>() == request.get("driver"))
      return device;
    break;
  }
  throw std::runtime_error("the compiler program does not see device " + request.get("device") +
                           ", " + request.get("name") + " (driver " + request.get("driver") + ")");
}

// The compiler reads the target from these alone, once.
void set_ptx_target(const std::string& target) {
  setenv("SYCL_JIT_AMDGCN_PTX_TARGET_CPU", target.c_str(), 1);
  setenv("SYCL_JIT_AMDGCN_PTX_TARGET_FEATURES", ("+" + target + ",+ptx83").c_str(), 1);
}

// Values of the image's properties: the length in bits, 64 bits wide, and the bytes, six bits a
// character, lowest first.
std::string encoded(const std::string& text) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const uint64_t bits = text.size() * 8;
  const std::string bytes = std::string(reinterpret_cast<const char*>(&bits), sizeof bits) + text;
  std::string characters;
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 6) {
    const auto at = [&](size_t i) { return i < bytes.size() ? unsigned(uint8_t(bytes[i])) : 0u; };
    characters += digits[(at(bit / 8) | at(bit / 8 + 1) << 8) >> bit % 8 & 63];
  }
  return characters;
}

// The runtime writes images of PTX with a target that it does not know again when it reads them. The
// shorter name leaves room for a property that nobody asks for, so that all offsets stay true.
void mend_target(std::string& image) {
  const std::string written = "target=2|" + encoded("llvm_nvptx64-unknown-unknown") + "\n";
  const std::string readable = "target=2|" + encoded("nvptx64-nvidia-cuda") + "\nfunlib=1|00\n";
  static_assert(sizeof("llvm_nvptx64-unknown-unknown") - sizeof("nvptx64-nvidia-cuda") == 9);
  const size_t at = image.find(written);
  if (at != std::string::npos) image.replace(at, written.size(), readable);
}

// Functions that are only declared: NVIDIA's mathematical ones, where libdevice was not there.
void require_complete(const std::string& image, std::string& log) {
  const size_t at = image.find(" __nv_");
  if (image.find(".extern .func") == std::string::npos || at == std::string::npos) return;
  log.clear();  // which is of no help with it
  throw std::runtime_error(
      "it needs a function of NVIDIA's libdevice (" +
      image.substr(at + 1, image.find_first_of("(,; \n", at + 1) - at - 1) +
      "), which was not found. Type\n    pip install \"funlib[cuda]\"\nor name a CUDA toolkit in "
      "CUDA_HOME");
}

std::string compile(const funlib::Message& request, std::string& log) {
  if (!request.get("ptx_target").empty()) set_ptx_target(request.get("ptx_target"));
  const sycl::device device = find_device(request);
  const sycl::context context(device);
  experimental::include_files includes;
  std::vector<std::string> options;
  const std::string prefix = "include:";
  for (const auto& [name, value] : request.fields()) {
    if (name == "option") options.push_back(value);
    if (name.rfind(prefix, 0) == 0) includes.add(name.substr(prefix.size()), value);
  }
  // An included file keeps its name in the compiler's messages.
  includes.add(request.get("source_name"), request.get("source"));
  const std::string source = "#include \"" + request.get("source_name") + "\"\n";
  auto bundle = experimental::create_kernel_bundle_from_source(
      context, experimental::source_language::sycl, source, experimental::properties{includes});
  const experimental::properties build{experimental::build_options{options},
                                       experimental::save_log{&log}};
  std::vector<char> image;
  if (request.get("state") == "object")
    image = experimental::compile(bundle, build).ext_oneapi_get_content();
  else
    image = experimental::build(bundle, build).ext_oneapi_get_content();
  std::string bytes(image.begin(), image.end());
  if (!request.get("ptx_target").empty()) {
    require_complete(bytes, log);
    mend_target(bytes);
  }
  return bytes;
}

}  // namespace

int main() {
  // Whatever the runtime prints goes to standard error, so that the answer stays clean.
  const int answer_descriptor = dup(1);
  dup2(2, 1);
  std::string bytes, log;
  if (!read_all(0, bytes)) return 2;
  const auto request = funlib::Message::decode(bytes);
  if (!request) {
    static const char text[] = "funlib-compiler is started by funlib, not by hand\n";
    return write_all(2, text) ? 2 : 3;
  }
  funlib::Message answer;
  try {
    std::string image = compile(*request, log);
    answer.add("status", "ok");
    answer.add("image", std::move(image));
    answer.add("log", log);
  } catch (const std::exception& error) {
    answer.add("status", "error");
    answer.add("log", error.what() + (log.empty() ? "" : "\n" + log));
  }
  // No tear-down of the runtime: it takes time, and may crash after the work is done.
  _exit(write_all(answer_descriptor, answer.encode()) ? 0 : 3);
}
