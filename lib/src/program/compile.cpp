#include "program/compile.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/error.hpp"
#include "runtime/paths.hpp"

extern char** environ;

namespace funlib {
namespace {

using Clock = std::chrono::steady_clock;

struct Descriptor {
  int number = -1;
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }
  void reset() {
    if (number >= 0) close(number);
    number = -1;
  }
};

// Sockets rather than pipes: writing to a dead child must be an error code, not a signal to the
// user's process.
void make_channel(Descriptor& ours, Descriptor& theirs) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    fail(FUNLIB_ERROR_RUNTIME, "no socket for the compiler program: ", std::strerror(errno));
  ours.number = pair[0];
  theirs.number = pair[1];
  fcntl(ours.number, F_SETFL, O_NONBLOCK);
}

// The child must load the very libsycl that this process uses.
std::vector<std::string> child_environment() {
  std::vector<std::string> variables;
  std::string libraries = directory_of(paths().sycl);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_LIBRARY_PATH=", 16) == 0)
      libraries += std::string(":") + (*entry + 16);
    else
      variables.emplace_back(*entry);
  }
  variables.push_back("LD_LIBRARY_PATH=" + libraries);
  return variables;
}

class Child {
 public:
  Child(const std::string& program, int input, int output, int errors) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawn_file_actions_adddup2(&actions, errors, 2);
    auto variables = child_environment();
    std::vector<char*> pointers;
    for (auto& variable : variables) pointers.push_back(variable.data());
    pointers.push_back(nullptr);
    char* arguments[] = {const_cast<char*>(program.c_str()), nullptr};
    const int error =
        posix_spawn(&process_, program.c_str(), &actions, nullptr, arguments, pointers.data());
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      process_ = -1;
      fail(FUNLIB_ERROR_COMPILE, "can't start the compiler program ", program, ": ",
           std::strerror(error));
    }
  }
  ~Child() {
    if (process_ > 0) {
      kill(process_, SIGKILL);
      wait(Clock::now());
    }
  }
  // Whether it has ended, or somebody else reaped it.
  bool has_ended() const {
    siginfo_t info{};
    const int result = waitid(P_PID, id_t(process_), &info, WEXITED | WNOHANG | WNOWAIT);
    return result != 0 ? errno == ECHILD : info.si_pid != 0;
  }
  // How it ended, "" after exit code 0 or when somebody else reaped it; nothing if it had to be killed
  // at the deadline.
  std::optional<std::string> wait(Clock::time_point deadline) {
    int status = 0;
    pid_t result;
    bool late = false;
    while ((result = waitpid(process_, &status, WNOHANG)) == 0 || (result < 0 && errno == EINTR)) {
      late = Clock::now() >= deadline;
      if (late) kill(process_, SIGKILL);
      usleep(1000);
    }
    process_ = -1;
    if (result < 0) return std::string();
    if (late) return std::nullopt;
    if (WIFSIGNALED(status))
      return concat("was killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)),
                    ")");
    if (WEXITSTATUS(status) != 0) return concat("exited with code ", WEXITSTATUS(status));
    return std::string();
  }

 private:
  pid_t process_ = -1;
};

// Reads what is there; false at the end.
bool drain(int descriptor, std::string& into) {
  char buffer[65536];
  for (;;) {
    const ssize_t count = read(descriptor, buffer, sizeof buffer);
    if (count > 0)
      into.append(buffer, size_t(count));
    else if (count < 0 && errno == EINTR)
      continue;
    else
      return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

int timeout_seconds() {
  const int seconds = std::atoi(environment("FUNLIB_COMPILE_TIMEOUT", "300").c_str());
  return seconds > 0 ? seconds : 300;
}

}  // namespace

std::string run_compiler(const Message& request, const std::string& what) {
  const std::string& program = paths().compiler;
  if (program.empty())
    fail(FUNLIB_ERROR_COMPILE, "can't compile ", what, ": the compiler program ",
         directory_of(paths().library),
         "/funlib-compiler is missing; reinstall funlib, or name it in FUNLIB_COMPILER");
  Descriptor input, output, errors;
  std::string answer, log;
  std::string ending;
  {
    Descriptor child_input, child_output, child_errors;
    make_channel(input, child_input);
    make_channel(output, child_output);
    make_channel(errors, child_errors);
    Child child(program, child_input.number, child_output.number, child_errors.number);
    child_input.reset();
    child_output.reset();
    child_errors.reset();

    const std::string bytes = request.encode();
    size_t sent = 0;
    const int seconds = timeout_seconds();
    const auto deadline = Clock::now() + std::chrono::seconds(seconds);
    const auto too_slow = [&] {
      fail(FUNLIB_ERROR_COMPILE, "compiling ", what, " took more than ", seconds,
           " s and was stopped (FUNLIB_COMPILE_TIMEOUT sets the limit)", log.empty() ? "" : "\n",
           log);
    };
    bool answered = false;
    while (!answered && (output.number >= 0 || errors.number >= 0)) {
      pollfd watched[] = {
          {output.number, POLLIN, 0}, {errors.number, POLLIN, 0}, {input.number, POLLOUT, 0}};
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (left <= 0) too_slow();
      const int ready = poll(watched, 3, int(std::min<long long>(left, 1000)));
      if (ready < 0) continue;
      // Its ends are still open elsewhere: another thread forked meanwhile.
      if (ready == 0 && child.has_ended()) break;
      if (watched[2].revents != 0) {
        const ssize_t count =
            send(input.number, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (count > 0) sent += size_t(count);
        const bool again = count < 0 && (errno == EAGAIN || errno == EINTR);
        if (sent == bytes.size() || (count <= 0 && !again)) input.reset();
      }
      if (watched[0].revents != 0) {
        if (!drain(output.number, answer)) output.reset();
        answered = Message::decode(answer).has_value();
      }
      if (watched[1].revents != 0 && !drain(errors.number, log)) errors.reset();
    }
    const auto ended = child.wait(deadline);
    if (!ended) too_slow();
    if (output.number >= 0) drain(output.number, answer);
    if (errors.number >= 0) drain(errors.number, log);
    ending = *ended;
  }
  const auto message = Message::decode(answer);
  if (message && message->get("status") == "ok") return message->get("image");
  const std::string text = message ? message->get("log") : log;
  if (!ending.empty() || !message)
    fail(FUNLIB_ERROR_COMPILE, "the compiler program ", program, " ",
         ending.empty() ? "gave no valid answer" : ending, " while compiling ", what,
         text.empty() ? "" : "\n", text);
  fail(FUNLIB_ERROR_COMPILE, "compiling ", what, " failed:\n", text);
}

}  // namespace funlib
