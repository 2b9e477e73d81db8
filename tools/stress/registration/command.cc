// commpool_stress registration: random schedules of collective calls, with emulated ranks in one process.
#include <cstdlib>
#include <iostream>
#include <map>

#include "src/library/base/try.h"
#include "tools/common/progress.h"
#include "tools/stress/commands.h"
#include "tools/stress/emulated_run.h"
#include "tools/stress/registration/machine.h"
#include "tools/stress/registration/watchdog.h"

namespace commpool::cli {

namespace {

struct RegistrationStress {
  uint64_t schedules = 1000;
  uint64_t first = 0;
  uint64_t seed = 1;
  std::string ranks = "2:8";
  RegistrationPlant plant = RegistrationPlant::kNone;
  RegistrationDeadlines deadlines;
  unsigned watchdog_s = 120;
};

const std::map<std::string, RegistrationPlant> kPlants = {{"skip-deregister", RegistrationPlant::kSkipDeregister},
                                                          {"swap-calls", RegistrationPlant::kSwapCalls},
                                                          {"drop-rank", RegistrationPlant::kDropRank},
                                                          {"unequal-sizes", RegistrationPlant::kUnequalSizes}};

// Small segments make schedules cheap. Keeps what the user declared.
void DescribeEmulator() {
  setenv("COMMPOOL_EMULATOR", "devices=8,memory=1GiB,granularity=64KiB,nccl_timeout_ms=20000", 0);
  setenv("COMMPOOL_LOG", "error", 0);  // pools end without close() on purpose here
}

struct Counts {
  uint64_t schedules = 0;
  uint64_t failures = 0;
};

Counts RunAll(const RegistrationStress& stress, const RankCounts& ranks, RegistrationMachine& machine) {
  RegistrationWatchdog watchdog{std::chrono::seconds(stress.watchdog_s)};
  Counts counts;
  const uint64_t planted = stress.schedules / 2;
  Progress progress("stress registration: schedule", stress.schedules);
  for (uint64_t index = 0; index < stress.schedules && counts.failures == 0; ++index, ++counts.schedules) {
    progress.Show(index);
    const auto plant = index == planted ? stress.plant : RegistrationPlant::kNone;
    const uint64_t number = stress.first + index;
    const Schedule schedule = MakeSchedule(stress.seed, number, ranks.Of(number), plant);
    if (plant != RegistrationPlant::kNone) {
      std::cout << "planted: " << NameOf(kPlants, plant) << " in schedule " << schedule.number << ", rank "
                << schedule.victim << ", step " << schedule.planted_at << '\n';
    }
    const std::vector<std::string> violations =
        machine.Run(schedule, stress.deadlines, [&](const ScheduleRun* run) { watchdog.Set(run); });
    for (const std::string& violation : violations) {
      std::cout << "violation: schedule " << schedule.number << " of " << schedule.ranks << " ranks, " << violation
                << '\n';
    }
    if (!violations.empty()) ++counts.failures;
  }
  return counts;
}

Result<int> Run(const RegistrationStress& stress) {
  const RankCounts ranks = COMMPOOL_TRY(ParseRanks(stress.ranks));
  DescribeEmulator();
  const std::shared_ptr<const internal::Driver> driver =
      COMMPOOL_TRY(LoadEmulatedDriver("ranks of one process and their faults are the emulator's"));
  Counts counts;
  std::vector<std::string> left;
  {
    RegistrationMachine machine(driver);
    counts = RunAll(stress, ranks, machine);
    left = machine.Finish();
  }
  if (counts.failures == 0) {
    for (const std::string& line : left) std::cout << "violation: at the end: " << line << '\n';
    if (!left.empty()) ++counts.failures;
  }
  std::cout << counts.schedules << " schedules, " << counts.failures << " failures\n";
  return Verdict(counts.failures == 0, stress.plant != RegistrationPlant::kNone);
}

}  // namespace

void AddStressRegistration(Command app) {
  Command command = app.Add(
      "registration", "Collective calls of symmetric pools in random schedules, on emulated ranks of one process");
  command.Footer(
      "Each schedule makes a pool on every rank, registers, reserves, allocates, frees, sums (every element is\n"
      "checked), reclaims, trims, deregisters, abandons, and in some a rank ends. Nothing may be left behind.\n"
      "Examples:\n"
      "  commpool_stress registration --schedules 10000\n"
      "  commpool_stress registration --schedules 1 --first 4711    (one of them again)\n"
      "  commpool_stress registration --schedules 10 --plant swap-calls");
  auto stress = std::make_shared<RegistrationStress>();
  command.AddOption("--schedules", stress->schedules, "How many").Positive().ShowPreset();
  command.AddOption("--first", stress->first, "Number of the first one, which its steps follow from").ShowPreset();
  command.AddOption("--seed", stress->seed, "Of all of them").ShowPreset();
  command.AddOption("--ranks", stress->ranks, "2 to 8, or LEAST:MOST").ShowPreset();
  command.AddOption("--deadline-ms", stress->deadlines.usual_ms, "Of collective calls").Positive().ShowPreset();
  command.AddOption("--short-deadline-ms", stress->deadlines.short_ms, "The same where a rank ends without a word")
      .Positive()
      .ShowPreset();
  command.AddOption("--watchdog-s", stress->watchdog_s, "A schedule that takes longer fails the run")
      .Between(1, 3600)
      .ShowPreset();
  AddChoice(command, "--plant", stress->plant, kPlants, "A fault that must be found");
  command.Do([stress] { return Run(*stress); });
}

}  // namespace commpool::cli
