// A line on the terminal that says how far long work has come. Nothing where no terminal is. One thread.
#ifndef COMMPOOL_TOOLS_COMMON_PROGRESS_H_
#define COMMPOOL_TOOLS_COMMON_PROGRESS_H_

#include <cstdint>
#include <cstdio>
#include <string>

namespace commpool::cli {

enum class Shown { kYes, kNo };  // of several ranks only the first shows its progress

class Progress {
 public:
  // "stress engine 12 of 100".
  Progress(std::string work, uint64_t total, Shown shown = Shown::kYes);
  // Clears the line: results follow.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Whether there is a terminal to show it on.
  bool visible() const { return terminal_ != nullptr; }
  // What comes next, for example a row's name. `done` parts are behind.
  void Show(uint64_t done, const std::string& next = "");

 private:
  const std::string work_;
  const uint64_t total_;
  uint64_t shown_percent_ = UINT64_MAX;
  std::FILE* terminal_ = nullptr;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_COMMON_PROGRESS_H_
