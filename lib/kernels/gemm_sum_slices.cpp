// gemm_sum_slices: adds up the partial products that slices of K left in a workspace.
//
//     C(i, j) = alpha * (P(0, i, j) + P(1, i, j) + ... ) + beta * C(i, j)       P: slices x M x N
//
// One work-item an output. The order of the sum is fixed, so the result does not depend on which
// slice was done first.
#define FUNLIB_TRANSPOSE_A 0
#define FUNLIB_TRANSPOSE_B 0
#include "gemm_common.hpp"

FUNLIB_KERNEL(1, 256)
void gemm_sum_slices(funlib::int64 M, funlib::int64 N, funlib::int64 slices, funlib::T alpha,
                     const funlib::T* P, funlib::T beta, funlib::T* C, funlib::int64 ldc) {
  using namespace funlib;
  const int64 outputs = M * N, n = global_id<1>(0);
  if (n >= outputs) return;
  Acc sum = Acc(P[n]);
  for (int64 slice = 1; slice < slices; ++slice) sum += Acc(P[slice * outputs + n]);
  store_c(C, ldc, n / N, n % N, sum, alpha, beta);
}
