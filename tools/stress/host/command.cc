// commpool_stress host: for each thread start and descriptor that the library asks for, lets it fail once.
#include <algorithm>
#include <atomic>
#include <iomanip>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "src/library/base/try.h"
#include "tools/common/progress.h"
#include "tools/stress/commands.h"
#include "tools/stress/emulated_run.h"
#include "tools/stress/host/host_run.h"

namespace commpool::cli {

namespace {

struct HostStress {
  uint64_t sample = 0;  // 0: every one
  uint64_t seed = 1;
  uint64_t nth = 0;  // 0: all
  unsigned jobs = 2;
  unsigned watchdog_s = 60;
  std::vector<std::string> programs = {"fixed", "expandable", "symmetric"};
  std::vector<std::string> resources = {"thread", "descriptor"};
};

const std::vector<std::pair<HostEnd, const char*>> kEnds = {
    {HostEnd::kRefused, "refused"}, {HostEnd::kServed, "served"},   {HostEnd::kNotReached, "not reached"},
    {HostEnd::kBroken, "broken"},   {HostEnd::kAborted, "aborted"}, {HostEnd::kCrashed, "crashed"},
    {HostEnd::kHung, "hung"}};

Result<std::vector<HostRun>> Plan(const std::string& worker, const HostStress& stress) {
  std::vector<HostRun> runs;
  for (const std::string& program : stress.programs) {
    for (const std::string& resource : stress.resources) {
      if (stress.nth != 0) {
        runs.push_back({program, resource, stress.nth, Findings::kWithPlace});
        continue;
      }
      const HostOutcome counted =
          COMMPOOL_TRY(RunHostWorker(worker, {program, resource, 0}, std::chrono::seconds(stress.watchdog_s)));
      if (counted.end != HostEnd::kNotReached) {
        return Status(StatusCode::kInternal, program + " fails where nothing was made to fail:\n" + counted.findings);
      }
      for (uint64_t nth = 1; nth <= counted.count; ++nth) runs.push_back({program, resource, nth});
    }
  }
  std::mt19937_64 random(stress.seed);
  if (stress.sample != 0 && stress.sample < runs.size()) {
    std::shuffle(runs.begin(), runs.end(), random);
    runs.resize(stress.sample);
  }
  return runs;
}

std::vector<HostOutcome> RunAll(const std::string& worker, const std::vector<HostRun>& runs, const HostStress& stress) {
  std::vector<HostOutcome> outcomes(runs.size());
  std::atomic<size_t> next{0};
  std::mutex mutex;  // of the progress
  Progress progress("stress host: run", runs.size());
  std::vector<std::thread> threads;
  for (unsigned job = 0; job < stress.jobs; ++job) {
    threads.emplace_back([&] {
      for (size_t index = next++; index < runs.size(); index = next++) {
        const auto limit = std::chrono::seconds(stress.watchdog_s);
        outcomes[index] = RunHostWorker(worker, runs[index], limit).value();
        const std::lock_guard<std::mutex> lock(mutex);
        progress.Show(index);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// Counts the runs' outcomes by program and resource.
void PrintTable(const std::vector<HostRun>& runs, const std::vector<HostOutcome>& outcomes) {
  std::map<std::pair<std::string, std::string>, std::map<HostEnd, uint64_t>> table;
  for (size_t index = 0; index < runs.size(); ++index) {
    ++table[{runs[index].program, runs[index].resource}][outcomes[index].end];
  }
  std::cout << std::left << std::setw(12) << "program" << std::setw(12) << "fault" << std::right;
  for (const auto& [end, name] : kEnds) std::cout << std::setw(12) << name;
  std::cout << '\n';
  for (auto& [row, ends] : table) {
    std::cout << std::left << std::setw(12) << row.first << std::setw(12) << row.second << std::right;
    for (const auto& [end, name] : kEnds) std::cout << std::setw(12) << ends[end];
    std::cout << '\n';
  }
}

Result<int> Run(const HostStress& stress) {
  const std::string worker = FindHostWorker();
  if (worker.empty()) {
    return Status(StatusCode::kNotSupported,
                  "the program whose threads fail, host/host_worker, is not beside this one");
  }
  const std::vector<HostRun> runs = COMMPOOL_TRY(Plan(worker, stress));
  const std::vector<HostOutcome> outcomes = RunAll(worker, runs, stress);
  uint64_t failures = 0;
  for (size_t index = 0; index < runs.size(); ++index) {
    if (!IsFailure(outcomes[index].end)) continue;
    ++failures;
    std::cout << "failure: " << Describe(runs[index]) << ": " << outcomes[index].findings << '\n';
  }
  PrintTable(runs, outcomes);
  std::cout << runs.size() << " runs, " << failures << " failures\n";
  return Verdict(failures == 0, false);
}

}  // namespace

void AddStressHost(Command app) {
  Command command =
      app.Add("host", "One thread start or descriptor fails in a call of the library, on emulated devices");
  command.Footer(
      "Each run is a process of its own and lets one of them fail. The call must fail with a reason and change "
      "nothing,\n"
      "or work all the same; made again it works, and at the end nothing is left.\n"
      "Examples:\n"
      "  commpool_stress host\n"
      "  commpool_stress host --sample 100 --seed 3\n"
      "  commpool_stress host --program fixed --fault descriptor --nth 17    (one of them again)");
  auto stress = std::make_shared<HostStress>();
  command.AddOption("--sample", stress->sample, "So many of them, chosen by the seed; 0 for all").ShowPreset();
  command.AddOption("--seed", stress->seed, "Of the sample").ShowPreset();
  command.AddOption("--program", stress->programs, "fixed, expandable, symmetric; all where it is left out")
      .OneOf({"fixed", "expandable", "symmetric"});
  command.AddOption("--fault", stress->resources, "thread, descriptor; both where it is left out")
      .OneOf({"thread", "descriptor"});
  command.AddOption("--nth", stress->nth, "The one that fails; 0 for each").ShowPreset();
  command.AddOption("--jobs", stress->jobs, "Runs at a time").Between(1, 64).ShowPreset();
  command.AddOption("--watchdog-s", stress->watchdog_s, "A run that takes longer has hung")
      .Between(1, 3600)
      .ShowPreset();
  command.Do([stress] { return Run(*stress); });
}

}  // namespace commpool::cli
