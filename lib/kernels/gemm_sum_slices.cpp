// gemm_sum_slices: adds up the partial products that slices of K left in a workspace.
//
//     C(b, i, j) = act(alpha * (P(b, 0, i, j) + P(b, 1, i, j) + ... ) + beta * C(b, i, j) + bias(j))
//
// P: batch x slices x M x N, in the type of the sums. One work-item an output. The order of the sum is
// fixed, so the result does not depend on which slice was done first.
#define FUNLIB_TRANSPOSE_A 0
#define FUNLIB_TRANSPOSE_B 0
#include "gemm_common.hpp"

FUNLIB_KERNEL(1, 256)
void gemm_sum_slices(FUNLIB_GEMM_SHAPE, funlib::Scalar alpha, const funlib::Acc* P,
                     funlib::Scalar beta, funlib::Out* C, const funlib::Out* bias) {
  using namespace funlib;
  FUNLIB_GEMM_NAMES
  const int64 slices = shape.extra[0];
  const int64 outputs = M * N, n = global_id<1>(0), batch = n / outputs, place = n % outputs;
  if (batch >= batches.count) return;
  const T *a = nullptr, *b = nullptr;
  output_tile(1, 1, 1, 1, batches, a, b, C, batch);
  const Acc* const partial = P + batch * slices * outputs + place;
  Acc sum = partial[0];
  for (int64 slice = 1; slice < slices; ++slice) sum += partial[slice * outputs];
  Output(C, ldc, alpha, beta, bias).store(place / N, place % N, sum);
}
