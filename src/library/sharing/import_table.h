// The imports of a process by their handles, which are never reused. Runtime owns one. Any thread.
#ifndef COMMPOOL_SRC_LIBRARY_SHARING_IMPORT_TABLE_H_
#define COMMPOOL_SRC_LIBRARY_SHARING_IMPORT_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/sharing/pool_import.h"

namespace commpool::internal {

class ImportTable {
 public:
  uint64_t Add(std::shared_ptr<PoolImport> import) {
    MutexLock lock(mutex_);
    imports_.emplace(next_, std::move(import));
    return next_++;
  }
  // kNotFound for a handle that never was, or was closed.
  Result<std::shared_ptr<PoolImport>> Find(uint64_t handle) {
    MutexLock lock(mutex_);
    const auto found = imports_.find(handle);
    if (found != imports_.end()) return found->second;
    return Missing(handle);
  }
  // The same, and out of the table.
  Result<std::shared_ptr<PoolImport>> Take(uint64_t handle) {
    MutexLock lock(mutex_);
    auto taken = imports_.extract(handle);
    if (!taken.empty()) return std::move(taken.mapped());
    return Missing(handle);
  }

 private:
  static Status Missing(uint64_t handle) {
    return Status(StatusCode::kNotFound, "import " + std::to_string(handle) + " was closed, or never opened");
  }

  Mutex mutex_{LockRank::kPoolTable};
  std::map<uint64_t, std::shared_ptr<PoolImport>> imports_ COMMPOOL_GUARDED_BY(mutex_);
  uint64_t next_ COMMPOOL_GUARDED_BY(mutex_) = 1;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_SHARING_IMPORT_TABLE_H_
