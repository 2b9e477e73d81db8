// PoolGroup: the pools of one home that one thread made together. The thread owns several ranks, so its collective
// calls must name all of these pools.
//
// Immutable: any thread.
#ifndef COMMPOOL_SRC_POOL_POOL_GROUP_H_
#define COMMPOOL_SRC_POOL_POOL_GROUP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "commpool/status.h"

namespace commpool::internal {

class PoolGroup {
 public:
  explicit PoolGroup(size_t size) : size_(size) {}

  size_t size() const { return size_; }
  // Whether the calling thread made it.
  bool IsOfThisThread() const { return maker_ == ThisThread(); }

  // The error of a call that names only `present` of the pools.
  Status Incomplete(const std::string& pool, long present) const {
    return Status(StatusCode::kFailedPrecondition,
                  "this thread made " + std::to_string(size_) + " pools of one home together, pool " + pool +
                      " among them, and calls for " + std::to_string(present) +
                      " of them: it would wait for its own other ranks. Pass all of them to one call "
                      "(commpool_pools_reserve and its like)");
  }

 private:
  // A number for each thread. Unlike the system's number it never comes back.
  static uint64_t ThisThread() {
    static constinit std::atomic<uint64_t> next{1};
    thread_local const uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
    return number;
  }

  const size_t size_;
  const uint64_t maker_ = ThisThread();
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_POOL_GROUP_H_
