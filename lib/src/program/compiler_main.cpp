// The compiler program: reads one request from standard input, writes one answer to standard output.
// Fields of a request: device (index), name, driver (as a check that both processes count alike),
// state ("executable" or "object"), source_name, source, any number of option and include:NAME.
#include <unistd.h>

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
    if (!device.has(sycl::aspect::usm_device_allocations)) continue;
    if (index-- != 0) continue;
    if (device.get_info<sycl::info::device::name>() == request.get("name") &&
        device.get_info<sycl::info::device::driver_version>() == request.get("driver"))
      return device;
    break;
  }
  throw std::runtime_error("the compiler program does not see device " + request.get("device") +
                           ", " + request.get("name") + " (driver " + request.get("driver") + ")");
}

std::string compile(const funlib::Message& request, std::string& log) {
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
  return {image.begin(), image.end()};
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
