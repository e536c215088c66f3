// The flow from C++: funlib.hpp.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "funlib/funlib.hpp"

namespace {

template <typename T>
void multiply_all_ways(const funlib::Queue& queue) {
  const std::int64_t m = 5, k = 7, n = 3;
  std::vector<T> a(std::size_t(m * k)), b(std::size_t(k * n));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = T(int(i % 5) - 2);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = T(int(i % 7) - 3);

  funlib::Tensor<T> A({m, k}, queue), B({k, n}, queue);
  A.copy_from(a).wait();
  B.copy_from(b).wait();
  // Small whole numbers: every order of summation is exact.
  const auto check_product = [&](const std::vector<T>& c, T scale) {
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        T sum = 0;
        for (std::int64_t l = 0; l < k; ++l)
          sum += a[std::size_t(i * k + l)] * b[std::size_t(l * n + j)];
        CHECK(c[std::size_t(i * n + j)] == scale * sum);
      }
  };
  check_product(funlib::gemm(A, B).to_host(), 1);
  check_product(funlib::gemm_tiled(A, B).to_host(), 1);
  check_product(funlib::gemm_blocked2x2(A, B).to_host(), 1);
  funlib::Tensor<T> C = funlib::gemm_tiled_blocked2x2(A, B);
  check_product(C.to_host(), 1);
  CHECK((C.shape() == std::vector<std::int64_t>{m, n}));

  // C holds A @ B; add twice that through transposed views.
  funlib::Tensor<T> At = A.transposed(), Bt = B.transposed();
  funlib::GemmOptions options;
  options.alpha = 2;
  options.beta = 1;
  options.transpose_a = options.transpose_b = true;
  funlib::gemm_into(C, At, Bt, options).wait();
  check_product(C.to_host(), 3);
  CHECK(C.event().times().end_ns > 0);
}

}  // namespace

int main() {
  std::int64_t devices = 0;
  funlib::check(funlib_device_count(&devices));
  if (devices == 0) {
    std::printf("no SYCL device: skipped\n");
    return 77;
  }
  funlib::Queue queue = funlib::register_queue("work");
  multiply_all_ways<float>(queue);
  multiply_all_ways<std::int32_t>(queue);
  if (queue.device().has_fp64) multiply_all_ways<double>(queue);

  bool thrown = false;
  try {
    funlib::get_queue("nobody's");
  } catch (const funlib::Exception& error) {
    thrown = error.status() == FUNLIB_ERROR_NOT_FOUND &&
             std::string(error.what()).find("work") != std::string::npos;
  }
  CHECK(thrown);
  queue.wait();
  funlib::unregister_queue("work");
  if (checks_failed == 0) std::printf("ok\n");
  return checks_failed != 0;
}
