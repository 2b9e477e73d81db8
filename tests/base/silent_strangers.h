// Strangers at a port: processes that connect, say nothing, and stay until the test ends them.
//
//   SilentStrangers strangers(address, 1100);   // early: it forks, and a process with threads forks only the caller's
//   strangers.AwaitAll();                       // all of them have connected, or wait in the port's queue
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "src/library/base/file_descriptor.h"
#include "src/library/base/socket.h"

namespace commpool::internal {

class SilentStrangers {
 public:
  SilentStrangers(const std::string& address, int count) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    arrived_ = FileDescriptor(ends[0]);
    const FileDescriptor arriving(ends[1]);
    for (; count > 0; count -= kEach) processes_.push_back(Start(address, std::min(count, kEach), arriving));
  }
  ~SilentStrangers() {
    for (const pid_t process : processes_) kill(process, SIGKILL);
    for (const pid_t process : processes_) waitpid(process, nullptr, 0);
  }
  SilentStrangers(const SilentStrangers&) = delete;
  SilentStrangers& operator=(const SilentStrangers&) = delete;

  // The listener may have to accept some meanwhile, because a port's queue is short. False where one could not connect.
  bool AwaitAll() const {
    size_t arrived = 0;
    char byte = 0;
    while (arrived < processes_.size() && read(arrived_.get(), &byte, 1) == 1) ++arrived;
    return arrived == processes_.size();
  }

 private:
  static constexpr int kEach = 400;  // for each process: descriptors are limited

  static pid_t Start(const std::string& address, int count, const FileDescriptor& arriving) {
    const pid_t process = fork();
    if (process != 0) return process;
    std::vector<Connection> silent;
    for (; count > 0; --count) {
      Result<Connection> connection = Connect(address, DeadlineAfter(std::chrono::seconds(60)));
      if (!connection.ok()) _exit(1);
      silent.push_back(std::move(*connection));
    }
    if (write(arriving.get(), "x", 1) != 1) _exit(1);
    close(arriving.get());  // a process that waits then sees the end when another one failed
    for (;;) pause();
  }

  FileDescriptor arrived_;
  std::vector<pid_t> processes_;
};

inline size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count - 1;  // one was the folder's
}

// While it lives this process may have only so many descriptors.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{std::min(most, before_.rlim_max), before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace commpool::internal
