// A line on the terminal that shows how far long work is. Nothing without a terminal. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace commpool::cli {

enum class Shown { kYes, kNo };  // of several ranks only the first shows it

class Progress {
 public:
  // Such as "stress order 12 of 100".
  Progress(std::string work, uint64_t total, Shown shown = Shown::kYes);
  // Clears the line, because results follow.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Whether there is a terminal.
  bool visible() const { return terminal_ != nullptr; }
  // `next`: the next part, such as a row's name. `done` parts are finished.
  void Show(uint64_t done, const std::string& next = "");

 private:
  const std::string work_;
  const uint64_t total_;
  uint64_t shown_percent_ = UINT64_MAX;
  std::FILE* terminal_ = nullptr;
};

}  // namespace commpool::cli
