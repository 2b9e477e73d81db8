// commpool bench agreement: the cost of one round of agreement between the ranks.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "commpool/pool.h"
#include "commpool/pool_group.h"
#include "src/library/base/try.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/bench/simulated_agreement.h"
#include "tools/cli/ranks.h"

namespace commpool::cli {

namespace {

struct Arguments {
  int rounds = 1000;
  int pools = 4;
  std::vector<int> simulate;  // numbers of ranks; empty: the ranks of this job
  OutputOptions output;
};

// Times some rounds on this rank, in microseconds.
template <typename Round>
Result<std::vector<double>> Time(int rounds, Round&& round) {
  using Clock = std::chrono::steady_clock;
  constexpr int kWarmUp = 20;
  std::vector<double> times;
  for (int turn = -kWarmUp; turn < rounds; ++turn) {
    const Clock::time_point start = Clock::now();
    COMMPOOL_TRY(round());
    if (turn >= 0) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return times;
}

struct Measures {
  double median_us = 0;  // of the slowest rank
  double p99_us = 0;
  double in_turn_us = 0;  // several pools one after another; and in one call
  double together_us = 0;
  double barrier_us = 0;  // MPI's own barrier, which exchanges no data
};

// A reclaim of a pool without anything to take back is exactly one round: the intents of all ranks.
Result<Measures> Measure(const Ranks& ranks, const RankDevice& device, const Arguments& arguments) {
  const PoolOptions options = {.device = device.device, .symmetric_across = device.communicator};
  PoolGroup pools =
      COMMPOOL_TRY(PoolGroup::create(std::vector<PoolOptions>(static_cast<size_t>(arguments.pools), options)));
  const int rounds = arguments.rounds;
  const std::vector<double> alone = COMMPOOL_TRY(Time(rounds, [&] { return pools[0].reclaim().status(); }));
  const std::vector<double> in_turn = COMMPOOL_TRY(Time(rounds, [&] {
    Status status;
    for (size_t place = 0; place < pools.size() && status.ok(); ++place) status = pools[place].reclaim().status();
    return status;
  }));
  const std::vector<double> together = COMMPOOL_TRY(Time(rounds, [&] { return pools.reclaim().status(); }));
  Result<std::vector<double>> barriers = Time(rounds, [&] {
    ranks.Wait();
    return Status();
  });
  COMMPOOL_TRY(pools.close());
  return Measures{ranks.Max(Median(alone)), ranks.Max(Percentile99(alone)), ranks.Max(Median(in_turn)),
                  ranks.Max(Median(together)), ranks.Max(Median(*barriers))};
}

Result<int> Run(const Ranks& ranks, const Arguments& arguments) {
  const std::unique_ptr<RankDevice> device = COMMPOOL_TRY(OpenRankDevice(ranks));
  const Result<Measures> measures = Measure(ranks, *device, arguments);
  if (!measures.ok()) return ranks.Told(measures.status());
  if (!ranks.first()) return kSuccess;
  const std::string& driver = device->driver->description;
  const nlohmann::json results = {{"driver", driver},
                                  {"ranks", ranks.count()},
                                  {"rounds", arguments.rounds},
                                  {"median_us", measures->median_us},
                                  {"p99_us", measures->p99_us},
                                  {"pools", arguments.pools},
                                  {"pools_in_turn_us", measures->in_turn_us},
                                  {"pools_in_one_call_us", measures->together_us},
                                  {"mpi_barrier_us", measures->barrier_us}};
  return Report(arguments.output, driver, results, [&] {
    const std::string pools = Counted(arguments.pools, "pool");
    std::printf("# %s\n# %s, %s over TCP, real time of the slowest rank\n%14s %14s %22s %22s %18s\n", driver.c_str(),
                Counted(ranks.count(), "rank").c_str(), Counted(arguments.rounds, "round").c_str(), "median us",
                "99 % us", (pools + " in turn us").c_str(), (pools + " in one call us").c_str(), "MPI barrier us");
    std::printf("%14.1f %14.1f %22.1f %22.1f %18.1f\n", measures->median_us, measures->p99_us, measures->in_turn_us,
                measures->together_us, measures->barrier_us);
  });
}

const char* NameOf(PoolCalls calls) { return calls == PoolCalls::kOne ? "one call" : "one call each"; }

nlohmann::json Describe(const SimulatedRound& round) {
  return {{"ranks", round.ranks},
          {"pools", round.pools},
          {"calls", NameOf(round.calls)},
          {"busiest_messages", round.busiest.messages},
          {"busiest_bytes", round.busiest.bytes},
          {"other_messages", round.other.messages},
          {"other_bytes", round.other.bytes},
          {"median_us", round.median_us},
          {"p99_us", round.p99_us}};
}

Result<int> Simulate(const Arguments& arguments) {
  std::vector<SimulatedRound> sizes;  // for one pool
  std::vector<SimulatedRound> all;
  nlohmann::json rows = nlohmann::json::array();
  for (const int ranks : arguments.simulate) {
    const std::vector<SimulatedRound> found = COMMPOOL_TRY(SimulateAgreement(ranks, arguments.pools, arguments.rounds));
    sizes.push_back(found.front());
    for (const SimulatedRound& round : found) {
      all.push_back(round);
      rows.push_back(Describe(round));
    }
  }
  nlohmann::json results = {{"rounds", arguments.rounds}, {"simulated", rows}};
  const bool several = std::adjacent_find(sizes.begin(), sizes.end(), [](const auto& one, const auto& other) {
                         return one.ranks != other.ranks;
                       }) != sizes.end();
  if (several) results["slope_of_bytes"] = SlopeOfBytes(sizes);
  return Report(arguments.output, "none", results, [&] {
    std::printf(
        "# ranks as threads of this process over its sockets, %s, real time of the slowest rank\n"
        "%8s %6s %14s %16s %16s %16s %16s %12s %12s\n",
        Counted(arguments.rounds, "round").c_str(), "ranks", "pools", "calls", "rank 0 messages", "rank 0 bytes",
        "other messages", "other bytes", "median us", "99 % us");
    for (const SimulatedRound& round : all) {
      std::printf("%8d %6d %14s %16.1f %16.0f %16.1f %16.0f %12.1f %12.1f\n", round.ranks, round.pools,
                  NameOf(round.calls), round.busiest.messages, round.busiest.bytes, round.other.messages,
                  round.other.bytes, round.median_us, round.p99_us);
    }
    if (several) std::printf("# rank 0's bytes grow as ranks^%.2f\n", SlopeOfBytes(sizes));
  });
}

}  // namespace

void AddBenchAgreement(Command bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command = bench.Add("agreement", "One round of agreement between the ranks of a symmetric pool");
  command.Footer("Example:\n  mpirun -np 4 commpool bench agreement\n  commpool bench agreement --simulate 64,256");
  command.AddOption("--rounds", arguments->rounds, "That are counted").Between(1, 1'000'000).ShowPreset();
  command.AddOption("--pools", arguments->pools, "That are called for beside one, one after another and in one call")
      .Between(1, 64)
      .ShowPreset();
  command.AddOption("--simulate", arguments->simulate, "That many ranks in this process instead, such as 64,256,1024")
      .SeparatedByCommas()
      .Between(2, 10'000);
  AddOutputOptions(command, arguments->output);
  const auto run = WithRanks([arguments](const Ranks& ranks) { return Run(ranks, *arguments); });
  command.Do([arguments, run] { return arguments->simulate.empty() ? run() : Simulate(*arguments); });
}

}  // namespace commpool::cli
