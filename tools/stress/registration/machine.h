// Runs schedules one after the other, and finds what they leave behind. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/stress/registration/rank.h"

namespace commpool::cli {

struct RegistrationDeadlines {
  uint64_t usual_ms = 20000;
  uint64_t short_ms = 500;
};

class RegistrationMachine {
 public:
  explicit RegistrationMachine(std::shared_ptr<const internal::Driver> driver);

  // Returns the violations, one line each. `on_run` gets the run when it begins, and null when it has ended.
  std::vector<std::string> Run(const Schedule& schedule, const RegistrationDeadlines& deadlines,
                               const std::function<void(const ScheduleRun*)>& on_run);
  // Ends runtime and ranks. Returns what all schedules have left together.
  std::vector<std::string> Finish();

 private:
  Status NeedRanks(const Schedule& schedule);
  // Memory, mappings and registrations that did not exist before the first schedule.
  std::vector<std::string> Leftovers() const;
  // Releases what pools without close() left, as the end of their process would. Returns what is wrong with it.
  std::vector<std::string> FreeLeftovers(uint64_t expected_bytes);

  const std::shared_ptr<const internal::Driver> driver_;
  std::vector<std::string> before_;  // the emulator's leaks at the start
  std::unique_ptr<internal::Runtime> runtime_;
  std::unique_ptr<StressRanks> ranks_;
  bool abandoned_ = false;  // a pool ended without close(), and kept its device's context
};

}  // namespace commpool::cli
