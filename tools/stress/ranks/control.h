// The connection between the command and one of its processes: lines of text in both directions.
//
// Any thread may send; one thread receives. A process ends itself when its command is gone.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace commpool::cli::stress_ranks {

class Control {
 public:
  explicit Control(int descriptor) : descriptor_(descriptor) {}

  void Send(const std::string& line);

  // Waits for the line "WORD NAME VALUE" with `key` "WORD NAME"; returns the value. Keeps other lines until asked for.
  std::string Await(const std::string& key);

 private:
  const int descriptor_;
  std::mutex sending_;
  std::string unread_;
  std::map<std::string, std::string> values_;
};

// Takes the complete lines out of `bytes`; the rest stays.
std::vector<std::string> TakeLines(std::string& bytes);

}  // namespace commpool::cli::stress_ranks
