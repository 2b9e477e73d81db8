// MemorySearch: walks over all pools of the runtime, with no lock of its own.
#include "src/library/pool/memory_search.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "src/library/base/bytes.h"

namespace commpool::internal {

namespace {

// What a pool holds: one line of an error's table.
struct Row {
  std::string name;
  commpool_statistics statistics;
  std::string budget = {};
};
using Rows = std::vector<Row>;

// The pools of a budget stand together. Largest budgets and pools come first, and pools without a budget last.
void SortByBudget(Rows& rows) {
  std::map<std::string, uint64_t> sums;
  for (const Row& row : rows) sums[row.budget] += row.budget.empty() ? 0 : row.statistics.reserved_bytes.current;
  std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    const auto rank = [&](const Row& row) {
      return std::make_tuple(row.budget.empty(), UINT64_MAX - sums[row.budget], row.budget,
                             UINT64_MAX - row.statistics.reserved_bytes.current);
    };
    return rank(a) < rank(b);
  });
}

// Lines for the largest holders. A program may have thousands of pools, and the message must stay readable.
constexpr size_t kMostLines = 20;

// Sums the remaining lines into one. REQUIRES: the largest come first.
void Shorten(Rows& rows) {
  if (rows.size() <= kMostLines) return;
  commpool_statistics rest = {};
  for (size_t row = kMostLines - 1; row < rows.size(); ++row) {
    const commpool_statistics& one = rows[row].statistics;
    rest.reserved_bytes.current += one.reserved_bytes.current;
    rest.allocated_bytes.current += one.allocated_bytes.current;
    rest.free_bytes += one.free_bytes;
    rest.largest_free_block_bytes = std::max(rest.largest_free_block_bytes, one.largest_free_block_bytes);
  }
  const size_t others = rows.size() - (kMostLines - 1);
  rows.resize(kMostLines - 1);
  rows.push_back({std::to_string(others) + " others together", rest});
}

// A line before the pools of a budget.
std::string DescribeBudget(DeviceTable& devices, int device, const std::string& name) {
  const auto account = devices.AccountOf({.device = device}, name);
  if (!account.ok()) return "";
  const MemoryAccount& budget = **account;
  return "\n  budget " + name + ": " + FormatBytes(budget.taken()) + " of " +
         (budget.limit() == UINT64_MAX ? "no limit" : FormatBytes(budget.limit())) + ", " + FormatBytes(budget.peak()) +
         " at peak";
}

}  // namespace

// All() is a copy, so the table's lock is free while a pool releases, and the pool stays alive. Every pool decides
// itself what it does not use (PoolMode::ReleaseUnused): a symmetric one gives nothing.
uint64_t MemorySearch::ReleaseUnused(int device, const BlockOwner* asks, const std::string& budget) {
  uint64_t released = 0;
  for (const std::shared_ptr<Pool>& pool : pools_.All()) {
    const bool helps = budget.empty() || pool->basis().configuration.budget == budget;
    if (pool.get() != asks && pool->device() == device && helps) released += pool->mode().ReleaseUnused(Wait::kYes);
  }
  return released;
}

uint64_t MemorySearch::ReleaseIdle(int device, DeviceWork work) {
  uint64_t released = 0;
  for (const std::shared_ptr<Pool>& pool : pools_.All()) {
    if (pool->device() == device) released += pool->mode().ReleaseIdle(work);
  }
  return released;
}

// Every pool that is made, trimmed, closed or destroyed calls it. So it looks at no pool where nothing was postponed
// and no pool was removed.
void MemorySearch::ReleaseDestroyed() {
  AnnouncedCaptures& captures = runtime_.devices.captures();
  // What would be released may wait for a device, which would break the capture.
  if (captures.any()) return;
  runtime_.unanswered.Release();
  const bool postponed = captures.TakePostponed();
  if (!postponed && pools_.removed() == 0) return;
  for (const std::shared_ptr<Pool>& pool : pools_.All()) {
    const bool asked = pool->basis().life.destroyed() && (postponed || pool->captures().any_gone());
    if (asked) pool->mode().ReleaseUnused(Wait::kNo);
  }
}

// The table at the end of an error. What sleeps does not count as reserved: it is not on the device now. Of each pool
// the counters are of one moment; of several pools they are not.
std::string MemorySearch::DescribeHolders(int device) {
  Rows rows;
  for (const std::shared_ptr<Pool>& holder : pools_.All()) {
    if ((IsOfADevice(holder->basis().configuration.backing) ? holder->device() : kHost) != device) continue;
    commpool_statistics statistics = holder->Statistics();
    statistics.reserved_bytes.current -= statistics.asleep_bytes;
    // A pool without a handle matters as long as its live blocks keep memory.
    if (!holder->basis().life.destroyed() || statistics.reserved_bytes.current != 0)
      rows.push_back({holder->name(), statistics, holder->basis().configuration.budget});
  }
  SortByBudget(rows);
  Shorten(rows);
  std::string text = "\n  pool                    reserved      in use      cached  largest free";
  const auto add = [&](const std::string& name, const std::string& reserved, const std::string& in_use,
                       uint64_t cached_bytes, const std::string& largest_free) {
    char line[160];
    std::snprintf(line, sizeof(line), "\n  %-20.20s %11s %11s %11s %13s", name.c_str(), reserved.c_str(),
                  in_use.c_str(), FormatBytes(cached_bytes).c_str(), largest_free.c_str());
    text += line;
  };
  std::string budget;
  for (const auto& [name, statistics, of] : rows) {
    if (of != std::exchange(budget, of))
      text += of.empty() ? "\n  without a budget:" : DescribeBudget(runtime_.devices, device, of);
    add(name, FormatBytes(statistics.reserved_bytes.current), FormatBytes(statistics.allocated_bytes.current),
        statistics.free_bytes, FormatBytes(statistics.largest_free_block_bytes));
  }
  if (device == kHost) return text;
  for (const MemoryHolders::Held& held : runtime_.holders.Describe(device))
    add(held.name, "?", "?", held.cached_bytes, "?");
  return text;
}

}  // namespace commpool::internal
