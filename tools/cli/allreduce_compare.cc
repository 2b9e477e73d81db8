#include "tools/cli/allreduce_compare.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "tools/cli/buffer_sources.h"

namespace commpool::cli {

namespace {

struct ComparedRow {
  uint64_t bytes = 0;
  double pool_us = 0;
  double by_hand_us = 0;

  // 1: as fast; above: the pool's buffers are faster.
  double ratio() const { return by_hand_us / pool_us; }
};

BufferKind KindOf(UsedRegistration asked) {
  switch (asked) {
    case UsedRegistration::kNone:
      return BufferKind::kPlain;
    case UsedRegistration::kLocal:
      return BufferKind::kLocal;
    case UsedRegistration::kWindow:
      return BufferKind::kWindow;
  }
  return BufferKind::kPlain;
}

Result<std::vector<ComparedRow>> Measure(const Ranks& ranks, const RankDevice& device,
                                         const AllReduceOptions& options) {
  const CollectiveTimer timer(ranks, device);
  const BufferKind kind = KindOf(options.asked);
  Result<std::unique_ptr<BufferSource>> pool = MakePoolSource(device, kind, options.sizes.back());
  if (!pool.ok()) return pool.status();
  const std::unique_ptr<BufferSource> hand = MakeHandSource(device, kind);
  std::vector<ComparedRow> rows;
  for (const uint64_t bytes : options.sizes) {
    Result<std::vector<double>> times =
        TimeInTurn(timer, Collective::kAllReduce, Place::kOut, bytes, {pool->get(), hand.get()}, timer.rounds());
    if (!times.ok()) return times.status();
    rows.push_back({bytes, times->front(), times->back()});
  }
  Status status = (*pool)->Close();
  if (!status.ok()) return status;
  return rows;
}

const ComparedRow& Slowest(const std::vector<ComparedRow>& rows) {
  return *std::min_element(rows.begin(), rows.end(), [](const ComparedRow& one, const ComparedRow& other) {
    return one.ratio() < other.ratio();
  });
}

nlohmann::json ToJson(const Ranks& ranks, const Driver& driver, const AllReduceOptions& options,
                      const std::vector<ComparedRow>& rows) {
  nlohmann::json json = {{"driver", driver.description},
                         {"ranks", ranks.count()},
                         {"modelled", driver.kind == DriverChoice::kEmulated},
                         {"kind", Name(KindOf(options.asked))},
                         {"least_ratio", Slowest(rows).ratio()},
                         {"rows", nlohmann::json::array()}};
  for (const ComparedRow& row : rows) {
    json["rows"].push_back(
        {{"bytes", row.bytes}, {"pool_us", row.pool_us}, {"by_hand_us", row.by_hand_us}, {"ratio", row.ratio()}});
  }
  return json;
}

void Print(const Ranks& ranks, const Driver& driver, const AllReduceOptions& options,
           const std::vector<ComparedRow>& rows) {
  std::printf("# %s\n# %d ranks, all-reduce out of place, buffers: %s\n", driver.description.c_str(), ranks.count(),
              Name(KindOf(options.asked)));
  if (driver.kind == DriverChoice::kEmulated) std::printf("# emulated: times are a model's\n");
  std::printf("%12s %12s %14s %16s\n", "bytes", "pool us", "by hand us", "by hand / pool");
  for (const ComparedRow& row : rows) {
    std::printf("%12llu %12.1f %14.1f %16.3f\n", static_cast<unsigned long long>(row.bytes), row.pool_us,
                row.by_hand_us, row.ratio());
  }
  std::printf("least %.3f, at %llu bytes\n", Slowest(rows).ratio(),
              static_cast<unsigned long long>(Slowest(rows).bytes));
}

}  // namespace

int RunComparison(const Ranks& ranks, const RankDevice& device, const AllReduceOptions& options,
                  const OutputOptions& output) {
  const Driver& driver = *device.driver;
  if (options.backing != Backing::kVmm || options.location != Location::kDevice) {
    if (ranks.first()) std::cout << "refused: --compare knows the vmm backing on the device only\n";
    return kRefused;
  }
  const Result<std::vector<ComparedRow>> rows = Measure(ranks, device, options);
  if (rows.status().code() == StatusCode::kNotSupported) {
    if (ranks.first()) std::cout << "refused: " << rows.status().message() << '\n';
    return kRefused;
  }
  if (!rows.ok()) {
    std::cerr << "commpool allreduce: rank " << ranks.rank() << ": " << rows.status().message() << '\n';
    return kFailed;
  }
  if (!ranks.first()) return kSuccess;
  const nlohmann::json results = ToJson(ranks, driver, options, *rows);
  if (output.json) {
    std::cout << results.dump(2) << '\n';
  } else {
    Print(ranks, driver, options, *rows);
  }
  Record(output, driver.description, results);
  return kSuccess;
}

}  // namespace commpool::cli
