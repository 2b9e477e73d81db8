// What happened to a pool, counted where it happens: for those of its statistics that no other part of it knows.
#ifndef COMMPOOL_SRC_POOL_BASIS_POOL_EVENTS_H_
#define COMMPOOL_SRC_POOL_BASIS_POOL_EVENTS_H_

#include <atomic>
#include <cstdint>

namespace commpool::internal {

// Any thread.
struct PoolEvents {
  std::atomic<uint64_t> failed_allocations{0};
  std::atomic<uint64_t> moved_bytes{0};
  std::atomic<uint64_t> host_waits{0};

  static void Count(std::atomic<uint64_t>& event, uint64_t amount = 1) {
    event.fetch_add(amount, std::memory_order_relaxed);
  }
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BASIS_POOL_EVENTS_H_
