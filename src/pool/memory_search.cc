#include "src/pool/memory_search.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "src/base/bytes.h"

namespace commpool::internal {

uint64_t MemorySearch::ReleaseUnused(int device, const BlockOwner* asks) {
  uint64_t released = 0;
  for (const std::shared_ptr<Pool>& pool : pools_.All()) {
    if (pool.get() != asks && pool->device() == device) released += pool->ReleaseUnused();
  }
  return released;
}

void MemorySearch::ReleaseDestroyed() {
  if (captures_.any()) return;
  const bool postponed = captures_.TakePostponed();
  if (!postponed && pools_.removed() == 0) return;
  for (const std::shared_ptr<Pool>& pool : pools_.All()) {
    if (!pool->has_handle() && (postponed || pool->HasEndedGraphs())) pool->ReleaseUnused();
  }
}

std::string MemorySearch::DescribeHolders(int device) {
  struct Row {
    std::string name;
    commpool_statistics statistics;
  };
  std::vector<Row> rows;
  for (const std::shared_ptr<Pool>& holder : pools_.All()) {
    if (holder->device() != device) continue;
    Row row{holder->name(), holder->Statistics()};
    row.statistics.reserved_bytes.current -= row.statistics.asleep_bytes;
    // A pool without a handle is of interest as long as live blocks keep its memory.
    if (holder->has_handle() || row.statistics.reserved_bytes.current != 0) rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.statistics.reserved_bytes.current > b.statistics.reserved_bytes.current;
  });
  std::string text = "\n  pool                    reserved      in use      cached  largest free";
  for (const Row& row : rows) {
    char line[160];
    std::snprintf(line, sizeof(line), "\n  %-20.20s %11s %11s %11s %13s", row.name.c_str(),
                  FormatBytes(row.statistics.reserved_bytes.current).c_str(),
                  FormatBytes(row.statistics.allocated_bytes.current).c_str(),
                  FormatBytes(row.statistics.free_bytes).c_str(),
                  FormatBytes(row.statistics.largest_free_block_bytes).c_str());
    text += line;
  }
  for (const MemoryHolders::Held& held : holders_.Describe(device)) {
    char line[160];
    std::snprintf(line, sizeof(line), "\n  %-20.20s %11s %11s %11s %13s", held.name.c_str(), "?", "?",
                  FormatBytes(held.cached_bytes).c_str(), "?");
    text += line;
  }
  return text;
}

}  // namespace commpool::internal
