// roof_copy: how fast a device reads and writes memory. Copies whole blocks of a long array.
//
//     a work-group's block:   | GROUP vectors | GROUP vectors | ...   VECTORS of these
//                               ^ work-item i moves vector i of each
//
// Neighbouring work-items move neighbouring vectors. A CPU has one work-item a work-group, which walks
// its block from one end to the other. Stores bypass the caches where the device can do that: nobody
// reads the copy back soon, and a cache would fetch each line before it is overwritten.
//
// Parameters: FUNLIB_GROUP, work-items of a work-group; FUNLIB_LANES, 32-bit words of a vector;
// FUNLIB_VECTORS, vectors a work-item moves.
#include "funlib_device.hpp"

namespace funlib {

using Vector = unsigned __attribute__((ext_vector_type(FUNLIB_LANES)));

}  // namespace funlib

FUNLIB_KERNEL(1, FUNLIB_GROUP)
void roof_copy(unsigned* destination, const unsigned* source) {
  using namespace funlib;
  const int64 first = group_id<1>(0) * (FUNLIB_GROUP * FUNLIB_VECTORS) + local_id<1>(0);
  Vector* const to = reinterpret_cast<Vector*>(destination) + first;
  const Vector* const from = reinterpret_cast<const Vector*>(source) + first;
#pragma unroll 4
  for (int n = 0; n < FUNLIB_VECTORS; ++n)
    __builtin_nontemporal_store(from[n * FUNLIB_GROUP], to + n * FUNLIB_GROUP);
}
