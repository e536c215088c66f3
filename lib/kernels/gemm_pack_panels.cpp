// gemm_pack_panels: stores op(B) as gemm_vector reads it, for weights that are used again and again.
//
//     panel j / NR:  element (k, c), column j + c of op(B), at j * K + k * NR + c;  zeros outside
//
// One work-item copies FUNLIB_RUN rows of one panel. B is read as it is stored: row by row, or, with
// FUNLIB_TRANSPOSE_B, along its columns.
#include "funlib_device.hpp"
#include "funlib_types.hpp"

FUNLIB_KERNEL(1, 1)
void gemm_pack_panels(funlib::int64 K, funlib::int64 N, const FUNLIB_T* B, funlib::int64 ldb,
                      FUNLIB_T* panels) {
  using namespace funlib;
  constexpr int NR = FUNLIB_NR, run = FUNLIB_RUN;
  const int64 runs = (K + run - 1) / run, n = global_id<1>(0);
  const int64 j = n / runs * NR, k0 = n % runs * run;
  FUNLIB_T* const to = panels + j * K + k0 * NR;
  const int depth = int(min(K - k0, run)), columns = int(min(N - j, NR));
#if FUNLIB_TRANSPOSE_B
  for (int c = 0; c < NR; ++c)
    for (int k = 0; k < depth; ++k)
      to[k * NR + c] = c < columns ? B[(j + c) * ldb + k0 + k] : FUNLIB_T(0);
#else
  for (int k = 0; k < depth; ++k)
    for (int c = 0; c < NR; ++c)
      to[k * NR + c] = c < columns ? B[(k0 + k) * ldb + j + c] : FUNLIB_T(0);
#endif
}
