#include "runtime/error.hpp"

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <new>

namespace funlib {
namespace {

// A fixed buffer, so that reporting "out of memory" needs no memory.
thread_local char last_error[4096] = "";
thread_local std::string last_long_error;

thread_local DeferredLog* deferred_log = nullptr;
std::mutex log_mutex;
funlib_log_callback log_callback = nullptr;
void* log_user = nullptr;

std::atomic<bool> runtime_started{false};
std::atomic<bool> forked{false};

funlib_status store(funlib_status status, const char* text) noexcept {
  try {
    // The runtime's texts end in empty lines.
    const std::string whole = text;
    last_long_error = whole.substr(0, whole.find_last_not_of("\n") + 1);
  } catch (...) {
    last_long_error.clear();
    snprintf(last_error, sizeof last_error, "%s", text);
  }
  return status;
}

}  // namespace

funlib_status status_of(const sycl::exception& error) noexcept {
  // Of other commands than allocations, the runtime tells by its text only.
  const bool memory = error.code() == sycl::errc::memory_allocation ||
                      std::strstr(error.what(), "_OUT_OF_DEVICE_MEMORY") != nullptr ||
                      std::strstr(error.what(), "_OUT_OF_HOST_MEMORY") != nullptr;
  return memory ? FUNLIB_ERROR_OUT_OF_MEMORY : FUNLIB_ERROR_RUNTIME;
}

funlib_status record_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return store(error.status(), error.what());
  } catch (const sycl::exception& error) {
    return store(status_of(error), error.what());
  } catch (const std::bad_alloc&) {
    return store(FUNLIB_ERROR_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return store(FUNLIB_ERROR_RUNTIME, error.what());
  } catch (...) {
    return store(FUNLIB_ERROR_RUNTIME, "unknown exception");
  }
}

DeferredLog::DeferredLog() : outer_(deferred_log) { deferred_log = this; }

DeferredLog::~DeferredLog() {
  deferred_log = outer_;
  for (const auto& [level, message] : messages_) log(level, message);
}

void log(funlib_log_level level, const std::string& message) {
  if (deferred_log != nullptr) {
    deferred_log->messages_.emplace_back(level, message);
    return;
  }
  funlib_log_callback callback;
  void* user;
  {
    std::lock_guard<std::mutex> lock(log_mutex);
    callback = log_callback;
    user = log_user;
  }
  if (callback != nullptr) callback(level, message.c_str(), user);
}

bool forked_after_start() noexcept { return forked.load(std::memory_order_relaxed); }

void enter_runtime() {
  static const int handler = pthread_atfork(nullptr, nullptr, [] {
    if (runtime_started.load(std::memory_order_relaxed)) forked.store(true);
  });
  (void)handler;
  if (forked_after_start())
    fail(FUNLIB_ERROR_FORKED,
         "this process was forked after funlib had started its devices in the parent, and a SYCL "
         "runtime does not survive fork; start workers with the \"spawn\" method "
         "(multiprocessing.get_context(\"spawn\")), or fork before the first use of funlib");
  runtime_started.store(true, std::memory_order_relaxed);
}

}  // namespace funlib

extern "C" {

const char* funlib_last_error(void) {
  using namespace funlib;
  return last_long_error.empty() ? last_error : last_long_error.c_str();
}

const char* funlib_version(void) { return FUNLIB_VERSION; }

funlib_status funlib_log_set_callback(funlib_log_callback callback, void* user) {
  std::lock_guard<std::mutex> lock(funlib::log_mutex);
  funlib::log_callback = callback;
  funlib::log_user = user;
  return FUNLIB_SUCCESS;
}

}  // extern "C"
