// Ends held work while an allocation waits for the device. Work in a trace lasts until its stream's next event, but the
// thread that would make that event is waiting. In a program kernels end by themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "tools/cli/replay/trace_work.h"

namespace commpool::cli {

// One thread allocates; this class's own thread watches it.
class Rescue {
 public:
  explicit Rescue(TraceWork& work);
  ~Rescue();
  Rescue(const Rescue&) = delete;
  Rescue& operator=(const Rescue&) = delete;

  // Call these around each call that may wait.
  void Enter() { steps_.fetch_add(1, std::memory_order_relaxed); }
  void Leave() { steps_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void Watch();

  TraceWork& work_;
  std::atomic<uint64_t> steps_{0};  // odd inside a call
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace commpool::cli
