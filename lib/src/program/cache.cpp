#include "program/cache.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "program/digest.hpp"
#include "runtime/error.hpp"
#include "runtime/paths.hpp"

namespace funlib {
namespace {

constexpr const char* suffix = ".syclbin";
// Unfinished files of processes that died are swept after this time.
constexpr time_t unfinished_age_seconds = 3600;

struct Header {
  char magic[8];
  uint64_t key_size, image_size, checksum;
};
constexpr char file_magic[9] = "FUNLIBC1";
constexpr uint64_t largest_image = uint64_t(1) << 30;

uint64_t checksum_of(const std::string& key, const std::string& image) {
  return checksum(image.data(), image.size(), checksum(key.data(), key.size()));
}

std::string home_directory() {
  const std::string home = environment("HOME");
  if (!home.empty()) return home;
  const passwd* entry = getpwuid(geteuid());
  return entry != nullptr && entry->pw_dir != nullptr ? entry->pw_dir : "";
}

std::string default_directory() {
  const std::string named = environment("FUNLIB_CACHE_DIR");
  if (!named.empty()) return named;
  const std::string cache = environment("XDG_CACHE_HOME");
  if (!cache.empty() && cache[0] == '/') return cache + "/funlib";
  const std::string home = home_directory();
  return home.empty() ? "" : home + "/.cache/funlib";
}

// A relative directory is the one under the working directory of the first use, for good.
std::string absolute(const std::string& path) {
  if (path.empty() || path[0] == '/') return path;
  char* working = getcwd(nullptr, 0);
  if (working == nullptr) return "";
  const std::string whole = concat(working, "/", path);
  std::free(working);
  return whole;
}

bool make_directories(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return true;
  if (errno != ENOENT || path.find('/', 1) == std::string::npos) return false;
  return make_directories(directory_of(path)) &&
         (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST);
}

// The images are native code: a directory that others can write to must not feed this process.
bool trusted(const std::string& directory) {
  struct stat status;
  if (stat(directory.c_str(), &status) != 0) return true;  // nothing there to load
  return (status.st_uid == geteuid() || status.st_uid == 0) &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool read_bytes(int descriptor, char* into, size_t size) {
  for (size_t at = 0; at < size;) {
    const ssize_t count = read(descriptor, into + at, size - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += size_t(count);
  }
  return true;
}

// The image in an open file, if the file is whole and of that key. Nothing is allocated for a file
// whose size its header does not account for.
std::optional<std::string> read_image(int descriptor, const std::string& key) {
  struct stat status;
  Header header{};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) ||
      !read_bytes(descriptor, reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.magic, file_magic, sizeof header.magic) != 0 ||
      header.key_size != key.size() || header.image_size > largest_image ||
      uint64_t(status.st_size) != sizeof header + header.key_size + header.image_size)
    return std::nullopt;
  std::string found_key(header.key_size, '\0'), image(header.image_size, '\0');
  if (!read_bytes(descriptor, found_key.data(), found_key.size()) || found_key != key ||
      !read_bytes(descriptor, image.data(), image.size()) ||
      header.checksum != checksum_of(key, image))
    return std::nullopt;
  return image;
}

bool write_file(int descriptor, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t count = write(descriptor, bytes.data() + at, bytes.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += size_t(count);
  }
  return true;
}

ImageCache::Mode mode_from_environment() {
  const std::string mode = environment("FUNLIB_CACHE", "on");
  if (mode == "on") return ImageCache::Mode::on;
  if (mode == "readonly") return ImageCache::Mode::readonly;
  if (mode == "off") return ImageCache::Mode::off;
  log(FUNLIB_LOG_WARNING,
      concat("FUNLIB_CACHE is \"", mode, "\", which is none of on, readonly, off; using on"));
  return ImageCache::Mode::on;
}

int64_t max_bytes_from_environment() {
  const int64_t fallback = int64_t(512) << 20;
  const std::string text = environment("FUNLIB_CACHE_MAX_BYTES");
  if (text.empty()) return fallback;
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (*end == '\0' && value >= 0) return value;
  log(FUNLIB_LOG_WARNING, concat("FUNLIB_CACHE_MAX_BYTES is \"", text,
                                 "\", which is no number of bytes; using ", fallback));
  return fallback;
}

}  // namespace

ImageCache& ImageCache::shared() {
  const DeferredLog deferred;  // a handler may ask for the cache that is being made
  static ImageCache* cache =
      new ImageCache(default_directory(), mode_from_environment(), max_bytes_from_environment());
  return *cache;
}

ImageCache::ImageCache(const std::string& directory, Mode mode, int64_t max_bytes)
    : directory_(absolute(directory)),
      mode_(directory_.empty() ? Mode::off : mode),
      max_bytes_(max_bytes) {}

// Asked at every use: the directory may appear, or change hands, at any time.
bool ImageCache::usable() {
  if (trusted(directory_)) return true;
  warn_once(concat("the kernel cache ", directory_,
                   " belongs to another user or is writable by others; not used (chmod go-w, or "
                   "name another directory in FUNLIB_CACHE_DIR)"));
  return false;
}

const char* ImageCache::mode_name() const {
  return mode_ == Mode::on ? "on" : mode_ == Mode::readonly ? "readonly" : "off";
}

void ImageCache::warn_once(const std::string& message) {
  if (!warned_.exchange(true)) log(FUNLIB_LOG_WARNING, message);
}

std::string ImageCache::file_of(const std::string& key) const {
  return concat(directory_, "/", digest(key), suffix);
}

std::optional<std::string> ImageCache::load(const std::string& key) {
  if (mode_ == Mode::off) return std::nullopt;
  const std::string name = file_of(key);
  // Without O_NONBLOCK, a named pipe in the file's place would be waited for.
  const int descriptor = open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0 || !usable()) {
    if (descriptor >= 0) close(descriptor);
    return std::nullopt;
  }
  auto image = read_image(descriptor, key);
  close(descriptor);
  if (image) {
    ++hits_;
    // The time of use is what eviction goes by.
    if (mode_ == Mode::on) utimensat(AT_FDCWD, name.c_str(), nullptr, 0);
    return image;
  }
  ++rejected_;
  log(FUNLIB_LOG_WARNING, concat("ignoring the damaged kernel cache file ", name));
  return std::nullopt;
}

void ImageCache::store(const std::string& key, const std::string& image) {
  if (mode_ != Mode::on) return;
  if (!make_directories(directory_)) {
    warn_once(concat("can't make the kernel cache directory ", directory_, ": ",
                     std::strerror(errno), "; kernels are compiled anew in each process"));
    return;
  }
  if (!usable()) return;
  Header header{};
  std::memcpy(header.magic, file_magic, sizeof header.magic);
  header.key_size = key.size();
  header.image_size = image.size();
  header.checksum = checksum_of(key, image);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += key;
  bytes += image;
  std::string name = concat(directory_, "/", digest(key), ".XXXXXX");
  const int descriptor = mkostemp(name.data(), O_CLOEXEC);
  bool written = descriptor >= 0;
  int error = errno;
  if (written) {
    written = write_file(descriptor, bytes);
    error = errno;
    // close() reports a full disk on some file systems.
    if (close(descriptor) != 0 && written) {
      written = false;
      error = errno;
    }
    if (written && rename(name.c_str(), file_of(key).c_str()) != 0) {
      written = false;
      error = errno;
    }
    if (!written) unlink(name.c_str());
  }
  if (!written) {
    warn_once(concat("can't write to the kernel cache ", directory_, ": ", std::strerror(error),
                     "; kernels are compiled anew in each process"));
    return;
  }
  evict();
}

void ImageCache::evict() {
  struct File {
    std::string name;
    timespec used;
    int64_t size;
  };
  DIR* listing = opendir(directory_.c_str());
  if (listing == nullptr) return;
  std::vector<File> files;
  int64_t total = 0;
  const time_t now = time(nullptr);
  const size_t digits = 32, suffix_size = std::strlen(suffix);
  while (const dirent* entry = readdir(listing)) {
    const std::string name = entry->d_name;
    struct stat status;
    const std::string path = concat(directory_, "/", name);
    if (name.size() < digits || stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
      continue;
    if (name.size() == digits + suffix_size && name.compare(digits, suffix_size, suffix) == 0) {
      files.push_back({path, status.st_mtim, int64_t(status.st_size)});
      total += int64_t(status.st_size);
    } else if (name.size() == digits + 7 && status.st_mtime + unfinished_age_seconds < now) {
      unlink(path.c_str());
    }
  }
  closedir(listing);
  if (total <= max_bytes_) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec
                                          : a.used.tv_nsec < b.used.tv_nsec;
  });
  for (const auto& file : files) {
    if (total <= max_bytes_) break;
    if (unlink(file.name.c_str()) == 0) total -= file.size;
  }
}

}  // namespace funlib
