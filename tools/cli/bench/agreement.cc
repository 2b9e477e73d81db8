// commpool bench agreement: what one round of agreement between the ranks costs.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "commpool/pool.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/bench/simulated_agreement.h"
#include "tools/cli/ranks.h"

namespace commpool::cli {

namespace {

struct Arguments {
  int rounds = 1000;
  std::vector<int> simulate;  // numbers of ranks; empty: the ranks of this job
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

nlohmann::json Describe(const SimulatedRound& round) {
  return {{"ranks", round.ranks},
          {"busiest_messages", round.busiest.messages},
          {"busiest_bytes", round.busiest.bytes},
          {"other_messages", round.other.messages},
          {"other_bytes", round.other.bytes},
          {"median_us", round.median_us},
          {"p99_us", round.p99_us}};
}

int Simulate(const Arguments& arguments) {
  std::vector<SimulatedRound> sizes;
  nlohmann::json rows = nlohmann::json::array();
  for (const int ranks : arguments.simulate) {
    const Result<SimulatedRound> round = SimulateAgreement(ranks, arguments.rounds);
    if (!round.ok()) {
      std::cerr << "commpool bench agreement: " << round.status().message() << '\n';
      return round.status().code() == StatusCode::kNotSupported ? kRefused : kFailed;
    }
    sizes.push_back(*round);
    rows.push_back(Describe(*round));
  }
  nlohmann::json results = {{"rounds", arguments.rounds}, {"simulated", rows}};
  const bool several = std::adjacent_find(sizes.begin(), sizes.end(), [](const auto& one, const auto& other) {
                         return one.ranks != other.ranks;
                       }) != sizes.end();
  if (several) results["slope_of_bytes"] = SlopeOfBytes(sizes);
  if (arguments.output.json) {
    std::cout << results.dump(2) << '\n';
  } else {
    std::printf(
        "# ranks as threads of this process over its sockets, %s, real time of the slowest rank\n"
        "%8s %16s %16s %16s %16s %12s %12s\n",
        Counted(arguments.rounds, "round").c_str(), "ranks", "rank 0 messages", "rank 0 bytes", "other messages",
        "other bytes", "median us", "99 % us");
    for (const SimulatedRound& size : sizes) {
      std::printf("%8d %16.1f %16.0f %16.1f %16.0f %12.1f %12.1f\n", size.ranks, size.busiest.messages,
                  size.busiest.bytes, size.other.messages, size.other.bytes, size.median_us, size.p99_us);
    }
    if (several) std::printf("# rank 0's bytes grow as ranks^%.2f\n", SlopeOfBytes(sizes));
  }
  Record(arguments.output, "none", results);
  return kSuccess;
}

}  // namespace

void AddBenchAgreement(Command bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command = bench.Add("agreement", "One round of agreement between the ranks of a symmetric pool");
  command.Footer("Example:\n  mpirun -np 4 commpool bench agreement\n  commpool bench agreement --simulate 64,256");
  command.AddOption("--rounds", arguments->rounds, "That are counted").Between(1, 1'000'000).ShowPreset();
  command.AddOption("--simulate", arguments->simulate, "That many ranks in this process instead, such as 64,256,1024")
      .SeparatedByCommas()
      .Between(2, 10'000);
  AddOutputOptions(command, arguments->output);
  command.Do([arguments] { return arguments->simulate.empty() ? Run(*arguments) : Simulate(*arguments); });
}

}  // namespace commpool::cli
