// Arguments of a kernel, set one after the other.
#pragma once

#include <array>
#include <cstring>
#include <sycl/sycl.hpp>

#include "runtime/device.hpp"

namespace funlib {

class Arguments {
 public:
  Arguments(sycl::handler& handler, const Device& device) : handler_(handler), device_(device) {}

  template <typename Value>
  Arguments& add(const Value& value) {
    handler_.set_arg(position_++, value);
    return *this;
  }

  // The first `bytes` of a struct, as FUNLIB_STRUCT (funlib_device.hpp) declares it.
  template <typename Struct>
  Arguments& add_struct(const Struct& value, size_t bytes = sizeof(Struct)) {
    struct alignas(16) Piece {
      std::array<uint64_t, 2> words;
    };
    static_assert(sizeof(Struct) % sizeof(Piece) == 0);
    if (!device_.takes_pieces()) return add(value);
    for (size_t at = 0; at < bytes; at += sizeof(Piece)) {
      Piece piece;
      std::memcpy(&piece, reinterpret_cast<const char*>(&value) + at, sizeof piece);
      add(piece);
    }
    return *this;
  }

  // Local memory beside the kernel's variables.
  Arguments& add_local_memory(size_t bytes) {
    sycl::ext::oneapi::experimental::work_group_memory<unsigned char[]> memory(bytes, handler_);
    handler_.set_arg(position_++, memory);
    return *this;
  }

 private:
  sycl::handler& handler_;
  const Device& device_;
  int position_ = 0;
};

}  // namespace funlib
