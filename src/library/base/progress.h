// Tells a user how far long work is. On a terminal it writes one line again and again; elsewhere it logs one line when
// the work ends (COMMPOOL_LOG=info). Work of less than a second shows nothing. Where the host has no memory for a line,
// it leaves the line out. One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace commpool::internal {

class Progress {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // The clock, the terminal and the log. Tests pass their own.
  struct Surroundings {
    Time (*now)();
    bool terminal;
    void (*show)(const std::string& text);  // writes to the terminal, and adds nothing
    void (*log)(const std::string& line);
  };
  static Surroundings OfTheProcess();

  // `what`: the work, such as "pool weights (vmm, device 0): keeping". `bytes`: how many bytes it has to do.
  Progress(std::string what, uint64_t bytes, const Surroundings& around = OfTheProcess());
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // The work has ended, or failed.
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
