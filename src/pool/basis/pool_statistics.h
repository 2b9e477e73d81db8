// What a pool tells of itself.
#ifndef COMMPOOL_SRC_POOL_BASIS_POOL_STATISTICS_H_
#define COMMPOOL_SRC_POOL_BASIS_POOL_STATISTICS_H_

#include <atomic>
#include <cstdint>

#include "src/engine/types.h"

namespace commpool::internal {

struct PoolStatistics {
  engine::Counters counters;
  uint64_t registered_segments = 0;
  uint64_t pending_segments = 0;
  uint64_t failed_allocations = 0;
  uint64_t cached_bytes = 0;
  uint64_t moved_bytes = 0;
  uint64_t host_waits = 0;
  uint64_t held_bytes = 0;
  uint64_t asleep_bytes = 0;
  uint64_t kept_bytes = 0;
};

// What happened to a pool, counted where it happens. Any thread.
struct PoolEvents {
  std::atomic<uint64_t> failed_allocations{0};
  std::atomic<uint64_t> moved_bytes{0};
  std::atomic<uint64_t> host_waits{0};

  static void Count(std::atomic<uint64_t>& event, uint64_t amount = 1) {
    event.fetch_add(amount, std::memory_order_relaxed);
  }
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BASIS_POOL_STATISTICS_H_
