// commpool bench lookup: finds the window and offset of a pointer, and asks whether a rank is lost, beside an empty
// call of the library in the same run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "commpool/pool.h"
#include "src/base/bytes.h"
#include "src/base/try.h"
#include "src/driver/diagnosis.h"
#include "tools/cli/bench/bench.h"
#include "tools/cli/sizes.h"
#include "tools/cli/solo_device.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

struct Arguments {
  std::vector<size_t> segments = {1, 16, 256};
  size_t communicators = 4;
  std::string segment_bytes = "2M";
  int rounds = 7;
  double round_ms = 5;
  OutputOptions output;
};

struct Query {
  const void* pointer = nullptr;
  ncclComm_t communicator = nullptr;
};

// Communicators with this process as their only rank.
class SoloCommunicators {
 public:
  explicit SoloCommunicators(const internal::Driver& driver) : driver_(driver) {}
  ~SoloCommunicators() {
    for (ncclComm_t communicator : all_) driver_.nccl.ncclCommDestroy(communicator);
  }
  SoloCommunicators(const SoloCommunicators&) = delete;
  SoloCommunicators& operator=(const SoloCommunicators&) = delete;

  Status Make(size_t count) {
    if (!driver_.nccl.has_windows()) return Status(StatusCode::kNotSupported, driver_.nccl.WhyNoWindows());
    while (all_.size() < count) {
      ncclUniqueId id = {};
      COMMPOOL_TRY(internal::CheckNccl(driver_, driver_.nccl.ncclGetUniqueId(&id), {.call = "ncclGetUniqueId"}));
      ncclComm_t communicator = nullptr;
      COMMPOOL_TRY(internal::CheckNccl(driver_, driver_.nccl.ncclCommInitRank(&communicator, 1, id, 0),
                                       {.call = "ncclCommInitRank", .device = 0}));
      all_.push_back(communicator);
    }
    return Status();
  }
  const std::vector<ncclComm_t>& all() const { return all_; }

 private:
  const internal::Driver& driver_;
  std::vector<ncclComm_t> all_;
};

// A full symmetric pool with this process as its only rank; one block in each segment.
class FullPool {
 public:
  static Result<std::unique_ptr<FullPool>> Make(ncclComm_t home, size_t segments, uint64_t segment_bytes) {
    Pool pool =
        COMMPOOL_TRY(Pool::create({.symmetric_across = home, .segment_bytes = segment_bytes, .name = "bench lookup"}));
    std::unique_ptr<FullPool> full(new FullPool(std::move(pool), segment_bytes));
    while (full->blocks_.size() < segments) {
      COMMPOOL_TRY(full->pool_.reserve(segment_bytes));
      Buffer block = COMMPOOL_TRY(full->pool_.allocate(segment_bytes, nullptr));
      full->blocks_.push_back(std::move(block));
    }
    return full;
  }

  commpool_pool handle() const { return pool_.handle(); }
  Status RegisterWith(ncclComm_t communicator) { return pool_.register_with(communicator); }
  Status Close() {
    blocks_.clear();
    return pool_.close();
  }

  // Random pointers into the segments, each with one of the communicators.
  std::vector<Query> RandomQueries(const std::vector<ncclComm_t>& communicators, size_t used) const {
    std::mt19937_64 random(blocks_.size());
    std::vector<Query> queries(4096);
    for (Query& query : queries) {
      const char* const start = blocks_[random() % blocks_.size()].as<const char>();
      query = {start + random() % segment_bytes_, communicators[random() % used]};
    }
    return queries;
  }

 private:
  FullPool(Pool pool, uint64_t segment_bytes) : pool_(std::move(pool)), segment_bytes_(segment_bytes) {}

  Pool pool_;
  const uint64_t segment_bytes_;
  std::vector<Buffer> blocks_;
};

// Nanoseconds for one call: as many passes over all queries as the time allows, at least one.
template <typename Call>
double TimeCalls(const std::vector<Query>& queries, double target_ns, Call call) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  double elapsed = 0;
  size_t calls = 0;
  do {
    for (const Query& query : queries) call(query);
    calls += queries.size();
    elapsed = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  } while (elapsed < target_ns);
  return elapsed / static_cast<double>(calls);
}

class Bench {
 public:
  Bench(const Arguments& arguments, uint64_t segment_bytes) : arguments_(arguments), segment_bytes_(segment_bytes) {}

  Result<nlohmann::json> Measure(const std::vector<ncclComm_t>& communicators) {
    nlohmann::json rows = nlohmann::json::array();
    Progress progress("bench lookup: row", arguments_.segments.size() * communicators.size());
    for (const size_t segments : arguments_.segments) {
      std::unique_ptr<FullPool> pool = COMMPOOL_TRY(FullPool::Make(communicators.front(), segments, segment_bytes_));
      for (size_t used = 1; used <= communicators.size(); ++used) {
        progress.Show(rows.size(), Counted(segments, "segment"));
        COMMPOOL_TRY(pool->RegisterWith(communicators[used - 1]));
        nlohmann::json row = COMMPOOL_TRY(MeasureOne(pool->handle(), pool->RandomQueries(communicators, used)));
        row["segments"] = segments;
        row["communicators"] = used;
        rows.push_back(row);
      }
      COMMPOOL_TRY(pool->Close());
    }
    return rows;
  }

 private:
  Result<nlohmann::json> MeasureOne(commpool_pool pool, const std::vector<Query>& queries) const {
    ncclWindow_vidmem* window = nullptr;
    uint64_t offset = 0;
    bool found = true;
    std::vector<double> lookups;
    std::vector<double> looks;
    std::vector<double> empty;
    const double target_ns = arguments_.round_ms * 1e6;
    for (int round = -1; round < arguments_.rounds; ++round) {  // round -1 does not count
      const double lookup = TimeCalls(queries, target_ns, [&](const Query& query) {
        found &= commpool_window_of(query.pointer, query.communicator, &window, &offset) == COMMPOOL_OK;
      });
      int lost = -1;
      const double look = TimeCalls(queries, target_ns, [&](const Query&) { commpool_pool_lost_rank(pool, &lost); });
      const double call = TimeCalls(queries, target_ns, [&](const Query&) { commpool_driver_description(); });
      if (!found) return detail::FromC(COMMPOOL_NOT_FOUND);
      if (round < 0) continue;
      lookups.push_back(lookup);
      looks.push_back(look);
      empty.push_back(call);
    }
    return nlohmann::json{
        {"lookup_ns", Median(lookups)}, {"lost_rank_ns", Median(looks)}, {"empty_call_ns", Median(empty)}};
  }

  const Arguments& arguments_;
  const uint64_t segment_bytes_;
};

void Print(const nlohmann::json& results) {
  std::printf("# %s\n# pointer -> window and offset, at random, medians of %d rounds\n%-9s %14s %12s %15s %16s\n",
              results["driver"].get<std::string>().c_str(), results["rounds"].get<int>(), "segments", "communicators",
              "lookup (ns)", "lost rank (ns)", "empty call (ns)");
  for (const nlohmann::json& row : results["rows"]) {
    std::printf("%-9zu %14zu %12.2f %15.2f %16.2f\n", row["segments"].get<size_t>(), row["communicators"].get<size_t>(),
                row["lookup_ns"].get<double>(), row["lost_rank_ns"].get<double>(), row["empty_call_ns"].get<double>());
  }
}

Result<int> Run(const Arguments& arguments) {
  const uint64_t segment_bytes = COMMPOOL_TRY(internal::ParseBytes(arguments.segment_bytes));
  const std::unique_ptr<SoloDevice> device = COMMPOOL_TRY(SoloDevice::Open(0, DriverTimes::kUnmeasured));
  SoloCommunicators communicators(device->driver());
  COMMPOOL_TRY(communicators.Make(arguments.communicators));
  const nlohmann::json rows = COMMPOOL_TRY(Bench(arguments, segment_bytes).Measure(communicators.all()));
  const nlohmann::json results = {{"driver", device->driver().description},
                                  {"rounds", arguments.rounds},
                                  {"segment_bytes", segment_bytes},
                                  {"rows", rows}};
  return Report(arguments.output, device->driver().description, results, [&] { Print(results); });
}

}  // namespace

void AddBenchLookup(Command bench) {
  auto arguments = std::make_shared<Arguments>();
  Command command = bench.Add("lookup", "From a pointer to its window, beside an empty call");
  command.Footer("Example:\n  commpool bench lookup --segments 1,16,256 --record tools/bench/results/lookup.jsonl");
  command.AddOption("--segments", arguments->segments, "Numbers of segments")
      .SeparatedByCommas()
      .Between(1, 100'000)
      .ShowPreset();
  command.AddOption("--communicators", arguments->communicators, "The most that the pool is registered with")
      .Between(1, 64)
      .ShowPreset();
  command.AddOption("--segment-bytes", arguments->segment_bytes, "Of each segment").Checked(WhyNoSize).ShowPreset();
  command.AddOption("--rounds", arguments->rounds, "Rounds of each measurement").Between(1, 1000).ShowPreset();
  command.AddOption("--round-ms", arguments->round_ms, "Milliseconds that one measurement of a round takes")
      .Between(0.01, 10'000.0)
      .ShowPreset();
  AddOutputOptions(command, arguments->output);
  command.Do([arguments] { return Run(*arguments); });
}

}  // namespace commpool::cli
