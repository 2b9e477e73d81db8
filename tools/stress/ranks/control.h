// The connection between the command and one of its processes: lines of text, both ways.
//
// Any thread may send; one receives. A process whose command has gone ends itself.
#ifndef COMMPOOL_TOOLS_STRESS_RANKS_CONTROL_H_
#define COMMPOOL_TOOLS_STRESS_RANKS_CONTROL_H_

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace commpool::cli::stress_ranks {

class Control {
 public:
  explicit Control(int descriptor) : descriptor_(descriptor) {}

  void Send(const std::string& line);

  // The value of the line "WORD NAME VALUE", where `key` is "WORD NAME". Waits for it; others are kept until asked for.
  std::string Await(const std::string& key);

 private:
  const int descriptor_;
  std::mutex sending_;
  std::string unread_;
  std::map<std::string, std::string> values_;
};

// The complete lines in `bytes`, which keeps the rest.
std::vector<std::string> TakeLines(std::string& bytes);

}  // namespace commpool::cli::stress_ranks

#endif  // COMMPOOL_TOOLS_STRESS_RANKS_CONTROL_H_
