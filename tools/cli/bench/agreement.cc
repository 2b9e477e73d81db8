// commpool bench agreement: what one round of agreement between the ranks costs.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>

#include "commpool/pool.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/ranks.h"

namespace commpool::cli {

namespace {

struct Arguments {
  int rounds = 1000;
  OutputOptions output;
};

// Microseconds of each of some rounds on this rank.
template <typename Round>
Result<std::vector<double>> Time(int rounds, Round&& round) {
  using Clock = std::chrono::steady_clock;
  constexpr int kWarmUp = 20;
  std::vector<double> times;
  for (int turn = -kWarmUp; turn < rounds; ++turn) {
    const Clock::time_point start = Clock::now();
    Status status = round();
    if (!status.ok()) return status;
    if (turn >= 0) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return times;
}

double Percentile99(std::vector<double> times) {
  const auto place = times.begin() + static_cast<std::ptrdiff_t>(times.size() * 99 / 100);
  std::nth_element(times.begin(), place, times.end());
  return *place;
}

struct Figures {
  double median_us = 0;  // each of the slowest rank
  double p99_us = 0;
  double barrier_us = 0;  // MPI's own, which exchanges nothing
};

// A reclaim of a pool that has nothing to take back is one round, the intents of all ranks, and no more.
Result<Figures> Measure(const Ranks& ranks, const RankDevice& device, int rounds) {
  Result<Pool> pool = Pool::create({.device = device.device, .symmetric_across = device.communicator});
  if (!pool.ok()) return pool.status();
  Result<std::vector<double>> times = Time(rounds, [&] { return pool->reclaim().status(); });
  if (!times.ok()) return times.status();
  Result<std::vector<double>> barriers = Time(rounds, [&] {
    ranks.Wait();
    return Status();
  });
  Status status = pool->close();
  if (!status.ok()) return status;
  return Figures{ranks.Max(Median(*times)), ranks.Max(Percentile99(*times)), ranks.Max(Median(*barriers))};
}

int Run(const Arguments& arguments) {
  const Ranks ranks;
  Result<std::unique_ptr<RankDevice>> device = OpenRankDevice(ranks, "bench agreement");
  const auto fail = [&](const Status& status) {
    std::cerr << "commpool bench agreement: rank " << ranks.rank() << ": " << status.message() << '\n';
    return kFailed;
  };
  if (!device.ok()) return kFailed;
  const Result<Figures> figures = Measure(ranks, **device, arguments.rounds);
  if (!figures.ok()) return fail(figures.status());
  if (!ranks.first()) return kSuccess;
  const std::string& driver = (*device)->driver->description;
  const nlohmann::json results = {{"driver", driver},           {"ranks", ranks.count()},
                                  {"rounds", arguments.rounds}, {"median_us", figures->median_us},
                                  {"p99_us", figures->p99_us},  {"mpi_barrier_us", figures->barrier_us}};
  if (arguments.output.json) {
    std::cout << results.dump(2) << '\n';
  } else {
    std::printf("# %s\n# %s, %s over TCP, real time of the slowest rank\n%14s %14s %18s\n", driver.c_str(),
                Counted(ranks.count(), "rank").c_str(), Counted(arguments.rounds, "round").c_str(), "median us",
                "99 % us", "MPI barrier us");
    std::printf("%14.1f %14.1f %18.1f\n", figures->median_us, figures->p99_us, figures->barrier_us);
  }
  Record(arguments.output, driver, results);
  return kSuccess;
}

}  // namespace

void AddBenchAgreement(CLI::App& bench, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand("agreement", "One round of agreement between the ranks of a symmetric pool");
  command->footer("Example:\n  mpirun -np 4 commpool bench agreement");
  command->add_option("--rounds", arguments->rounds, "That are counted")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  AddOutputOptions(*command, arguments->output);
  command->callback([arguments, &exit_code] { exit_code = Run(*arguments); });
}

}  // namespace commpool::cli
