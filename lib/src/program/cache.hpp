// The directory of compiled kernel images.
//
// One file an image: magic, lengths, checksum, the full key as text, the image. Files are written
// under another name and renamed, so that readers see a whole file or none, however many processes
// write. What is damaged, foreign or of another key is ignored and replaced. A failure to write is
// one warning, never an error: the image is in memory anyway.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace funlib {

class ImageCache {
 public:
  enum class Mode { on, readonly, off };

  // From FUNLIB_CACHE, FUNLIB_CACHE_DIR and FUNLIB_CACHE_MAX_BYTES.
  static ImageCache& shared();
  ImageCache(const std::string& directory, Mode mode, int64_t max_bytes);

  std::optional<std::string> load(const std::string& key);
  void store(const std::string& key, const std::string& image);

  const std::string& directory() const { return directory_; }
  const char* mode_name() const;
  int64_t max_bytes() const { return max_bytes_; }
  int64_t hits() const { return hits_; }
  int64_t rejected() const { return rejected_; }

 private:
  std::string file_of(const std::string& key) const;
  bool usable();
  void evict();
  void warn_once(const std::string& message);

  const std::string directory_;
  const Mode mode_;
  const int64_t max_bytes_;
  std::atomic<int64_t> hits_{0}, rejected_{0};
  std::atomic<bool> warned_{false};
};

}  // namespace funlib
