// A rank's process, as the command sees it: its control connection, its output, its end. One thread.
#ifndef COMMPOOL_TOOLS_STRESS_RANKS_RANK_PROCESS_H_
#define COMMPOOL_TOOLS_STRESS_RANKS_RANK_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "src/base/file_descriptor.h"

namespace commpool::cli::stress_ranks {

class RankProcess {
 public:
  // Starts this program again; `arguments` get "--control DESCRIPTOR" in addition. Throws where the system refuses.
  RankProcess(std::vector<std::string> arguments, const std::vector<std::string>& variables);
  // Ends it, and what it left behind.
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  int control() const { return control_.get(); }
  void Send(const std::string& line);
  // The lines that came since, without waiting.
  std::vector<std::string> Receive();
  // What it wrote to stdout and stderr.
  std::string Output() const;

  enum class Change { kNone, kStopped, kEnded };
  // What became of it since the last question.
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

#endif  // COMMPOOL_TOOLS_STRESS_RANKS_RANK_PROCESS_H_
