// commpool advise: measures which kind of buffer is fastest for which sizes on this machine, and prints scopes for
// them.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "tools/cli/advice.h"
#include "tools/cli/commands.h"
#include "tools/cli/sizes.h"
#include "tools/cli/under_compute.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

struct Arguments {
  std::string bytes;  // empty: chosen by the driver
  int rounds = 0;     // 0: chosen by the driver
  bool under_compute = false;
  OutputOptions output;
};

struct Measured {
  std::vector<AdviceRow> rows;
  std::vector<std::string> without;  // kinds that do not exist here, and why
};

// NCCL needs equal offsets in windows on every rank. In place each rank's part of the buffer has another offset.
bool IsSymmetric(const AdviceRow& row) { return row.place == Place::kOut || row.collective == Collective::kAllReduce; }

class Advisor {
 public:
  Advisor(const Ranks& ranks, const RankDevice& device, const Arguments& arguments)
      : ranks_(ranks),
        timer_(ranks, device),
        device_(device),
        rounds_(arguments.rounds > 0 ? arguments.rounds : timer_.rounds()) {}

  Result<Measured> Measure(const std::vector<uint64_t>& sizes) {
    Measured measured;
    BufferSources sources = COMMPOOL_TRY(MakePoolSources(device_, sizes.back(), measured.without));
    Progress progress("advise: row", 6 * sizes.size(), ranks_.first() ? Shown::kYes : Shown::kNo);
    for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
      for (const Place place : {Place::kOut, Place::kIn}) {
        for (const uint64_t bytes : sizes) {
          AdviceRow row{.collective = collective, .place = place, .bytes = bytes};
          progress.Show(measured.rows.size(), std::string(Name(collective)) + " of " + internal::FormatBytes(bytes));
          COMMPOOL_TRY(MeasureRow(sources, row));
          measured.rows.push_back(std::move(row));
        }
      }
    }
    COMMPOOL_TRY(CloseAll(sources));
    return measured;
  }

 private:
  Status MeasureRow(BufferSources& sources, AdviceRow& row) {
    std::vector<BufferSource*> all;
    std::vector<BufferKind> kinds;
    for (auto& [kind, source] : sources) {
      if (kind == BufferKind::kWindow && !IsSymmetric(row)) continue;
      all.push_back(source.get());
      kinds.push_back(kind);
    }
    const std::vector<double> times =
        COMMPOOL_TRY(TimeInTurn(timer_, row.collective, row.place, row.bytes, all, rounds_));
    for (size_t index = 0; index < kinds.size(); ++index) row.times[kinds[index]] = times[index];
    return Status();
  }

  const Ranks& ranks_;
  const CollectiveTimer timer_;
  const RankDevice& device_;
  const int rounds_;
};

// Splits the rows by collective and place.
std::vector<std::vector<AdviceRow>> Parts(const std::vector<AdviceRow>& rows) {
  std::vector<std::vector<AdviceRow>> parts;
  for (const AdviceRow& row : rows) {
    const bool same =
        !parts.empty() && parts.back().front().collective == row.collective && parts.back().front().place == row.place;
    if (!same) parts.emplace_back();
    parts.back().push_back(row);
  }
  return parts;
}

nlohmann::json Head(const Ranks& ranks, const internal::Driver& driver) {
  return {{"driver", driver.description},
          {"ranks", ranks.count()},
          {"modelled", driver.kind == internal::DriverChoice::kEmulated}};
}

nlohmann::json ToJson(const Measured& measured) {
  nlohmann::json json = {
      {"without", measured.without}, {"rows", nlohmann::json::array()}, {"ranges", nlohmann::json::array()}};
  for (const AdviceRow& row : measured.rows) {
    nlohmann::json times;
    for (const auto& [kind, time] : row.times) times[Name(kind)] = time;
    json["rows"].push_back({{"collective", Name(row.collective)},
                            {"place", Name(row.place)},
                            {"bytes", row.bytes},
                            {"time_us", times},
                            {"best", Name(BestKind(row.times))},
                            {"gain", Gain(row.times, BestKind(row.times))}});
  }
  for (const std::vector<AdviceRow>& part : Parts(measured.rows)) {
    for (const AdviceRange& range : MakeRanges(part)) {
      json["ranges"].push_back({{"collective", Name(part.front().collective)},
                                {"place", Name(part.front().place)},
                                {"min_bytes", range.min_bytes},
                                {"max_bytes", range.max_bytes},
                                {"kind", Name(range.kind)},
                                {"least_gain", range.least_gain},
                                {"most_gain", range.most_gain}});
    }
  }
  return json;
}

void PrintPart(const std::vector<AdviceRow>& part) {
  std::printf("\n%s of floats, %s\n%12s", Name(part.front().collective), Name(part.front().place), "bytes");
  for (const BufferKind kind : kBufferKinds) std::printf(" %12s", (std::string(Name(kind)) + " us").c_str());
  std::printf(" %8s %6s\n", "best", "gain");
  for (const AdviceRow& row : part) {
    std::printf("%12llu", static_cast<unsigned long long>(row.bytes));
    for (const BufferKind kind : kBufferKinds) {
      const auto time = row.times.find(kind);
      if (time == row.times.end()) {
        std::printf(" %12s", "-");
      } else {
        std::printf(" %12.1f", time->second);
      }
    }
    const BufferKind best = BestKind(row.times);
    std::printf(" %8s %5.2fx\n", Name(best), Gain(row.times, best));
  }
  for (const AdviceRange& range : MakeRanges(part)) {
    std::printf("  %-6s sizes %llu, %llu   %s to %s: %.2f to %.2f times as fast as plain\n", Name(range.kind),
                static_cast<unsigned long long>(range.min_bytes), static_cast<unsigned long long>(range.max_bytes),
                internal::FormatBytes(range.min_bytes).c_str(), internal::FormatBytes(range.max_bytes).c_str(),
                range.least_gain, range.most_gain);
  }
}

void PrintHead(const Ranks& ranks, const internal::Driver& driver) {
  std::printf("# %s\n# %s; bytes are those of the larger buffer\n", driver.description.c_str(),
              Counted(ranks.count(), "rank").c_str());
  if (driver.kind == internal::DriverChoice::kEmulated) {
    std::printf("# emulated: times are a model's, after an H200's. Ask the machine that you will run on\n");
  }
}

void Print(const Measured& measured) {
  std::printf(
      "# sizes MIN, MAX of a scope, both ends in: PoolScope scope(pool, {.sizes = {MIN, MAX}}), in Python\n"
      "# use_pool(pool, sizes=(MIN, MAX))\n");
  for (const std::string& kind : measured.without) std::printf("# without %s\n", kind.c_str());
  for (const std::vector<AdviceRow>& part : Parts(measured.rows)) PrintPart(part);
}

Result<int> RunOn(const Ranks& ranks, const RankDevice& device, const Arguments& arguments) {
  const internal::Driver& driver = *device.driver;
  if (ranks.count() == 1) {
    return Status(StatusCode::kNotSupported, "one rank has nobody to send to; start 2 or more with mpirun");
  }
  std::string bytes = arguments.bytes;
  const bool emulated = driver.kind == internal::DriverChoice::kEmulated;
  if (bytes.empty()) {
    bytes = arguments.under_compute ? (emulated ? "64K:256K" : "1M:256M") : (emulated ? "1K:4M" : "1K:1G");
  }
  const std::vector<uint64_t> sizes =
      COMMPOOL_TRY(ParseSizes(bytes, sizeof(float) * static_cast<uint64_t>(ranks.count())));
  nlohmann::json results = Head(ranks, driver);
  const auto report = [&](const auto& found) -> Result<int> {
    if (!ranks.first()) return kSuccess;
    results.update(ToJson(found));
    return Report(arguments.output, driver.description, results, [&] {
      PrintHead(ranks, driver);
      Print(found);
    });
  };
  if (arguments.under_compute) {
    const UnderCompute found = COMMPOOL_TRY(MeasureUnderCompute(ranks, device, sizes, arguments.rounds));
    return report(found);
  }
  const Measured found = COMMPOOL_TRY(Advisor(ranks, device, arguments).Measure(sizes));
  return report(found);
}

Result<int> Run(const Ranks& ranks, const Arguments& arguments) {
  const std::unique_ptr<RankDevice> device = COMMPOOL_TRY(OpenRankDevice(ranks));
  const Result<int> done = RunOn(ranks, *device, arguments);
  return done.ok() ? done : ranks.Told(done.status());
}

}  // namespace

void AddAdvise(Command app) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.Add("advise", "Which buffers for which sizes: plain, registered locally, or windows");
  command.Footer(
      "Measures all-reduce, all-gather and reduce-scatter, out of place and in place, with buffers from three pools;\n"
      "the median of several rounds over all kinds. A kind is advised where it is more than 2 % faster than one that\n"
      "costs less to have. Under mpirun, one rank a GPU.\n"
      "Examples:\n"
      "  mpirun -np 4 commpool advise --bytes 1K:1G\n"
      "  mpirun -np 4 commpool advise --under-compute");
  command
      .AddOption("--bytes", arguments->bytes,
                 "LEAST:MOST, doubled from row to row (default 1K:1G, emulated 1K:4M; --under-compute 1M:256M)")
      .Checked(WhyNoSizes);
  command.AddFlag("--under-compute", arguments->under_compute,
                  "What each collective and kind adds to compute that runs beside it, with a stand-in for a GEMM");
  command
      .AddOption("--rounds", arguments->rounds,
                 "Over all kinds, for each row (default 7, under compute 9; emulated 1 and 2)")
      .Between(1, 1000);
  AddOutputOptions(command, arguments->output);
  command.Do(WithRanks([arguments](const Ranks& ranks) { return Run(ranks, *arguments); }));
}

}  // namespace commpool::cli
