#include "tools/stress/ranks/rank_process.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "tools/common/process.h"
#include "tools/stress/ranks/control.h"

namespace commpool::cli::stress_ranks {

namespace {

// The descriptor in the child: above all that the command has open, so that no duplicate gets its own number.
constexpr int kControlOfChild = 900;

}  // namespace

RankProcess::RankProcess(std::vector<std::string> arguments, const std::vector<std::string>& variables) {
  std::array<int, 2> ends = {-1, -1};
  const int paired = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data());
  output_ = internal::FileDescriptor(memfd_create("output", MFD_CLOEXEC));
  if (paired != 0 || !output_.valid()) {
    throw std::runtime_error(std::string("no descriptors for a rank's process: ") + std::strerror(errno));
  }
  control_ = internal::FileDescriptor(ends[0]);
  const internal::FileDescriptor of_child(ends[1]);
  arguments.insert(arguments.end(), {"--control", std::to_string(kControlOfChild)});
  const int output = output_.get();
  process_ =
      StartProcess({.program = kOwnProgram,
                    .words = std::move(arguments),
                    .variables = variables,
                    .files = {{output, STDOUT_FILENO}, {output, STDERR_FILENO}, {of_child.get(), kControlOfChild}},
                    .own_group = true})
          .value();
}

RankProcess::~RankProcess() {
  if (process_ <= 0) return;
  kill(-process_, SIGKILL);
  if (!wait_status_) waitpid(process_, nullptr, 0);
}

void RankProcess::Send(const std::string& line) {
  const std::string text = line + "\n";
  // A process that has ended reads no more.
  static_cast<void>(send(control_.get(), text.data(), text.size(), MSG_NOSIGNAL));
}

std::vector<std::string> RankProcess::Receive() {
  std::array<char, 4096> bytes = {};
  while (true) {
    const ssize_t count = recv(control_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count <= 0) return TakeLines(unread_);
    unread_.append(bytes.data(), static_cast<size_t>(count));
  }
}

std::string RankProcess::Output() const {
  std::string text;
  std::array<char, 4096> bytes = {};
  for (ssize_t count = 1; count > 0;) {
    count = pread(output_.get(), bytes.data(), bytes.size(), static_cast<off_t>(text.size()));
    if (count > 0) text.append(bytes.data(), static_cast<size_t>(count));
  }
  return text;
}

RankProcess::Change RankProcess::Ask() {
  int status = 0;
  if (wait_status_ || waitpid(process_, &status, WNOHANG | WUNTRACED) != process_) return Change::kNone;
  if (WIFSTOPPED(status)) return Change::kStopped;
  wait_status_ = status;
  return Change::kEnded;
}

void RankProcess::Continue() { kill(process_, SIGCONT); }

}  // namespace commpool::cli::stress_ranks
