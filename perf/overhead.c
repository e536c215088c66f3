/* The C side of perf/overhead.py: times an 8x8x8 GEMM submitted through the C interface.
 *
 * overhead CALLS WARMUPS MODE  with MODE "new" (the call makes C) or "out" (C is given).
 * Prints "total kernel" in nanoseconds for each of CALLS calls. Each total is one funlib_gemm until its
 * wait returns, with the release of what the call made.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "funlib/funlib.h"

#define SIDE 8

static void check(funlib_status status) {
  if (status != FUNLIB_SUCCESS) {
    fprintf(stderr, "overhead: %s\n", funlib_last_error());
    exit(1);
  }
}

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static funlib_tensor* filled(funlib_queue* queue, float value) {
  const int64_t shape[2] = {SIDE, SIDE};
  funlib_tensor* tensor = NULL;
  check(funlib_tensor_create(queue, FUNLIB_FLOAT32, 2, shape, &tensor));
  check(funlib_tensor_fill(tensor, &value, NULL));
  return tensor;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: overhead CALLS WARMUPS new|out\n");
    return 2;
  }
  const int calls = atoi(argv[1]);
  const int warmups = atoi(argv[2]);
  const int makes_c = strcmp(argv[3], "new") == 0;

  funlib_queue* queue = NULL;
  check(funlib_queue_get(NULL, &queue));
  funlib_tensor* a = filled(queue, 1.0F);
  funlib_tensor* b = filled(queue, 2.0F);
  funlib_tensor* given = filled(queue, 0.0F);
  check(funlib_queue_wait(queue));

  for (int call = -warmups; call < calls; ++call) {
    funlib_tensor* c = makes_c ? NULL : given;
    funlib_event* event = NULL;
    const int64_t start = now_ns();
    check(funlib_gemm(a, b, NULL, &c, &event));
    check(funlib_event_wait(event));
    if (makes_c) {
      funlib_tensor_release(c);
    }
    const int64_t total = now_ns() - start;
    funlib_event_times times;
    check(funlib_event_get_times(event, &times));
    funlib_event_release(event);
    if (call >= 0) {
      printf("%lld %llu\n", (long long)total, (unsigned long long)times.kernel_ns);
    }
  }

  funlib_tensor_release(given);
  funlib_tensor_release(b);
  funlib_tensor_release(a);
  funlib_queue_release(queue);
  return 0;
}
