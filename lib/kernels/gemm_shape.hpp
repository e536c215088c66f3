// What kernels and host share: the shape of a batch of products, and the numbers of what follows it.
#pragma once

// Values of FUNLIB_ACTIVATION: those of funlib_activation.
#define FUNLIB_RELU 1
#define FUNLIB_GELU 2
#define FUNLIB_GELU_TANH 3
#define FUNLIB_SILU 4

// Values of FUNLIB_BIAS, where there is one.
#define FUNLIB_BIAS_ROW 1
#define FUNLIB_BIAS_COLUMN 2

namespace funlib {

// Matrix n of a batch, in C order over `shape`, begins at the sum of index * stride over the dimensions,
// elements from the operand's start. Strides of A and B may be zero or negative.
struct Batches {
  static constexpr int most_dimensions = 6;
  long long count = 1;
  long long dimensions;              // of more than one matrix; 0 for a single product
  long long shape[most_dimensions];  // 1 beyond `dimensions`
  long long a_strides[most_dimensions];
  long long b_strides[most_dimensions];
  long long c_strides[most_dimensions];
};

// What a kernel is told beside pointers and scalars: one argument, since each costs the runtimes time.
// Kernels for single products need not receive `batches`.
struct GemmShape {
  static constexpr int most_extra = 8;
  long long m, n, k;
  long long lda, ldb, ldc;
  long long extra[most_extra];  // what GemmPlan::arguments says, for the one kernel that knows
  Batches batches;
};

}  // namespace funlib
