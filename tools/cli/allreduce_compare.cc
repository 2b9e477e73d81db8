// commpool allreduce --compare.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "commpool/scope.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "tools/cli/advice.h"
#include "tools/cli/allreduce.h"
#include "tools/common/progress.h"

namespace commpool::cli {

namespace {

struct ComparedRow {
  uint64_t bytes = 0;
  double time_us = 0;
  std::string other = {};  // what we compare it with
  double other_us = 0;

  // 1: as fast as the other; above: faster.
  double ratio() const { return other_us / time_us; }
};
using ComparedRows = std::vector<ComparedRow>;

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

// Buffers that scopes with size ranges route to the pools of other sources, which must outlive it and have room for its
// pairs too. Sizes without a range come from the default pool.
class ScopedSource : public BufferSource {
 public:
  ScopedSource(const RankDevice& device, const BufferSources& sources, std::vector<AdviceRange> ranges)
      : device_(device), sources_(sources), ranges_(std::move(ranges)) {}

  Result<BufferPair> Take(uint64_t bytes) override { return TakeInScopes(bytes, 0); }
  Status GiveBack() override {
    COMMPOOL_TRY(sent_.free());
    return received_.free();
  }

 private:
  // Opens the scopes one inside the other, as a program does.
  Result<BufferPair> TakeInScopes(uint64_t bytes, size_t range) {
    if (range == ranges_.size()) return Allocate(bytes);
    const SizeRange sizes{ranges_[range].min_bytes, ranges_[range].max_bytes};
    const PoolScope scope(sources_.at(ranges_[range].kind)->pool(), {.sizes = sizes});
    return TakeInScopes(bytes, range + 1);
  }
  Result<BufferPair> Allocate(uint64_t bytes) {
    for (Buffer* buffer : {&sent_, &received_}) {
      Buffer made = COMMPOOL_TRY(allocate(bytes, device_.stream));
      *buffer = std::move(made);
    }
    return BufferPair{sent_.data(), received_.data()};
  }

  const RankDevice& device_;
  const BufferSources& sources_;
  const std::vector<AdviceRange> ranges_;
  Buffer sent_;
  Buffer received_;
};

Result<ComparedRows> CompareByHand(const CollectiveTimer& timer, const RankDevice& device,
                                   const AllReduceOptions& options, Shown shown) {
  const BufferKind kind = KindOf(options.asked);
  std::unique_ptr<BufferSource> pool = COMMPOOL_TRY(MakePoolSource(device, kind, options.sizes.back()));
  const std::unique_ptr<BufferSource> hand = MakeHandSource(device, kind);
  ComparedRows rows;
  Progress progress("allreduce: row", options.sizes.size(), shown);
  for (const uint64_t bytes : options.sizes) {
    progress.Show(rows.size(), internal::FormatBytes(bytes) + " beside the same by hand");
    const std::vector<double> times = COMMPOOL_TRY(
        TimeInTurn(timer, Collective::kAllReduce, Place::kOut, bytes, {pool.get(), hand.get()}, timer.rounds()));
    rows.push_back({bytes, times.front(), std::string(Name(kind)) + " by hand", times.back()});
  }
  COMMPOOL_TRY(pool->Close());
  return rows;
}

// The advice of an earlier measurement: the ranges must not come from the measurement that judges them.
Result<std::vector<AdviceRange>> Advise(const CollectiveTimer& timer, const std::vector<uint64_t>& sizes,
                                        const std::vector<BufferKind>& kinds, const std::vector<BufferSource*>& sources,
                                        Progress& progress) {
  std::vector<AdviceRow> rows;
  for (const uint64_t bytes : sizes) {
    progress.Show(rows.size(), "advice for " + internal::FormatBytes(bytes));
    std::vector<double> times =
        COMMPOOL_TRY(TimeInTurn(timer, Collective::kAllReduce, Place::kOut, bytes, sources, timer.rounds()));
    AdviceRow row{.bytes = bytes};
    for (size_t index = 0; index < kinds.size(); ++index) row.times[kinds[index]] = times[index];
    rows.push_back(std::move(row));
  }
  return MakeRanges(rows);
}

Result<ComparedRows> CompareScopes(const CollectiveTimer& timer, const RankDevice& device,
                                   const std::vector<uint64_t>& sizes, Shown shown) {
  std::vector<std::string> without;
  Result<BufferSources> pools =
      MakePoolSources(device, 2 * sizes.back(), without);  // the scopes' pairs come from them too
  if (!pools.ok()) return pools.status();
  std::vector<BufferKind> kinds;
  std::vector<BufferSource*> all;
  for (auto& [kind, source] : *pools) {
    kinds.push_back(kind);
    all.push_back(source.get());
  }
  Progress progress("allreduce: row", 2 * sizes.size(), shown);
  std::vector<AdviceRange> ranges = COMMPOOL_TRY(Advise(timer, sizes, kinds, all, progress));
  ScopedSource scoped(device, *pools, std::move(ranges));
  all.insert(all.begin(), &scoped);
  ComparedRows rows;
  for (const uint64_t bytes : sizes) {
    progress.Show(sizes.size() + rows.size(), internal::FormatBytes(bytes) + " in scopes");
    std::vector<double> times =
        COMMPOOL_TRY(TimeInTurn(timer, Collective::kAllReduce, Place::kOut, bytes, all, timer.rounds()));
    const auto best = std::min_element(times.begin() + 1, times.end());
    const BufferKind kind = kinds[static_cast<size_t>(best - times.begin() - 1)];
    rows.push_back({bytes, times.front(), std::string("best: ") + Name(kind), *best});
  }
  COMMPOOL_TRY(CloseAll(*pools));
  return rows;
}

const ComparedRow& Slowest(const ComparedRows& rows) {
  return *std::min_element(rows.begin(), rows.end(), [](const ComparedRow& one, const ComparedRow& other) {
    return one.ratio() < other.ratio();
  });
}

nlohmann::json ToJson(const Ranks& ranks, const internal::Driver& driver, const std::string& title,
                      const ComparedRows& rows) {
  nlohmann::json json = {{"driver", driver.description},
                         {"ranks", ranks.count()},
                         {"modelled", driver.kind == internal::DriverChoice::kEmulated},
                         {"buffers", title},
                         {"least_ratio", Slowest(rows).ratio()},
                         {"rows", nlohmann::json::array()}};
  for (const ComparedRow& row : rows) {
    json["rows"].push_back({{"bytes", row.bytes},
                            {"time_us", row.time_us},
                            {"other", row.other},
                            {"other_us", row.other_us},
                            {"ratio", row.ratio()}});
  }
  return json;
}

void Print(const Ranks& ranks, const internal::Driver& driver, const std::string& title, const ComparedRows& rows) {
  std::printf("# %s\n# %s, all-reduce out of place, buffers of %s\n", driver.description.c_str(),
              Counted(ranks.count(), "rank").c_str(), title.c_str());
  if (driver.kind == internal::DriverChoice::kEmulated) std::printf("# emulated: times are a model's\n");
  std::printf("%12s %12s %14s %12s %8s\n", "bytes", "time us", "beside", "its us", "ratio");
  for (const ComparedRow& row : rows) {
    std::printf("%12llu %12.1f %14s %12.1f %8.3f\n", static_cast<unsigned long long>(row.bytes), row.time_us,
                row.other.c_str(), row.other_us, row.ratio());
  }
  std::printf("least %.3f, at %llu bytes\n", Slowest(rows).ratio(),
              static_cast<unsigned long long>(Slowest(rows).bytes));
}

}  // namespace

Result<int> RunComparison(const Ranks& ranks, const RankDevice& device, const AllReduceOptions& options,
                          Comparison comparison, const OutputOptions& output) {
  const internal::Driver& driver = *device.driver;
  if (options.backing != Backing::kVmm || options.location != Location::kDevice) {
    return Status(StatusCode::kNotSupported, "--compare knows the vmm backing on the device only");
  }
  const CollectiveTimer timer(ranks, device);
  const bool by_hand = comparison == Comparison::kByHand;
  const Shown shown = ranks.first() ? Shown::kYes : Shown::kNo;
  const ComparedRows rows = COMMPOOL_TRY(by_hand ? CompareByHand(timer, device, options, shown)
                                                 : CompareScopes(timer, device, options.sizes, shown));
  if (!ranks.first()) return kSuccess;
  const std::string title =
      by_hand ? std::string("a pool, ") + Name(KindOf(options.asked)) : "scopes with the size ranges that advise gives";
  const nlohmann::json results = ToJson(ranks, driver, title, rows);
  return Report(output, driver.description, results, [&] { Print(ranks, driver, title, rows); });
}

}  // namespace commpool::cli
