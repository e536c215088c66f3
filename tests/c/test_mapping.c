/* Mappings of views: what was mapped is what is written back, whichever view ends the mapping. */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "funlib/funlib.h"

enum { SIZE = 8 };

static funlib_tensor* view_of(funlib_tensor* base, int64_t first, int64_t count) {
  const int64_t shape[] = {count}, strides[] = {1};
  funlib_tensor* view = NULL;
  CHECK_OK(funlib_tensor_view(base, 1, shape, strides, first, &view));
  return view;
}

static void check_contents(funlib_tensor* tensor, const float* expected) {
  float host[SIZE];
  funlib_event* event = NULL;
  CHECK_OK(funlib_tensor_copy_to_host(tensor, host, (int64_t)sizeof host, &event));
  CHECK_OK(funlib_event_wait(event));
  funlib_event_release(event);
  CHECK(memcmp(host, expected, sizeof host) == 0);
}

int main(void) {
  int64_t devices = 0;
  CHECK_OK(funlib_device_count(&devices));
  if (devices == 0) {
    printf("no SYCL device: skipped\n");
    return 77;
  }
  const int64_t shape[] = {SIZE};
  const float one = 1;
  funlib_tensor* tensor = NULL;
  CHECK_OK(funlib_tensor_create(NULL, FUNLIB_FLOAT32, 1, shape, &tensor));
  CHECK_OK(funlib_tensor_fill(tensor, &one, NULL));
  funlib_tensor* middle = view_of(tensor, 4, 2);
  funlib_tensor* start = view_of(tensor, 0, 2);

  funlib_mapping mapping, second;
  CHECK_OK(funlib_tensor_map(middle, FUNLIB_MAP_READ_WRITE, &mapping));
  CHECK_STATUS(FUNLIB_ERROR_BUSY, funlib_tensor_map(start, FUNLIB_MAP_READ, &second));
  CHECK_STATUS(FUNLIB_ERROR_BUSY, funlib_tensor_fill(start, &one, NULL));
  float* data = (float*)mapping.data;
  CHECK(data[0] == 1 && data[1] == 1);
  data[0] = 50;
  data[1] = 60;
  CHECK_OK(funlib_tensor_unmap(start, mapping.data)); /* another view of the same memory */
  const float once[SIZE] = {1, 1, 1, 1, 50, 60, 1, 1};
  check_contents(tensor, once);

  /* The mapping keeps its tensor; the larger view can end it. */
  CHECK_OK(funlib_tensor_map(start, FUNLIB_MAP_WRITE, &mapping));
  funlib_tensor_release(start);
  data = (float*)mapping.data;
  data[0] = 7;
  data[1] = 8;
  CHECK_OK(funlib_tensor_unmap(tensor, mapping.data));
  const float twice[SIZE] = {7, 8, 1, 1, 50, 60, 1, 1};
  check_contents(tensor, twice);
  CHECK_STATUS(FUNLIB_ERROR_INVALID_ARGUMENT, funlib_tensor_unmap(tensor, mapping.data));

  /* Two that read may be open together. */
  CHECK_OK(funlib_tensor_map(middle, FUNLIB_MAP_READ, &mapping));
  CHECK_OK(funlib_tensor_map(tensor, FUNLIB_MAP_READ, &second));
  CHECK(((float*)second.data)[4] == 50);
  CHECK_OK(funlib_tensor_unmap(tensor, second.data));
  CHECK_OK(funlib_tensor_unmap(middle, mapping.data));
  CHECK_OK(funlib_tensor_fill(tensor, &one, NULL));

  funlib_tensor_release(middle);
  funlib_tensor_release(tensor);
  if (checks_failed == 0) printf("ok\n");
  return checks_failed != 0;
}
