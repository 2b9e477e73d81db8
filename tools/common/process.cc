#include "tools/common/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "src/library/base/file_descriptor.h"
#include "src/library/base/try.h"

namespace commpool::cli {

namespace {

using Clock = std::chrono::steady_clock;

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> EnvironmentWith(std::vector<std::string> variables) {
  const size_t given = variables.size();
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string variable = *one;
    const std::string name = variable.substr(0, variable.find('=') + 1);
    const auto same = [&](const std::string& other) { return other.starts_with(name); };
    const auto end = variables.begin() + static_cast<long>(given);
    if (std::none_of(variables.begin(), end, same)) variables.push_back(variable);
  }
  return variables;
}

// Reads until the other end is closed. False where that takes too long.
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

Result<pid_t> StartProcess(const ProcessStart& start) {
  std::vector<std::string> words = start.words;
  std::vector<std::string> environment = EnvironmentWith(start.variables);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  for (const auto& [ours, its] : start.files) posix_spawn_file_actions_adddup2(&files, ours, its);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  if (start.own_group) posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t process = -1;
  const int error = posix_spawn(&process, start.program.c_str(), &files, &attributes, Pointers(words).data(),
                                Pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) return process;
  return Status(StatusCode::kOutOfMemory, "cannot start " + start.program + ": " + std::strerror(error));
}

Result<ProcessEnd> RunProcess(ProcessStart start, OutputOf output, std::chrono::seconds limit) {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Status(StatusCode::kOutOfMemory, std::string("pipe2 failed: ") + std::strerror(errno));
  }
  const internal::FileDescriptor reading(ends[0]);
  internal::FileDescriptor writing(ends[1]);
  start.files.emplace_back(writing.get(), STDOUT_FILENO);
  if (output == OutputOf::kStdoutAndStderr) start.files.emplace_back(writing.get(), STDERR_FILENO);
  const pid_t process = COMMPOOL_TRY(StartProcess(start));
  writing = internal::FileDescriptor();
  ProcessEnd end;
  end.in_time = ReadAll(reading.get(), Clock::now() + limit, end.output);
  if (!end.in_time) kill(process, SIGKILL);
  while (waitpid(process, &end.state, 0) < 0 && errno == EINTR) {
  }
  return end;
}

}  // namespace commpool::cli
