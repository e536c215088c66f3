// Which kernel does a product, with which parameters: named by the caller, tuned, or by a model.
#pragma once

#include <memory>
#include <string>
#include <sycl/sycl.hpp>

#include "gemm/registry.hpp"
#include "program/program.hpp"

namespace funlib {

struct GemmChoice {
  const GemmKernel* kernel;
  ParameterValues values;
  const char* source;  // "forced", "tuned" or "model"
  std::string reason;
  GemmPlan plan;
};

// The caller's wish; an empty name leaves the choice to the library.
struct GemmWish {
  std::string kernel, parameters;
};

// Throws FUNLIB_ERROR_NOT_FOUND, FUNLIB_ERROR_INVALID_ARGUMENT or FUNLIB_ERROR_UNSUPPORTED if the wish
// names no kernel, has parameters that are not legal, or can't do the problem.
std::shared_ptr<const GemmChoice> choose_gemm(const GemmProblem& problem, const GemmWish& wish,
                                              const Device& device);

// The kernel of a choice, compiled if it has not been.
sycl::kernel gemm_code(Device& device, const GemmChoice& choice, const GemmProblem& problem);
KernelSpec gemm_spec(const GemmKernel& kernel, const ParameterValues& values,
                     const GemmProblem& problem);

}  // namespace funlib
