// copy_strided: copies a strided view to another of the same shape, one element a work-item.
//
// Element n of the shape (in C order) lies at the sum of index * stride over the dimensions; strides
// are in elements and may be negative, those of the source also zero.
//
// Parameters: FUNLIB_NDIM, dimensions (1 to 8); FUNLIB_ITEMSIZE, bytes of an element (1, 2, 4 or 8).
#include "funlib_device.hpp"

namespace funlib {

#if FUNLIB_ITEMSIZE == 8
using Element = uint64;
#elif FUNLIB_ITEMSIZE == 4
using Element = unsigned;
#elif FUNLIB_ITEMSIZE == 2
using Element = unsigned short;
#else
using Element = unsigned char;
#endif

struct CopyStridedArguments {
  int64 total;
  int64 shape[8];
  int64 destination_strides[8];
  int64 source_strides[8];
  int64 unused;  // whole pieces of 16 bytes
};

}  // namespace funlib

FUNLIB_KERNEL(1, 256)
void copy_strided(FUNLIB_STRUCT(13, funlib::CopyStridedArguments, arguments),
                  funlib::Element* destination, const funlib::Element* source) {
  using namespace funlib;
  FUNLIB_RECEIVE(13, CopyStridedArguments, arguments)
  int64 rest = global_id<1>(0);
  if (rest >= arguments.total) return;
  int64 to = 0, from = 0;
  for (int dimension = FUNLIB_NDIM - 1; dimension >= 0; --dimension) {
    const int64 index = rest % arguments.shape[dimension];
    rest /= arguments.shape[dimension];
    to += index * arguments.destination_strides[dimension];
    from += index * arguments.source_strides[dimension];
  }
  destination[to] = source[from];
}
