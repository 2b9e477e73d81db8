#include "tools/stress/host/host_run.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace commpool::cli {

namespace {

using Clock = std::chrono::steady_clock;

void Require(int error, const char* call) {
  if (error != 0) throw std::system_error(error, std::generic_category(), call);
}

// A child whose output comes through a pipe.
class Child {
 public:
  explicit Child(const std::string& worker, const HostRun& run) {
    int ends[2];
    Require(pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno, "pipe2");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    std::string words[] = {worker, run.program, run.resource, std::to_string(run.nth)};
    char place[] = "place";
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr, nullptr};
    if (run.findings == Findings::kWithPlace) arguments[4] = place;
    const int error = posix_spawn(&process_, worker.c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    output_ = ends[0];
    if (error != 0) close(output_);
    Require(error, "posix_spawn of the worker");
  }
  ~Child() { close(output_); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // What it writes until it ends; false where it takes too long, and is ended.
  bool ReadAll(Clock::time_point deadline, std::string* text) {
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd readable = {output_, POLLIN, 0};
      if (left <= 0 || poll(&readable, 1, static_cast<int>(left)) == 0) {
        kill(process_, SIGKILL);
        return false;
      }
      char buffer[4096];
      const ssize_t bytes = read(output_, buffer, sizeof(buffer));
      if (bytes == 0) return true;
      if (bytes > 0) text->append(buffer, static_cast<size_t>(bytes));
    }
  }

  int Wait() {
    int status = 0;
    while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

 private:
  pid_t process_ = -1;
  int output_ = -1;
};

// "985 refused pool_create", the last line of a sound run.
void ReadLastLine(const std::string& text, HostOutcome* outcome) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = end == std::string::npos ? 0 : text.rfind('\n', end) + 1;
  const std::string line = text.substr(begin, end == std::string::npos ? 0 : end + 1 - begin);
  const size_t space = line.find(' ');
  outcome->count = std::strtoull(line.c_str(), nullptr, 10);
  if (space == std::string::npos) return;
  const std::string rest = line.substr(space + 1);
  if (rest.starts_with("refused")) outcome->end = HostEnd::kRefused;
  if (rest.starts_with("served")) outcome->end = HostEnd::kServed;
  if (rest.starts_with("not reached")) outcome->end = HostEnd::kNotReached;
}

}  // namespace

std::string Describe(const HostRun& run) { return run.program + " " + run.resource + " " + std::to_string(run.nth); }

bool IsFailure(HostEnd end) {
  return end != HostEnd::kRefused && end != HostEnd::kServed && end != HostEnd::kNotReached;
}

std::string FindHostWorker() {
  const std::filesystem::path worker =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "host" / "host_worker";
  return access(worker.c_str(), X_OK) == 0 ? worker.string() : "";
}

HostOutcome RunHostWorker(const std::string& worker, const HostRun& run, std::chrono::seconds limit) {
  HostOutcome outcome;
  Child child(worker, run);
  const bool ended = child.ReadAll(Clock::now() + limit, &outcome.findings);
  const int status = child.Wait();
  if (!ended) {
    outcome.end = HostEnd::kHung;
  } else if (WIFSIGNALED(status)) {
    outcome.end = WTERMSIG(status) == SIGABRT ? HostEnd::kAborted : HostEnd::kCrashed;
  } else if (WEXITSTATUS(status) == 0) {
    ReadLastLine(outcome.findings, &outcome);
  }
  return outcome;
}

}  // namespace commpool::cli
