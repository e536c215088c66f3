#include "runtime/queue.hpp"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <map>
#include <optional>

namespace funlib {
namespace {

std::atomic<uint64_t> next_queue_id{1};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

struct Selection {
  std::string device, vendor, backend;
  bool profiling = true;
  std::optional<int64_t> index;

  explicit Selection(const funlib_queue_options* options) {
    if (options == nullptr) return;
    const auto text = [](const char* value) {
      const std::string given = value != nullptr ? value : "";
      return lower(given) == "any" ? std::string() : given;
    };
    device = lower(text(options->device));
    vendor = text(options->vendor);
    backend = lower(text(options->backend));
    profiling = options->profiling != 0;
    if (options->index != nullptr) index = *options->index;
    const auto one_of = [](const char* what, const std::string& value,
                           std::initializer_list<const char*> legal) {
      if (value.empty() || std::find(legal.begin(), legal.end(), value) != legal.end()) return;
      std::string names;
      for (const char* name : legal) names += concat(names.empty() ? "" : ", ", name);
      invalid(what, " \"", value, "\" is none of ", names, ", any");
    };
    one_of("device", device, {"gpu", "cpu", "accelerator"});
    one_of("backend", backend, {"opencl", "level_zero", "cuda", "hip"});
  }

  bool matches(const Device& candidate) const {
    const auto& info = candidate.info();
    return (!index || *index == candidate.index()) && (device.empty() || device == info.type) &&
           (backend.empty() || backend == info.backend) &&
           (vendor.empty() || lower(info.vendor).find(lower(vendor)) != std::string::npos);
  }

  std::string text() const {
    std::string words;
    const auto add = [&](const char* key, const std::string& value) {
      if (!value.empty()) words += concat(words.empty() ? "" : ", ", key, "=\"", value, "\"");
    };
    add("device", device);
    add("vendor", vendor);
    add("backend", backend);
    if (index) words += concat(words.empty() ? "" : ", ", "index ", *index);
    return words.empty() ? "any device" : words;
  }
};

// GPUs before CPUs before accelerators; for one type the vendor's own interface before OpenCL, by
// which the same GPU is often listed a second time.
int preference(const funlib_device_info& info) {
  const std::string type = info.type;
  const int by_type = type == "gpu" ? 0 : type == "cpu" ? 2 : 4;
  return by_type + (std::string(info.backend) == "opencl" ? 1 : 0);
}

Device& select_device(const Selection& selection) {
  Device* best = nullptr;
  for (const auto& device : devices())
    if (selection.matches(*device) &&
        (best == nullptr || preference(device->info()) < preference(best->info())))
      best = device.get();
  if (best == nullptr)
    fail(FUNLIB_ERROR_NO_DEVICE, "no device fits ", selection.text(), "; ", describe_devices());
  return *best;
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, Ref<Queue>> queues;
};

// Never destroyed, like the devices.
Registry& registry() {
  static Registry* all = new Registry;
  return *all;
}

constexpr const char* default_name = "default";

[[noreturn]] void no_such_queue(const Registry& all, const std::string& name) {
  std::string names;
  for (const auto& entry : all.queues) names += concat(names.empty() ? "" : ", ", entry.first);
  fail(FUNLIB_ERROR_NOT_FOUND, "no queue is registered as \"", name, "\"; ",
       names.empty() ? "none is registered yet" : "registered: " + names);
}

}  // namespace

void AsyncErrors::add(sycl::exception_list list) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& pointer : list) {
    try {
      std::rethrow_exception(pointer);
    } catch (const std::exception& error) {
      text_ += concat(text_.empty() ? "" : "; ", error.what());
    } catch (...) {
      text_ += concat(text_.empty() ? "" : "; ", "unknown exception");
    }
  }
}

std::string AsyncErrors::take() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(text_, std::string());
}

std::string Label::text() const {
  std::string words = operation;
  for (int64_t i = 0; i < extent_count; ++i) words += concat(i == 0 ? " " : "x", extents[i]);
  return concat(words, " ", dtype);
}

Ref<Queue> get_queue(const char* name) {
  const std::string wanted = name != nullptr ? name : default_name;
  auto& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.queues.find(wanted);
  if (found != all.queues.end()) return found->second;
  if (wanted != default_name) no_such_queue(all, wanted);
  auto queue = Ref<Queue>::make(wanted, select_device(Selection(nullptr)), true);
  all.queues.emplace(wanted, queue);
  return queue;
}

}  // namespace funlib

using namespace funlib;

funlib_queue::funlib_queue(std::string name, Device& device, bool profiling)
    : name(std::move(name)),
      device(device),
      profiling(profiling),
      id(next_queue_id.fetch_add(1)),
      errors(std::make_shared<AsyncErrors>()),
      handle(
          device.context(), device.handle(),
          [errors = errors](sycl::exception_list list) { errors->add(std::move(list)); },
          profiling ? sycl::property_list{sycl::property::queue::in_order(),
                                          sycl::property::queue::enable_profiling()}
                    : sycl::property_list{sycl::property::queue::in_order()}) {}

void funlib_queue::rethrow_async_errors(const std::string& what) {
  const std::string text = errors->take();
  if (!text.empty()) fail(FUNLIB_ERROR_RUNTIME, what, " failed: ", text);
}

void funlib_queue::wait() {
  handle.wait_and_throw();
  rethrow_async_errors(concat("an operation in queue \"", name, "\""));
}

void funlib_event::wait() {
  try {
    last.wait_and_throw();
  } catch (const sycl::exception& error) {
    fail(FUNLIB_ERROR_RUNTIME, label_text(), " failed: ", error.what());
  }
  queue->rethrow_async_errors(label_text());
}

bool funlib_event::is_complete() {
  return last.get_info<sycl::info::event::command_execution_status>() ==
         sycl::info::event_command_status::complete;
}

funlib_event_times funlib_event::times() {
  namespace when = sycl::info::event_profiling;
  if (!queue->profiling)
    fail(FUNLIB_ERROR_UNSUPPORTED, "queue \"", queue->name,
         "\" was registered without profiling, so its events carry no times");
  wait();
  funlib_event_times times{};
  if (!submitted) return times;
  const auto add = [&](const sycl::event& event, bool first) {
    const uint64_t start = event.get_profiling_info<when::command_start>();
    const uint64_t end = event.get_profiling_info<when::command_end>();
    if (first) {
      times.submit_ns = event.get_profiling_info<when::command_submit>();
      times.start_ns = start;
    }
    times.end_ns = end;
    times.kernel_ns += end - start;
  };
  for (const auto& event : earlier) add(event, &event == earlier.data());
  add(last, earlier.empty());
  return times;
}

const char* funlib_event::label_text() {
  std::call_once(text_once_, [this] { text_ = label.text(); });
  return text_.c_str();
}

extern "C" {

funlib_status funlib_queue_register(const char* name, const funlib_queue_options* options,
                                    funlib_queue** queue) {
  return guarded([&] {
    const std::string key = &required(name, "name");
    auto& target = required(queue, "queue");
    if (key.empty()) invalid("name is empty");
    const Selection selection(options);
    Device& device = select_device(selection);
    auto& all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    if (all.queues.count(key) != 0)
      invalid("a queue is already registered as \"", key, "\"; unregister it first");
    auto made = Ref<Queue>::make(key, device, selection.profiling);
    all.queues.emplace(key, made);
    target = made.detach();
  });
}

funlib_status funlib_queue_unregister(const char* name) {
  return guarded([&] {
    const std::string key = &required(name, "name");
    enter_runtime();
    auto& all = registry();
    Ref<Queue> queue;  // outlives the lock: dropping the last reference waits for the queue's work
    std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.queues.find(key);
    if (found == all.queues.end()) no_such_queue(all, key);
    queue = found->second;
    all.queues.erase(found);
  });
}

funlib_status funlib_queue_get(const char* name, funlib_queue** queue) {
  return guarded([&] {
    auto& target = required(queue, "queue");
    enter_runtime();
    target = get_queue(name).detach();
  });
}

funlib_status funlib_queue_retain(funlib_queue* queue) {
  return guarded([&] { required(queue, "queue").retain(); });
}

void funlib_queue_release(funlib_queue* queue) {
  if (queue != nullptr && !forked_after_start()) queue->release();
}

funlib_status funlib_queue_wait(funlib_queue* queue) {
  return guarded([&] {
    auto& target = required(queue, "queue");
    enter_runtime();
    target.wait();
  });
}

funlib_status funlib_queue_get_info(funlib_queue* queue, funlib_queue_info* info) {
  return guarded([&] {
    const auto& source = required(queue, "queue");
    required(info, "info") = {source.name.c_str(), source.device.index(), source.profiling};
  });
}

funlib_status funlib_memory_get_info(funlib_queue* queue, funlib_memory_info* info) {
  return guarded([&] {
    auto& source = required(queue, "queue");
    enter_runtime();
    required(info, "info") = source.device.pool().info();
  });
}

funlib_status funlib_memory_trim(funlib_queue* queue, int64_t* freed_bytes) {
  return guarded([&] {
    auto& source = required(queue, "queue");
    enter_runtime();
    const size_t freed = source.device.pool().trim();
    source.device.staging().trim();
    if (freed_bytes != nullptr) *freed_bytes = int64_t(freed);
  });
}

funlib_status funlib_event_retain(funlib_event* event) {
  return guarded([&] { required(event, "event").retain(); });
}

void funlib_event_release(funlib_event* event) {
  if (event != nullptr && !forked_after_start()) event->release();
}

funlib_status funlib_event_wait(funlib_event* event) {
  return guarded([&] {
    auto& target = required(event, "event");
    enter_runtime();
    target.wait();
  });
}

funlib_status funlib_event_is_complete(funlib_event* event, int32_t* complete) {
  return guarded([&] {
    auto& source = required(event, "event");
    auto& target = required(complete, "complete");
    enter_runtime();
    target = source.is_complete() ? 1 : 0;
  });
}

funlib_status funlib_event_label(funlib_event* event, const char** label) {
  return guarded([&] {
    auto& source = required(event, "event");
    required(label, "label") = source.label_text();
  });
}

funlib_status funlib_event_get_times(funlib_event* event, funlib_event_times* times) {
  return guarded([&] {
    auto& source = required(event, "event");
    auto& target = required(times, "times");
    enter_runtime();
    target = source.times();
  });
}

}  // extern "C"
