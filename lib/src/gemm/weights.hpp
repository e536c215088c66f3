// Packed B, for weights that are used again and again.
#pragma once

#include "runtime/tensor.hpp"

struct funlib_weights : funlib::RefCounted {
  funlib::Ref<funlib::Tensor> tensor;  // the panels in one dimension, or op(B) itself, row-major
  int64_t k = 0, n = 0;
  int64_t panel_width = 0;  // 0: row-major
};

namespace funlib {
using Weights = ::funlib_weights;
}
