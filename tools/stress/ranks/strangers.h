// Strangers at a port of the library: silent ones, talking ones, and some that leave in the middle of a word.
#ifndef COMMPOOL_TOOLS_STRESS_RANKS_STRANGERS_H_
#define COMMPOOL_TOOLS_STRESS_RANKS_STRANGERS_H_

#include <atomic>
#include <cstdint>
#include <thread>

namespace commpool::cli::stress_ranks {

// Connects again and again until its end, on a thread of its own.
class Strangers {
 public:
  Strangers(int listener, uint64_t seed);
  ~Strangers();
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

 private:
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace commpool::cli::stress_ranks

#endif  // COMMPOOL_TOOLS_STRESS_RANKS_STRANGERS_H_
