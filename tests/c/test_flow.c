/* The whole flow from C: a queue, tensors, copies, every kernel of the registry, events, times. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "funlib/funlib.h"

enum { M = 37, K = 29, N = 41 };

static funlib_tensor* from_host(funlib_queue* queue, int64_t rows, int64_t columns,
                                const float* host) {
  const int64_t shape[] = {rows, columns};
  funlib_tensor* tensor = NULL;
  funlib_event* event = NULL;
  CHECK_OK(funlib_tensor_create(queue, FUNLIB_FLOAT32, 2, shape, &tensor));
  CHECK_OK(
      funlib_tensor_copy_from_host(tensor, host, rows * columns * (int64_t)sizeof(float), &event));
  CHECK_OK(funlib_event_wait(event));
  funlib_event_release(event);
  return tensor;
}

static void check_product(const float* a, const float* b, const float* c, double alpha, double beta,
                          float before) {
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      double sum = 0, magnitude = 0;
      for (int k = 0; k < K; ++k) {
        sum += (double)a[i * K + k] * b[k * N + j];
        magnitude += fabs((double)a[i * K + k] * b[k * N + j]);
      }
      const double expected = alpha * sum + beta * before;
      /* The rounding error of a dot product of K terms, a scaling and an addition. */
      const double bound = (K + 3) * 1.2e-7 * (fabs(alpha) * magnitude + fabs(beta * before));
      CHECK(fabs(c[i * N + j] - expected) <= bound);
    }
}

int main(void) {
  int64_t devices = 0, kernels = 0, used = 0;
  CHECK_OK(funlib_device_count(&devices));
  if (devices == 0) {
    printf("no SYCL device: skipped\n");
    return 77;
  }
  funlib_queue* queue = NULL;
  const funlib_queue_options any = {"any", NULL, NULL, 1, NULL};
  CHECK_OK(funlib_queue_register("flow", &any, &queue));

  float a[M * K], b[K * N], c[M * N];
  srand(7);
  for (int i = 0; i < M * K; ++i) a[i] = (float)rand() / (float)RAND_MAX - 0.5f;
  for (int i = 0; i < K * N; ++i) b[i] = (float)rand() / (float)RAND_MAX - 0.5f;
  funlib_tensor* A = from_host(queue, M, K, a);
  funlib_tensor* B = from_host(queue, K, N, b);

  CHECK_OK(funlib_gemm_kernel_count(&kernels));
  CHECK(kernels >= 4);
  for (int64_t i = 0; i < kernels; ++i) {
    funlib_kernel_info kernel;
    funlib_gemm_options options;
    CHECK_OK(funlib_gemm_kernel_get_info(i, &kernel));
    CHECK_OK(funlib_gemm_options_init(&options));
    options.kernel = kernel.name;
    funlib_tensor* C = NULL;
    funlib_event* event = NULL;
    funlib_gemm_choice chosen;
    if (funlib_gemm_explain(A, B, &options, &chosen) == FUNLIB_ERROR_UNSUPPORTED) {
      /* Not for this shape or device; asking for it all the same is no more than an error. */
      CHECK_STATUS(FUNLIB_ERROR_UNSUPPORTED, funlib_gemm(A, B, &options, &C, &event));
      CHECK(C == NULL && event == NULL);
      continue;
    }
    ++used;
    CHECK_OK(funlib_gemm(A, B, &options, &C, &event));
    CHECK_OK(funlib_event_wait(event));
    int32_t complete = 0;
    CHECK_OK(funlib_event_is_complete(event, &complete));
    CHECK(complete == 1);
    const char* label = NULL;
    CHECK_OK(funlib_event_label(event, &label));
    CHECK(label != NULL && strncmp(label, kernel.name, strlen(kernel.name)) == 0);
    funlib_event_times times;
    CHECK_OK(funlib_event_get_times(event, &times));
    CHECK(times.kernel_ns > 0 && times.end_ns >= times.start_ns);
    funlib_event_release(event);
    CHECK_OK(funlib_tensor_copy_to_host(C, c, (int64_t)sizeof c, &event));
    CHECK_OK(funlib_event_wait(event));
    funlib_event_release(event);
    check_product(a, b, c, 1, 0, 0);

    /* In place, scaled. */
    const float before = 2.5f;
    CHECK_OK(funlib_tensor_fill(C, &before, NULL));
    options.alpha = -0.5;
    options.beta = 3;
    funlib_tensor* same = C;
    CHECK_OK(funlib_gemm(A, B, &options, &same, NULL));
    CHECK(same == C);
    funlib_mapping mapping;
    CHECK_OK(funlib_tensor_map(C, FUNLIB_MAP_READ, &mapping));
    CHECK(mapping.strides[0] == N && mapping.strides[1] == 1);
    check_product(a, b, (const float*)mapping.data, -0.5, 3, before);
    CHECK_STATUS(FUNLIB_ERROR_BUSY, funlib_tensor_fill(C, &before, NULL));
    CHECK_OK(funlib_tensor_unmap(C, mapping.data));
    CHECK_OK(funlib_tensor_fill(C, &before, NULL));
    funlib_tensor_release(C);
  }
  CHECK(used >= 4);
  CHECK_OK(funlib_queue_wait(queue));

  funlib_tensor_release(A);
  funlib_tensor_release(B);
  funlib_memory_info memory;
  CHECK_OK(funlib_memory_trim(queue, NULL));
  CHECK_OK(funlib_memory_get_info(queue, &memory));
  CHECK(memory.live_bytes == 0 && memory.cached_bytes == 0);
  CHECK_OK(funlib_queue_unregister("flow"));
  funlib_queue_release(queue);
  if (checks_failed == 0) printf("ok: %d kernels\n", (int)used);
  return checks_failed != 0;
}
