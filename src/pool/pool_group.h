// The pools of one home that a thread made together: it owns several ranks, so its collective calls take all of them.
//
// Immutable: any thread.
#ifndef COMMPOOL_SRC_POOL_POOL_GROUP_H_
#define COMMPOOL_SRC_POOL_POOL_GROUP_H_

#include <cstddef>
#include <memory>
#include <string>

#include "commpool/status.h"

namespace commpool::internal {

class PoolGroup {
 public:
  explicit PoolGroup(size_t size) : size_(size), maker_(ThisThread()) {}

  size_t size() const { return size_; }
  // Whether the calling thread made it. (An ended thread's system number comes back; what this keeps does not.)
  bool IsOfThisThread() const { return maker_.lock() == ThisThread(); }

  // What a call with only `present` of the pools answers.
  Status Incomplete(const std::string& pool, long present) const {
    return Status(StatusCode::kFailedPrecondition,
                  "this thread made " + std::to_string(size_) + " pools of one home together, pool " + pool +
                      " among them, and calls for " + std::to_string(present) +
                      " of them: it would wait for its own other ranks. Pass all of them to one call "
                      "(commpool_pools_reserve and its like)");
  }

 private:
  struct Thread {};
  static const std::shared_ptr<Thread>& ThisThread() {
    thread_local const std::shared_ptr<Thread> thread = std::make_shared<Thread>();
    return thread;
  }

  const size_t size_;
  const std::weak_ptr<Thread> maker_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_POOL_GROUP_H_
