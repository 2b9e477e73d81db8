// Other allocators of the process, which say what they hold and can be asked to give back (commpool_add_holder).
//
// Any thread. Their functions are called without a lock; Remove returns when none of the removed one's is running.
#ifndef COMMPOOL_SRC_POOL_SHARED_MEMORY_HOLDERS_H_
#define COMMPOOL_SRC_POOL_SHARED_MEMORY_HOLDERS_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/status.h"

namespace commpool::internal {

class MemoryHolders {
 public:
  commpool_holder Add(const commpool_holder_options& options);
  // kNotFound for one that was removed; kFailedPrecondition from inside one of its functions, which would wait for
  // ever.
  Status Remove(commpool_holder holder);

  // Asks one after the other until `bytes` were given back; returns how many were, by their own word.
  uint64_t Release(int device, uint64_t bytes);

  struct Held {
    std::string name;
    uint64_t cached_bytes = 0;
  };
  std::vector<Held> Describe(int device);

 private:
  struct Holder {
    std::string name;
    uint64_t (*cached_bytes)(int device, void* context) = nullptr;
    uint64_t (*release)(int device, uint64_t bytes, void* context) = nullptr;
    void* context = nullptr;
    int running = 0;  // calls of its functions
    bool removed = false;
  };

  // Calls `ask` for every holder that is there, without the lock, until it answers false.
  template <typename Ask>
  void ForEach(Ask ask);

  // Not a Mutex of ours: a condition is waited for on it, and it is never held together with another lock.
  std::mutex mutex_;
  std::condition_variable ended_;
  commpool_holder next_ = 1;
  std::map<commpool_holder, std::shared_ptr<Holder>> holders_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_MEMORY_HOLDERS_H_
