// What the library and its compiler program say to each other: a list of named byte strings, each
// as two lengths (native 64-bit) and the bytes, behind a magic number and the number of fields.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace funlib {

class Message {
 public:
  void add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  // The first field of that name, or "".
  const std::string& get(const std::string& name) const {
    static const std::string none;
    for (const auto& field : fields_)
      if (field.first == name) return field.second;
    return none;
  }
  const std::vector<std::pair<std::string, std::string>>& fields() const { return fields_; }

  std::string encode() const {
    std::string bytes = magic;
    append(bytes, fields_.size());
    for (const auto& [name, value] : fields_) {
      append(bytes, name.size());
      append(bytes, value.size());
      bytes += name;
      bytes += value;
    }
    return bytes;
  }

  // Nothing if the bytes are no complete message.
  static std::optional<Message> decode(const std::string& bytes) {
    const std::string head = magic;
    if (bytes.compare(0, head.size(), head) != 0) return std::nullopt;
    size_t at = head.size();
    uint64_t count;
    if (!read(bytes, at, count)) return std::nullopt;
    Message message;
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t name_size, value_size;
      if (!read(bytes, at, name_size) || !read(bytes, at, value_size)) return std::nullopt;
      if (name_size > bytes.size() - at || value_size > bytes.size() - at - name_size)
        return std::nullopt;
      message.add(bytes.substr(at, name_size), bytes.substr(at + name_size, value_size));
      at += name_size + value_size;
    }
    if (at != bytes.size()) return std::nullopt;
    return message;
  }

 private:
  static constexpr const char* magic = "FUNLIBM1";

  static void append(std::string& bytes, uint64_t number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  static bool read(const std::string& bytes, size_t& at, uint64_t& number) {
    if (bytes.size() - at < sizeof number) return false;
    std::memcpy(&number, bytes.data() + at, sizeof number);
    at += sizeof number;
    return true;
  }

  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace funlib
