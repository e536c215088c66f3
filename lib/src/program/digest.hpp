// FNV-1a digests (Fowler, Noll, Vo): they name cache files and detect damage; they do not
// authenticate.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace funlib {

inline uint64_t checksum(const char* data, size_t size, uint64_t state = 0xcbf29ce484222325u) {
  for (size_t i = 0; i < size; ++i) state = (state ^ uint8_t(data[i])) * 0x100000001b3u;
  return state;
}

// 128 bits as 32 hexadecimal digits.
inline std::string digest(const std::string& text) {
  unsigned __int128 state = ((unsigned __int128)0x6c62272e07bb0142u << 64) | 0x62b821756295c58du;
  const unsigned __int128 prime = ((unsigned __int128)0x1000000u << 64) | 0x13bu;
  for (const char c : text) state = (state ^ uint8_t(c)) * prime;
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", (unsigned long long)(state >> 64),
                (unsigned long long)state);
  return digits;
}

}  // namespace funlib
