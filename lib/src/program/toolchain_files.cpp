// Files that the run-time compiler carries inside of it but looks for on disk: it opens the library of
// built-in functions for PTX by a path that begins at the root, /lib/clang/..., where it has the same file
// embedded as /sycl-jit-toolchain/lib/clang/... . The compiler program defines `open` itself, before the C
// library's, and answers such paths with the embedded file. Other paths go to the system.
// Else the header makes `open` another name of `open64`.
#undef _FILE_OFFSET_BITS

#include <fcntl.h>
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>

namespace {

// As the compiler's table of embedded files holds them.
struct EmbeddedFile {
  const char* path;
  size_t path_length;
  const char* content;
  size_t length;
};

struct Search {
  std::string path;
  EmbeddedFile found{};
};

// Goes through the data of the compiler's library for a table entry with that path.
int search_library(dl_phdr_info* library, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (std::strstr(library->dlpi_name, "libsycl-jit") == nullptr) return 0;
  uintptr_t first = UINTPTR_MAX, last = 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const auto& part = library->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    first = std::min<uintptr_t>(first, library->dlpi_addr + part.p_vaddr);
    last = std::max<uintptr_t>(last, library->dlpi_addr + part.p_vaddr + part.p_memsz);
  }
  const size_t length = search.path.size();
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const auto& part = library->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
    const auto* words = reinterpret_cast<const uintptr_t*>(library->dlpi_addr + part.p_vaddr);
    const size_t count = part.p_filesz / sizeof *words;
    for (size_t w = 0; w + 4 <= count; ++w) {
      if (words[w + 1] != length || words[w] < first || words[w] + length > last) continue;
      const auto* entry = reinterpret_cast<const EmbeddedFile*>(words + w);
      const auto content = reinterpret_cast<uintptr_t>(entry->content);
      if (std::memcmp(entry->path, search.path.data(), length) == 0 && content >= first &&
          content + entry->length <= last) {
        search.found = *entry;
        return 1;
      }
    }
  }
  return 0;
}

// A descriptor that an embedded file can be read from; else -1, with errno. It is a pipe, which the compiler
// reads to its end like any stream: a file in memory would count for the limit on the size of files.
int open_embedded(const char* path) {
  Search search{std::string("/sycl-jit-toolchain") + path};
  dl_iterate_phdr(search_library, &search);
  if (search.found.content == nullptr) {
    errno = ENOENT;
    return -1;
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  const auto feed = [file = search.found, to = ends[1]] {
    // A reader that has enough is none that is to end the program.
    sigset_t broken;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken, nullptr);
    for (size_t at = 0; at < file.length;) {
      const ssize_t count = write(to, file.content + at, file.length - at);
      if (count > 0)
        at += size_t(count);
      else if (errno != EINTR)
        break;
    }
    close(to);
  };
  try {
    std::thread(feed).detach();
  } catch (const std::system_error&) {
    close(ends[0]);
    close(ends[1]);
    errno = EAGAIN;
    return -1;
  }
  return ends[0];
}

int open_any(const char* path, int flags, mode_t mode) {
  const int descriptor = int(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  if (descriptor >= 0 || errno != ENOENT || std::strncmp(path, "/lib/clang/", 11) != 0)
    return descriptor;
  return open_embedded(path);
}

mode_t mode_of(int flags, va_list arguments) {
  const bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return creates ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_any(path, flags, mode);
}

__attribute__((visibility("default"))) int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_any(path, flags | O_LARGEFILE, mode);
}

}  // extern "C"
