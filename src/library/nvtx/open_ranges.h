// OpenRanges: the ranges of what has a handle, such as a scope: another thread may end it, and in any order.
//
// Any thread. The tool is called without the lock.
#ifndef COMMPOOL_SRC_LIBRARY_NVTX_OPEN_RANGES_H_
#define COMMPOOL_SRC_LIBRARY_NVTX_OPEN_RANGES_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "src/library/base/mutex.h"
#include "src/library/nvtx/domain.h"

namespace commpool::internal::nvtx {

// A runtime has one.
class OpenRanges {
 public:
  void Start(uint64_t handle, const std::shared_ptr<const Domain>& domain, std::string_view text) {
    if (!domain->heard()) return;
    const uint64_t range = domain->Start(text);
    any_.store(true, std::memory_order_relaxed);
    bool kept = false;
    {
      MutexLock lock(mutex_);
      kept = open_.emplace(handle, Open{domain, range}).second;
    }
    if (!kept) domain->End(range);
  }
  void End(uint64_t handle) {
    if (!any_.load(std::memory_order_relaxed)) return;
    Open ended;
    {
      MutexLock lock(mutex_);
      const auto found = open_.find(handle);
      if (found == open_.end()) return;
      ended = std::move(found->second);
      open_.erase(found);
    }
    ended.domain->End(ended.range);
  }

 private:
  struct Open {
    std::shared_ptr<const Domain> domain;
    uint64_t range = 0;
  };

  std::atomic<bool> any_{false};  // whether there was a range ever
  Mutex mutex_{LockRank::kLeaf};
  std::map<uint64_t, Open> open_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal::nvtx

#endif  // COMMPOOL_SRC_LIBRARY_NVTX_OPEN_RANGES_H_
