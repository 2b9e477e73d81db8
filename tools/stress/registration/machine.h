// Runs schedules one after the other and finds what they leave behind. One thread.
#ifndef COMMPOOL_TOOLS_STRESS_REGISTRATION_MACHINE_H_
#define COMMPOOL_TOOLS_STRESS_REGISTRATION_MACHINE_H_

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

  // What is wrong, a line each; empty where all is as it should be. `on_run` gets the run when it begins, null when it
  // has ended.
  std::vector<std::string> Run(const Schedule& schedule, const RegistrationDeadlines& deadlines,
                               const std::function<void(const ScheduleRun*)>& on_run);
  // Ends runtime and ranks: what is left of all schedules together.
  std::vector<std::string> Finish();

 private:
  Status NeedRanks(const Schedule& schedule);
  // Of memory, mappings and registrations: what there is now beyond what there was before the first schedule.
  std::vector<std::string> Leftovers() const;
  // Gives back what pools without close() left, as the end of their process would; what is wrong with it.
  std::vector<std::string> FreeLeftovers(uint64_t expected_bytes);

  const std::shared_ptr<const internal::Driver> driver_;
  std::vector<std::string> before_;  // the emulator's leaks
  std::unique_ptr<internal::Runtime> runtime_;
  std::unique_ptr<StressRanks> ranks_;
  bool abandoned_ = false;  // some pool ended without close(), and its device's context with it
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_REGISTRATION_MACHINE_H_
