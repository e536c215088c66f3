// Runs the compiler program: the run-time compiler may crash, hang or take a quarter of a gigabyte,
// and none of that belongs in the user's process.
#pragma once

#include <string>

#include "program/message.hpp"

namespace funlib {

// The bytes of a SYCLBIN image. `what` names the kernel for messages. Throws FUNLIB_ERROR_COMPILE
// with the compiler's log.
std::string run_compiler(const Message& request, const std::string& what);

}  // namespace funlib
