// Ends the process where a schedule takes too long, and prints where its ranks are: they would wait for ever.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tools/stress/registration/rank.h"

namespace commpool::cli {

// One thread uses it; it has a thread of its own.
class RegistrationWatchdog {
 public:
  explicit RegistrationWatchdog(std::chrono::seconds limit);
  ~RegistrationWatchdog();
  RegistrationWatchdog(const RegistrationWatchdog&) = delete;
  RegistrationWatchdog& operator=(const RegistrationWatchdog&) = delete;

  // The running schedule; null between two.
  void Set(const ScheduleRun* run);

 private:
  void Watch();
  [[noreturn]] void Bark(const ScheduleRun& run) const;

  const std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const ScheduleRun* run_ = nullptr;
  uint64_t turn_ = 0;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace commpool::cli
