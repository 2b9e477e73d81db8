// Tells a user how far something is that takes over a second: a line that is written again and again on a terminal,
// else one line of the log at its end (COMMPOOL_LOG=info). What is done sooner is told nobody. A line
// that the host has no memory for is left out. One thread at a time.
#ifndef COMMPOOL_SRC_BASE_PROGRESS_H_
#define COMMPOOL_SRC_BASE_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace commpool::internal {

class Progress {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Where it runs: a clock, and whoever hears of it.
  struct Surroundings {
    Time (*now)();
    bool terminal;
    void (*show)(const std::string& text);  // on the terminal, as it is
    void (*log)(const std::string& line);
  };
  static Surroundings OfTheProcess();

  // `what`: "pool weights (vmm, device 0): keeping".
  Progress(std::string what, uint64_t bytes, const Surroundings& around = OfTheProcess());
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // It has ended, or failed.
  ~Progress();

  void Advance(uint64_t bytes);

 private:
  std::string Line(Time now) const;

  const std::string what_;
  const uint64_t bytes_;
  const Surroundings around_;
  const Time begin_;
  Time shown_;
  uint64_t done_ = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_PROGRESS_H_
