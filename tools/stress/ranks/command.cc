// commpool_stress ranks: processes die, stop, come late and disagree, at every point of the protocol.
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/library/base/try.h"
#include "tools/common/progress.h"
#include "tools/stress/commands.h"
#include "tools/stress/emulated_run.h"
#include "tools/stress/ranks/judge.h"
#include "tools/stress/ranks/launcher.h"
#include "tools/stress/ranks/record.h"
#include "tools/stress/ranks/schedule.h"
#include "tools/stress/ranks/worker.h"

namespace commpool::cli {

namespace stress_ranks {

namespace {

// Counts how often each kind of fault happened at each point of the protocol, and how often survivors continued.
class Coverage {
 public:
  void Add(const Schedule& schedule, const std::vector<RankRecord>& records);

  // A line for each point, a column for each kind; "-" where such a fault makes no sense. Below, if there were any, the
  // pools that survivors moved to a home of their own.
  std::string Table() const;

 private:
  std::map<std::pair<Point, Kind>, uint64_t> counts_;
  uint64_t moved_ = 0;
};

void Coverage::Add(const Schedule& schedule, const std::vector<RankRecord>& records) {
  for (const RankRecord& record : records) moved_ += record.moved;
  for (const Fault& fault : schedule.faults) {
    for (const FaultRecord& happened : records[static_cast<size_t>(fault.victim)].faults) {
      ++counts_[{happened.point, fault.kind}];
    }
  }
}

std::string Coverage::Table() const {
  constexpr int kPointWidth = 20;
  constexpr int kKindWidth = 9;
  std::ostringstream table;
  table << std::left << std::setw(kPointWidth) << "where" << std::right;
  for (const Kind kind : kKinds) table << std::setw(kKindWidth) << NameOf(kind);
  for (const Point point : kPoints) {
    table << '\n' << std::left << std::setw(kPointWidth) << NameOf(point) << std::right;
    for (const Kind kind : kKinds) {
      const auto count = counts_.find({point, kind});
      const std::string none = Happens(kind, point) ? "0" : "-";
      table << std::setw(kKindWidth) << (count == counts_.end() ? none : std::to_string(count->second));
    }
  }
  table << '\n';
  if (moved_ > 0)
    table << moved_ << " times a survivor moved a pool to a home of survivors, used and closed it there\n";
  return table.str();
}

struct Options {
  uint64_t schedules = 100;
  std::optional<uint64_t> only;  // from --schedule
  std::string ranks = "2:8";
  int hosts = 0;
  unsigned at_once = 2;
  uint64_t failures = 1;           // the run ends after so many
  std::vector<std::string> kinds;  // of faults; empty: all
  WorkerOptions worker;
  int worker_plant = 0;
};

// Runs several schedules at once, and prints what is wrong with one as soon as it is known.
class Series {
 public:
  Series(const Options& options, const RankCounts& ranks)
      : options_(options), ranks_(ranks), progress_("stress ranks: schedule", options.schedules) {}

  void Run() {
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < options_.at_once; ++thread) threads.emplace_back([this] { Work(); });
    for (std::thread& thread : threads) thread.join();
  }

  const Coverage& coverage() const { return coverage_; }
  uint64_t done() const { return done_; }
  uint64_t failures() const { return failures_; }

 private:
  void Work() {
    while (const std::optional<Schedule> schedule = Next()) {
      try {
        RunOne(*schedule);
      } catch (const std::exception& error) {
        const std::scoped_lock lock(mutex_);
        std::cout << "schedule " << schedule->number << ": " << error.what() << '\n';
        ++failures_;
      }
    }
  }

  // The next schedule whose faults are all of the requested kinds; nothing where enough have begun.
  std::optional<Schedule> Next() {
    const std::scoped_lock lock(mutex_);
    if (begun_ == options_.schedules || failures_ >= options_.failures) return std::nullopt;
    ++begun_;
    if (options_.only) return MakeOne(*options_.only);
    while (true) {
      Schedule schedule = MakeOne(next_++);
      if (IsAskedFor(schedule)) return schedule;
    }
  }

  Schedule MakeOne(uint64_t number) const { return MakeSchedule(options_.worker.seed, number, ranks_.Of(number)); }

  bool IsAskedFor(const Schedule& schedule) const {
    const std::vector<std::string>& kinds = options_.kinds;
    return kinds.empty() || std::all_of(schedule.faults.begin(), schedule.faults.end(), [&](const Fault& fault) {
             return std::find(kinds.begin(), kinds.end(), NameOf(fault.kind)) != kinds.end();
           });
  }

  void RunOne(const Schedule& schedule) {
    WorkerOptions common = options_.worker;
    common.number = schedule.number;
    common.ranks = schedule.ranks;
    const std::vector<RankRecord> records = Launch(schedule, common, options_.hosts);
    const std::vector<std::string> wrong = Judge(schedule, records, common.deadline_ms);
    const std::scoped_lock lock(mutex_);
    coverage_.Add(schedule, records);
    progress_.Show(++done_);
    if (wrong.empty()) return;
    ++failures_;
    Tell(schedule, records, wrong);
  }

  void Tell(const Schedule& schedule, const std::vector<RankRecord>& records, const std::vector<std::string>& wrong) {
    std::cout << "schedule " << schedule.number << ": " << Describe(schedule) << '\n';
    for (const std::string& line : wrong) std::cout << "  " << line << '\n';
    for (size_t rank = 0; rank < records.size(); ++rank) {
      if (!records[rank].output.empty()) std::cout << "  output of rank " << rank << ":\n" << records[rank].output;
    }
    std::cout << "  again: commpool_stress ranks --schedule " << schedule.number << " --seed " << options_.worker.seed
              << " --ranks " << options_.ranks << " --deadline-ms " << options_.worker.deadline_ms << '\n'
              << std::flush;
  }

  const Options& options_;
  const RankCounts ranks_;
  std::mutex mutex_;  // guards the members below
  Progress progress_;
  Coverage coverage_;
  uint64_t next_ = 0;
  uint64_t begun_ = 0;
  uint64_t done_ = 0;
  uint64_t failures_ = 0;
};

Result<int> Run(Options options) {
  if (options.worker.rank >= 0) {
    options.worker.plant = static_cast<Plant>(options.worker_plant);
    options.worker.number = options.only.value_or(0);
    options.worker.ranks = std::stoi(options.ranks);
    return RunWorker(options.worker);
  }
  const RankCounts ranks = COMMPOOL_TRY(ParseRanks(options.ranks));
  COMMPOOL_TRY(CheckEmulated("ranks that die would leave memory of a GPU behind"));
  if (options.only) options.schedules = 1;
  Series series(options, ranks);
  series.Run();
  std::cout << series.coverage().Table();
  if (options.worker.plant != Plant::kNone) {
    std::cout << "planted: " << cli::NameOf(kPlants, options.worker.plant) << '\n';
  }
  std::cout << series.done() << " schedules, " << series.failures() << " failures\n";
  return Verdict(series.failures() == 0, options.worker.plant != Plant::kNone);
}

std::vector<std::string> KindNames() {
  std::vector<std::string> names;
  for (const Kind kind : kKinds) names.push_back(NameOf(kind));
  return names;
}

// The options that the command passes to its processes.
void AddWorkerOptions(Command command, Options& options) {
  const std::string hidden;
  command.AddOption("--worker", options.worker.rank).Hidden();
  command.AddOption("--control", options.worker.control).Hidden();
  command.AddOption("--host", options.worker.host).Hidden();
  command.AddOption("--worker-plant", options.worker_plant).Hidden();
}

}  // namespace

}  // namespace stress_ranks

void AddStressRanks(Command app) {
  using stress_ranks::Options;
  Command command =
      app.Add("ranks", "Processes that die, stop, come late and disagree, at every point of the protocol");
  command.Footer(
      "Each schedule starts a process a rank, which make pools, communicators and calls on them, until a fault meets\n"
      "one of them. No survivor may wait longer than its deadline and 2 s, name a healthy rank, differ from another\n"
      "survivor, or leave anything behind. A machine that is too slow for that fails it.\n"
      "Examples:\n"
      "  commpool_stress ranks --schedules 2000\n"
      "  commpool_stress ranks --schedule 471 --seed 3    (one of them again)\n"
      "  commpool_stress ranks --plant wrong-name\n"
      "  unshare --net --mount tests/hosts/hosts.sh 3 8 FOLDER commpool_stress ranks --hosts 3");
  auto options = std::make_shared<Options>();
  command.AddOption("--schedules", options->schedules, "How many").Positive().ShowPreset();
  command.AddOption("--schedule", options->only, "The number of one, to run it alone");
  command.AddOption("--seed", options->worker.seed, "Of all of them").ShowPreset();
  command.AddOption("--ranks", options->ranks, "2 to 8, or LEAST:MOST").ShowPreset();
  command.AddOption("--hosts", options->hosts, "Named network namespaces, host1 and so on, that the ranks are put in")
      .Between(0, 64)
      .ShowPreset();
  command.AddOption("--deadline-ms", options->worker.deadline_ms, "Of every pool").Positive().ShowPreset();
  command.AddOption("--at-once", options->at_once, "Schedules that run side by side").Between(1, 64).ShowPreset();
  command.AddOption("--failures", options->failures, "The run ends after so many").Positive().ShowPreset();
  command.AddOption("--kinds", options->kinds, "Of faults, separated by commas; all unless given")
      .SeparatedByCommas()
      .OneOf(stress_ranks::KindNames());
  AddChoice(command, "--plant", options->worker.plant, stress_ranks::kPlants, "A fault that must be found");
  stress_ranks::AddWorkerOptions(command, *options);
  command.Do([options] { return stress_ranks::Run(*options); });
}

}  // namespace commpool::cli
