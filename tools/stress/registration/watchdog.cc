#include "tools/stress/registration/watchdog.h"

#include <cstdlib>
#include <iostream>

#include "tools/common/command.h"

namespace commpool::cli {

RegistrationWatchdog::RegistrationWatchdog(std::chrono::seconds limit) : limit_(limit), thread_([this] { Watch(); }) {}

RegistrationWatchdog::~RegistrationWatchdog() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void RegistrationWatchdog::Set(const ScheduleRun* run) {
  {
    const std::scoped_lock lock(mutex_);
    run_ = run;
    ++turn_;
  }
  changed_.notify_one();
}

void RegistrationWatchdog::Watch() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    const uint64_t turn = turn_;
    const bool went_on = changed_.wait_for(lock, limit_, [&] { return over_ || turn_ != turn; });
    if (went_on || run_ == nullptr) continue;
    Bark(*run_);
  }
}

void RegistrationWatchdog::Bark(const ScheduleRun& run) const {
  const Schedule& schedule = run.schedule;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::vector<Step> steps = schedule.StepsOf(rank);
    const size_t at = run.steps[static_cast<size_t>(rank)].load();
    std::cout << "hang: schedule " << schedule.number << " of " << schedule.ranks << " ranks: rank " << rank
              << " is in step " << at << " (" << (at < steps.size() ? Describe(steps[at]) : "close") << ")\n";
  }
  std::cout << "no schedule takes " << limit_.count() << " s\n" << std::flush;
  std::_Exit(kFailed);  // nothing else ends its threads
}

}  // namespace commpool::cli
