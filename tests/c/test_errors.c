/* What a caller can do wrong from C gives a status and a text, never a crash. */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "funlib/funlib.h"

static void nothing(funlib_log_level level, const char* message, void* user) {
  (void)level;
  (void)message;
  (void)user;
}

#define INVALID(call)                                  \
  do {                                                 \
    CHECK_STATUS(FUNLIB_ERROR_INVALID_ARGUMENT, call); \
    CHECK(strlen(funlib_last_error()) > 0);            \
  } while (0)

int main(void) {
  CHECK(strlen(funlib_version()) > 0);
  CHECK_OK(funlib_log_set_callback(nothing, NULL));
  CHECK_OK(funlib_log_set_callback(NULL, NULL));
  int64_t devices = 0;
  CHECK_OK(funlib_device_count(&devices));

  /* NULL, everywhere. */
  INVALID(funlib_runtime_get_info(NULL));
  INVALID(funlib_cache_get_info(NULL));
  INVALID(funlib_dtype_count(NULL));
  INVALID(funlib_dtype_get_info(FUNLIB_FLOAT32, NULL));
  INVALID(funlib_device_count(NULL));
  INVALID(funlib_device_get_info(0, NULL));
  INVALID(funlib_queue_register(NULL, NULL, NULL));
  INVALID(funlib_queue_register("x", NULL, NULL));
  INVALID(funlib_queue_unregister(NULL));
  INVALID(funlib_queue_get("x", NULL));
  INVALID(funlib_queue_retain(NULL));
  INVALID(funlib_queue_wait(NULL));
  INVALID(funlib_queue_get_info(NULL, NULL));
  INVALID(funlib_memory_get_info(NULL, NULL));
  INVALID(funlib_memory_trim(NULL, NULL));
  INVALID(funlib_event_retain(NULL));
  INVALID(funlib_event_wait(NULL));
  INVALID(funlib_event_is_complete(NULL, NULL));
  INVALID(funlib_event_label(NULL, NULL));
  INVALID(funlib_event_get_times(NULL, NULL));
  INVALID(funlib_tensor_create(NULL, FUNLIB_FLOAT32, 0, NULL, NULL));
  INVALID(funlib_tensor_view(NULL, 0, NULL, NULL, 0, NULL));
  INVALID(funlib_tensor_reshape(NULL, 0, NULL, NULL));
  INVALID(funlib_tensor_transpose(NULL, NULL, NULL));
  INVALID(funlib_tensor_retain(NULL));
  INVALID(funlib_tensor_get_info(NULL, NULL));
  INVALID(funlib_tensor_get_queue(NULL, NULL));
  INVALID(funlib_tensor_data(NULL, NULL));
  INVALID(funlib_tensor_get_event(NULL, NULL));
  INVALID(funlib_tensor_fill(NULL, NULL, NULL));
  INVALID(funlib_tensor_copy_from_host(NULL, NULL, 0, NULL));
  INVALID(funlib_tensor_copy_to_host(NULL, NULL, 0, NULL));
  INVALID(funlib_tensor_copy(NULL, NULL, NULL));
  INVALID(funlib_tensor_map(NULL, FUNLIB_MAP_READ, NULL));
  INVALID(funlib_tensor_unmap(NULL, NULL));
  INVALID(funlib_gemm_options_init(NULL));
  INVALID(funlib_gemm(NULL, NULL, NULL, NULL, NULL));
  INVALID(funlib_gemm_kernel_count(NULL));
  INVALID(funlib_gemm_kernel_get_info(0, NULL));
  INVALID(funlib_gemm_explain(NULL, NULL, NULL, NULL));
  INVALID(funlib_weights_pack(NULL, 0, NULL, NULL, NULL));
  INVALID(funlib_weights_get_info(NULL, NULL));
  INVALID(funlib_weights_get_queue(NULL, NULL));
  INVALID(funlib_tuning_add(NULL, NULL));
  INVALID(funlib_tuning_count(NULL, NULL));
  INVALID(funlib_tuning_clear(NULL));
  INVALID(funlib_gemm_kernel_object(NULL, NULL, FUNLIB_FLOAT32, 0, 0, NULL, NULL, NULL));
  INVALID(funlib_roof_measure(NULL, FUNLIB_ROOF_COPY, FUNLIB_FLOAT32, NULL));
  INVALID(funlib_roof_kernel_object(NULL, FUNLIB_ROOF_COPY, FUNLIB_FLOAT32, NULL, NULL));
  funlib_queue_release(NULL);
  funlib_event_release(NULL);
  funlib_tensor_release(NULL);
  funlib_free(NULL);

  /* Values that can't be right. */
  funlib_dtype_info dtype;
  INVALID(funlib_dtype_get_info((funlib_dtype)99, &dtype));
  funlib_device_info device;
  INVALID(funlib_device_get_info(devices, &device));
  INVALID(funlib_device_get_info(-1, &device));
  funlib_queue* queue = NULL;
  const funlib_queue_options bad_device = {"toaster", NULL, NULL, 1, NULL};
  INVALID(funlib_queue_register("q", &bad_device, &queue));
  CHECK(strstr(funlib_last_error(), "toaster") != NULL);
  const funlib_queue_options nobody = {NULL, "no such vendor", NULL, 1, NULL};
  CHECK_STATUS(FUNLIB_ERROR_NO_DEVICE, funlib_queue_register("q", &nobody, &queue));
  CHECK_STATUS(FUNLIB_ERROR_NOT_FOUND, funlib_queue_get("never registered", &queue));
  CHECK(queue == NULL);
  if (devices == 0) return checks_failed != 0;

  CHECK_OK(funlib_queue_register("errors", NULL, &queue));
  funlib_queue* again = NULL;
  INVALID(funlib_queue_register("errors", NULL, &again));
  CHECK(again == NULL);

  funlib_tensor *a = NULL, *b = NULL, *c = NULL, *view = NULL;
  const int64_t shape[] = {4, 6}, negative[] = {4, -6}, huge[] = {INT64_MAX, 2},
                too_big[] = {(int64_t)1 << 40, 16};
  INVALID(funlib_tensor_create(queue, (funlib_dtype)99, 2, shape, &a));
  INVALID(funlib_tensor_create(queue, FUNLIB_FLOAT32, 2, NULL, &a));
  INVALID(funlib_tensor_create(queue, FUNLIB_FLOAT32, 2, negative, &a));
  INVALID(funlib_tensor_create(queue, FUNLIB_FLOAT32, 2, huge, &a));
  INVALID(funlib_tensor_create(queue, FUNLIB_FLOAT32, FUNLIB_MAX_DIMS + 1, shape, &a));
  CHECK_STATUS(FUNLIB_ERROR_OUT_OF_MEMORY,
               funlib_tensor_create(queue, FUNLIB_FLOAT32, 2, too_big, &a));
  CHECK(strstr(funlib_last_error(), "requested") != NULL);
  CHECK(a == NULL);
  CHECK_OK(funlib_tensor_create(queue, FUNLIB_FLOAT32, 2, shape, &a));
  CHECK_OK(funlib_tensor_create(queue, FUNLIB_INT32, 2, shape, &b));

  const int64_t strides[] = {6, 1}, outside[] = {7, 1}, overflowing[] = {INT64_MAX, INT64_MAX},
                axes[] = {0, 0}, other[] = {5, 5};
  INVALID(funlib_tensor_view(a, 2, shape, outside, 0, &view));
  INVALID(funlib_tensor_view(a, 2, shape, strides, 1, &view));
  INVALID(funlib_tensor_view(a, 2, shape, strides, -1, &view));
  INVALID(funlib_tensor_view(a, 2, shape, overflowing, 0, &view));
  INVALID(funlib_tensor_reshape(a, 2, other, &view));
  INVALID(funlib_tensor_transpose(a, axes, &view));
  CHECK(view == NULL);

  float host[24];
  INVALID(funlib_tensor_copy_from_host(a, host, 23 * 4, NULL));
  INVALID(funlib_tensor_copy_from_host(a, NULL, 24 * 4, NULL));
  CHECK_STATUS(FUNLIB_ERROR_TYPE, funlib_tensor_copy(a, b, NULL));
  funlib_mapping mapping;
  INVALID(funlib_tensor_map(a, (funlib_map_mode)7, &mapping));
  INVALID(funlib_tensor_unmap(a, host));

  INVALID(funlib_gemm(a, a, NULL, &c, NULL)); /* 4x6 times 4x6 */
  CHECK_STATUS(FUNLIB_ERROR_TYPE, funlib_gemm(a, b, NULL, &c, NULL));
  funlib_gemm_options options;
  CHECK_OK(funlib_gemm_options_init(&options));
  options.transpose_b = 1;
  options.kernel = "gemm_imaginary";
  CHECK_STATUS(FUNLIB_ERROR_NOT_FOUND, funlib_gemm(a, a, &options, &c, NULL));
  CHECK(strstr(funlib_last_error(), "gemm_tiled") != NULL);
  options.kernel = NULL;
  options.beta = 1;
  INVALID(funlib_gemm(a, a, &options, &c, NULL));
  options.beta = 0;
  options.alpha = 0.5;
  INVALID(funlib_gemm(b, b, &options, &c, NULL));
  CHECK(c == NULL);

  funlib_roof_result roof = {0, 0, 0, 0};
  INVALID(funlib_roof_measure(queue, (funlib_roof)99, FUNLIB_FLOAT32, &roof));
  INVALID(funlib_roof_measure(queue, FUNLIB_ROOF_MULTIPLY_ADD, (funlib_dtype)99, &roof));
  INVALID(funlib_roof_measure(queue, FUNLIB_ROOF_COPY, FUNLIB_FLOAT32, NULL));
  CHECK(roof.launches == 0);

  funlib_tensor_release(a);
  funlib_tensor_release(b);
  CHECK_OK(funlib_queue_unregister("errors"));
  CHECK_STATUS(FUNLIB_ERROR_NOT_FOUND, funlib_queue_unregister("errors"));
  funlib_queue_release(queue);
  if (checks_failed == 0) printf("ok\n");
  return checks_failed != 0;
}
