// From a pointer and a communicator to the window that holds it, for all pools of a process: without a lock, a driver
// call or a write, so that any number of threads look at once (rule 3).
//
// Two tables take turns: a change writes the one that is not published, then publishes it. A reader that is overtaken
// by two changes sees that its table's version moved, and looks again; it never waits for a writer. Tables that grew
// too small stay until the index ends, because a reader may still look: together they are no larger than the last two.
// Any thread.
#ifndef COMMPOOL_SRC_REGISTRATION_WINDOW_INDEX_H_
#define COMMPOOL_SRC_REGISTRATION_WINDOW_INDEX_H_

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "src/base/host_reserve.h"
#include "src/base/mutex.h"
#include "src/registration/window_table.h"

namespace commpool::internal {

class WindowIndex {
 public:
  WindowIndex();
  WindowIndex(const WindowIndex&) = delete;
  WindowIndex& operator=(const WindowIndex&) = delete;

  // REQUIRES: it is not empty and overlaps no other window of its communicator.
  void Add(const RegisteredWindow& window);
  // Makes room for one more, so that the next Add asks the host for nothing.
  void MakeRoom();
  // Does nothing where there is no such window.
  void Remove(ncclComm_t communicator, CUdeviceptr address);

  // Nothing where no window of the communicator holds the address.
  std::optional<WindowPlace> Find(ncclComm_t communicator, CUdeviceptr address) const {
    while (true) {
      const WindowTable& table = *published_.load(std::memory_order_acquire);
      const uint64_t version = table.version();
      const std::optional<WindowPlace> place = table.Find(communicator, address);
      if (version % 2 == 0 && table.version() == version) return place;
    }
  }

  // Tables that were ever made: what the index keeps.
  size_t tables() const;

 private:
  void Publish() COMMPOOL_REQUIRES(mutex_);
  WindowTable* MakeTable(size_t capacity) COMMPOOL_REQUIRES(mutex_);

  mutable Mutex mutex_{LockRank::kLeaf};
  ReservedVector<RegisteredWindow> windows_ COMMPOOL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<WindowTable>> tables_ COMMPOOL_GUARDED_BY(mutex_);
  WindowTable* current_ COMMPOOL_GUARDED_BY(mutex_) = nullptr;  // what is published
  WindowTable* spare_ COMMPOOL_GUARDED_BY(mutex_) = nullptr;
  std::atomic<const WindowTable*> published_{nullptr};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_WINDOW_INDEX_H_
