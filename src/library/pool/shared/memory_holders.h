// MemoryHolders: the process's other allocators, which say what they hold and give memory back (commpool_add_holder).
//
// Any thread. Their functions run without a lock. Remove returns when none of the removed holder's functions runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/library/base/mutex.h"

namespace commpool::internal {

// RuntimeParts owns one. The program adds and removes holders; the search for memory asks them. It owns the list. A
// holder's functions stay the program's, and may be removed at any time but while they run.
class MemoryHolders {
 public:
  // From now on the search for memory asks it. The options are copied, the functions must stay.
  commpool_holder Add(const commpool_holder_options& options);
  // kNotFound for a holder that was removed. REQUIRES: not called inside one of its functions, which would wait for
  // itself.
  Status Remove(commpool_holder holder);

  // Asks one after the other until they have released `bytes`; returns how many they say they released. Call it without
  // a lock: the functions may take locks of the program.
  uint64_t Release(int device, uint64_t bytes);

  // How much memory one holder could give back.
  struct Held {
    std::string name;
    uint64_t cached_bytes = 0;
  };
  // For the table of an error: asks each holder that can tell.
  std::vector<Held> Describe(int device);

 private:
  // One allocator of the process, with the functions that the program gave us.
  struct Holder {
    std::string name;
    commpool_holder_options functions = {};
    int running = 0;  // how many of its functions run now
    bool removed = false;
  };

  // Calls `ask` for every holder, without the lock, until it returns false.
  template <typename Ask>
  void ForEach(Ask ask);

  Mutex mutex_{LockRank::kLeaf};
  Condition ended_;
  commpool_holder next_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  std::map<commpool_holder, std::shared_ptr<Holder>> holders_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal
