/* The smallest test harness that does: CHECK prints what failed and where, and the program's exit
 * code tells. */
#ifndef FUNLIB_TESTS_CHECK_H
#define FUNLIB_TESTS_CHECK_H

#include <stdio.h>

static int checks_failed = 0;

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
      ++checks_failed;                                                              \
    }                                                                               \
  } while (0)

#define CHECK_STATUS(expected, call)                                                          \
  do {                                                                                        \
    const funlib_status status_ = (call);                                                     \
    if (status_ != (expected)) {                                                              \
      fprintf(stderr, "%s:%d: %s gave status %d (\"%s\"), expected %d\n", __FILE__, __LINE__, \
              #call, (int)status_, funlib_last_error(), (int)(expected));                     \
      ++checks_failed;                                                                        \
    }                                                                                         \
  } while (0)

#define CHECK_OK(call) CHECK_STATUS(FUNLIB_SUCCESS, call)

#endif
