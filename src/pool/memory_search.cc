#include "src/pool/memory_search.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "src/base/bytes.h"

namespace commpool::internal {

uint64_t ReleaseUnusedMemory(const PoolTable& table, int device, const Pool* except) {
  uint64_t released = 0;
  for (const std::shared_ptr<Pool>& pool : table.All()) {
    if (pool.get() != except && pool->device() == device) released += pool->ReleaseUnused();
  }
  return released;
}

std::string DescribeHolders(SharedState& shared, int device) {
  struct Row {
    std::string name;
    engine::Counters counters;
  };
  std::vector<Row> rows;
  for (const std::shared_ptr<Pool>& pool : shared.table.All()) {
    if (pool->device() == device) rows.push_back({pool->name(), pool->Figures().counters});
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.counters.reserved_bytes.current > b.counters.reserved_bytes.current;
  });
  std::string text = "\n  pool                    reserved      in use      cached  largest free";
  for (const Row& row : rows) {
    char line[160];
    std::snprintf(line, sizeof(line), "\n  %-20.20s %11s %11s %11s %13s", row.name.c_str(),
                  FormatBytes(row.counters.reserved_bytes.current).c_str(),
                  FormatBytes(row.counters.allocated_bytes.current).c_str(),
                  FormatBytes(row.counters.free_bytes).c_str(), FormatBytes(row.counters.largest_free_block).c_str());
    text += line;
  }
  for (const MemoryHolders::Held& held : shared.holders.Describe(device)) {
    char line[160];
    std::snprintf(line, sizeof(line), "\n  %-20.20s %11s %11s %11s %13s", held.name.c_str(), "?", "?",
                  FormatBytes(held.cached_bytes).c_str(), "?");
    text += line;
  }
  return text;
}

}  // namespace commpool::internal
