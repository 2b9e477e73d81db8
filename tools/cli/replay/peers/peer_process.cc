#include "tools/cli/replay/peers/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "src/base/file_descriptor.h"

namespace commpool::cli {

namespace {

using Clock = std::chrono::steady_clock;

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> EnvironmentWith(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string variable = *one;
    const std::string name = variable.substr(0, variable.find('=') + 1);
    bool given = false;
    for (const std::string& other : variables) given = given || other.starts_with(name);
    if (!given) all.push_back(variable);
  }
  return all;
}

std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// All that comes until the other end is closed. False where that does not happen in time.
bool ReadAll(int file, Clock::time_point deadline, std::string& output) {
  std::array<char, 65536> buffer;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{.fd = file, .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, left > 0 ? static_cast<int>(left) : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t bytes = read(file, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return true;
    output.append(buffer.data(), static_cast<size_t>(bytes));
  }
}

}  // namespace

Result<std::string> RunAgain(const std::vector<std::string>& arguments, const std::vector<std::string>& variables,
                             int limit_s) {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Status(StatusCode::kOutOfMemory, std::string("pipe2 failed: ") + std::strerror(errno));
  }
  const internal::FileDescriptor reading(ends[0]);
  internal::FileDescriptor writing(ends[1]);
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), "commpool");
  std::vector<std::string> environment = EnvironmentWith(variables);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, writing.get(), STDOUT_FILENO);
  pid_t process = -1;
  const int error =
      posix_spawn(&process, "/proc/self/exe", &files, nullptr, Pointers(words).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  writing = internal::FileDescriptor();
  if (error != 0) return Status(StatusCode::kOutOfMemory, std::string("no process: ") + std::strerror(error));

  std::string output;
  const bool ended = ReadAll(reading.get(), Clock::now() + std::chrono::seconds(limit_s), output);
  if (!ended) kill(process, SIGKILL);
  int state = 0;
  while (waitpid(process, &state, 0) < 0 && errno == EINTR) {
  }
  if (!ended) {
    return Status(StatusCode::kDeadlineExceeded, "it was ended after " + std::to_string(limit_s) + " s");
  }
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return output;
  const std::string how = WIFEXITED(state) ? "exit code " + std::to_string(WEXITSTATUS(state))
                                           : "signal " + std::to_string(WTERMSIG(state));
  return Status(StatusCode::kDriverError, how + ": " + LastLine(output));
}

}  // namespace commpool::cli
