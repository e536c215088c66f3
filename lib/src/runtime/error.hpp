// Errors inside the library are exceptions of one type; the C interface turns them into a status and
// a text per thread.
#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <sycl/exception.hpp>
#include <utility>
#include <vector>

#include "funlib/funlib.h"

namespace funlib {

class Error : public std::exception {
 public:
  Error(funlib_status status, std::string text) : status_(status), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  funlib_status status() const noexcept { return status_; }

 private:
  funlib_status status_;
  std::string text_;
};

// Concatenates anything that can be streamed.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

template <typename... Parts>
[[noreturn]] void fail(funlib_status status, const Parts&... parts) {
  throw Error(status, concat(parts...));
}

template <typename... Parts>
[[noreturn]] void invalid(const Parts&... parts) {
  fail(FUNLIB_ERROR_INVALID_ARGUMENT, parts...);
}

// FUNLIB_ERROR_OUT_OF_MEMORY or FUNLIB_ERROR_RUNTIME.
funlib_status status_of(const sycl::exception& error) noexcept;

// Turns the exception in flight into a status and this thread's error text. Call from a handler.
funlib_status record_current_exception() noexcept;

// Runs a body of the C interface.
template <typename Body>
funlib_status guarded(Body&& body) noexcept {
  try {
    body();
    return FUNLIB_SUCCESS;
  } catch (...) {
    return record_current_exception();
  }
}

template <typename T>
T& required(T* pointer, const char* argument) {
  if (pointer == nullptr) invalid(argument, " is NULL");
  return *pointer;
}

// Messages for the log callback, which may call the library: never log while holding a lock.
void log(funlib_log_level level, const std::string& message);

// Keeps this thread's messages back while it lives.
class DeferredLog {
 public:
  DeferredLog();
  DeferredLog(const DeferredLog&) = delete;
  ~DeferredLog();

 private:
  std::vector<std::pair<funlib_log_level, std::string>> messages_;
  DeferredLog* const outer_;
  friend void log(funlib_log_level level, const std::string& message);
};

// True when the process was forked after the SYCL runtime had started in its parent.
bool forked_after_start() noexcept;
// Remembers that the runtime has started; throws FUNLIB_ERROR_FORKED in a forked child.
void enter_runtime();

}  // namespace funlib
