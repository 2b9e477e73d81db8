// Who wants to know of segments and blocks as they come and go: the emulator's race checker, the log; later profilers
// and snapshots.
//
// Pools tell; observers listen and call nothing of the library. Any thread, several at once, no lock held.
#ifndef COMMPOOL_SRC_POOL_SHARED_MEMORY_OBSERVER_H_
#define COMMPOOL_SRC_POOL_SHARED_MEMORY_OBSERVER_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/driver/loader.h"
#include "src/engine/types.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

class MemoryObserver {
 public:
  virtual ~MemoryObserver() = default;

  // Whether it wants to hear of blocks: then nothing is served by the threads' caches unseen, which costs time.
  virtual bool watches_blocks() const { return false; }

  virtual void SegmentAdded(const engine::SegmentRange&, const std::string& /*pool*/) {}
  virtual void SegmentRemoved(const engine::SegmentRange&, const std::string& /*pool*/) {}

  // Its physical memory goes, and has come back.
  virtual void SegmentSleeps(const engine::SegmentRange&) {}
  virtual void SegmentAwake(const engine::SegmentRange&) {}

  virtual void BlockAllocated(const engine::SegmentRange&, StreamKey, const std::string& /*pool*/) {}
  // Told before it is true: another thread may be served the block at once.
  virtual void BlockFreed(CUdeviceptr) {}
  virtual void BlockRecorded(CUdeviceptr, StreamKey) {}

  virtual void StreamReleased(CUstream) {}
  virtual void CaptureBegun(CUstream) {}
  virtual void CaptureEnded(CUstream) {}
};

// Tells the emulator of blocks, streams and captures, so that it can judge how a program uses them. Null where the
// driver is a real one.
std::unique_ptr<MemoryObserver> MakeEmulatorObserver(const Driver& driver);
// Writes a line for each segment that a pool makes or gives back. Null where COMMPOOL_LOG=debug does not ask for it.
std::unique_ptr<MemoryObserver> MakeSegmentLog();

// The observers of a runtime: fixed when it is made.
class MemoryObservers {
 public:
  MemoryObservers() = default;
  explicit MemoryObservers(const Driver& driver) {
    Add(MakeEmulatorObserver(driver));
    Add(MakeSegmentLog());
  }

  void Add(std::unique_ptr<MemoryObserver> observer) {
    if (observer == nullptr) return;
    watching_blocks_ = watching_blocks_ || observer->watches_blocks();
    observers_.push_back(std::move(observer));
  }

  // What the fast path asks.
  bool watching_blocks() const { return watching_blocks_; }

  // Calls `event` (a method of MemoryObserver) on each of them.
  template <typename... Parameters, typename... Arguments>
  void Tell(void (MemoryObserver::*event)(Parameters...), const Arguments&... arguments) const {
    for (const std::unique_ptr<MemoryObserver>& observer : observers_) (observer.get()->*event)(arguments...);
  }

 private:
  std::vector<std::unique_ptr<MemoryObserver>> observers_;
  bool watching_blocks_ = false;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_MEMORY_OBSERVER_H_
