// A rank's process, as the command sees it: its connection, its output, its end. One thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "src/library/base/file_descriptor.h"

namespace commpool::cli::stress_ranks {

class RankProcess {
 public:
  // Starts this program again with `arguments` and "--control DESCRIPTOR". Throws where the system refuses.
  RankProcess(std::vector<std::string> arguments, const std::vector<std::string>& variables);
  // Ends the process and what it left behind.
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  int control() const { return control_.get(); }
  void Send(const std::string& line);
  // The lines that have come since the last call; does not wait.
  std::vector<std::string> Receive();
  // Its stdout and stderr.
  std::string Output() const;

  enum class Change { kNone, kStopped, kEnded };
  // What has happened to it since the last call.
  Change Ask();
  const std::optional<int>& wait_status() const { return wait_status_; }
  void Continue();

 private:
  internal::FileDescriptor control_;
  internal::FileDescriptor output_;
  pid_t process_ = -1;
  std::optional<int> wait_status_;
  std::string unread_;
};

}  // namespace commpool::cli::stress_ranks
