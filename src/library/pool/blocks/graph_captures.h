// GraphCaptures: the captures that a pool was told of. It knows which part of its memory belongs to which graph, and
// which graphs are gone.
//
// Any thread. Calls the driver without a lock. A user object tells the end of a graph: its callback only sets a flag,
// because it runs on a thread of the driver and may call no CUDA.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/engine/types.h"
#include "src/library/pool/basis/pool_basis.h"

namespace commpool::internal {

using CaptureHandle = uint64_t;

// Pool owns one and reports the begin and end of captures to it. The modes ask it for parts, and take the parts of
// graphs that are gone. Lock: its own, of rank `leaf`. A capture leaves the table only by TakeGone, so no part is
// forgotten before somebody releases its memory.
class GraphCaptures {
 public:
  explicit GraphCaptures(const PoolBasis& basis) : basis_(basis) {}

  // The stream where a capture began, and the devices that it concerns. The handle is valid while the announcement is
  // open; afterwards the stream may be gone.
  struct Origin {
    CUstream stream = nullptr;
    StreamKey key = 0;
    std::set<int> devices;
  };

  // kFailedPrecondition where the stream is not being captured; where graphs share one part, while a capture is open.
  Status Begin(CaptureHandle capture, const Origin& origin);
  // The part that serves the capture: its own, or that of all graphs (Replays). REQUIRES: it has begun, and not ended.
  engine::Part PartOfCapture(CaptureHandle capture) const;
  // Returns how the capture began. REQUIRES: it has begun, and not ended.
  Origin End(CaptureHandle capture);

  // Whether a capture is open. Every allocation asks this, so it is one load. Of this pool: DeviceState::captures() has
  // those of all pools.
  bool any_open() const { return open_.load(std::memory_order_acquire) > 0; }

  // Whether there is any capture or graph that TakeGone has not reported. One load. False means that no graph of this
  // pool needs any care.
  bool any_known() const { return known_.load(std::memory_order_acquire) > 0; }

  // The part of the capture that the stream belongs to, as its origin or by a fork. The common part where the stream
  // does not capture; kFailedPrecondition where it is in a capture that nobody announced to this pool. Calls the driver
  // only while a capture is open in the process. The answer for a stream without a promise is remembered
  // (Done::joined).
  Result<engine::Part> PartOf(StreamKey stream);
  // What an open capture has done by now.
  struct Done {
    // The last moment by which a block of the part was freed inside of the capture (NoteFree).
    engine::Moment last_free = 0;
    // The streams without a promise that calls passed in the capture: nobody can ask for them later. Their keys are
    // those of streams that capture, so no use outside of a capture has one.
    std::set<StreamKey> joined = {};
  };
  // Of the open capture that the part serves, if any.
  Done DoneBy(engine::Part part);

  // The stream was promised: a capture that began on it can be asked for.
  void NoteKey(CUstream stream, StreamKey key);
  // The stream's handle will be recycled: no capture runs on it any more.
  void ForgetStream(StreamKey stream);
  // Whether an announced capture still runs on its stream. Asks the driver; of a stream that may have died it cannot,
  // and takes it for running.
  bool IsRunning(engine::Part part);
  // Whether the stream belongs to that capture now, as its origin or by a fork. Asks the driver.
  bool IsJoinedBy(engine::Part part, StreamKey stream);
  // A block of the part was freed by this moment, inside of the capture.
  void NoteFree(engine::Part part, engine::Moment moment);

  // OK where no graph is alive that captured here. Waits for a moment: the driver reports the end of a graph on a
  // thread of its own, so a graph that was destroyed just now may still count. kFailedPrecondition says how many are
  // alive.
  Status CheckNoneLive() const;
  // Waits for the same moment for the graphs of ended captures. Returns how many are alive; 0 at once while a capture
  // is open, because nobody waits for that.
  size_t AwaitEndedGraphs() const;

  bool Knows(engine::Part part) const {
    MutexLock lock(mutex_);
    return std::ranges::any_of(captures_, [&](const auto& entry) { return entry.second.part == part; });
  }
  // Whether TakeGone would return any.
  bool any_gone() const;
  // The parts whose graphs, and everything made from them, are destroyed. Returns each part once. One load where
  // nothing is known.
  std::vector<engine::Part> TakeGone();

 private:
  // A capture that is open, or whose graph may still live. An entry stays from Begin to TakeGone.
  struct Capture {
    Origin origin;
    engine::Part part = 0;
    cuuint64_t number = 0;  // the driver's
    Done done = {};
    // Shared with the driver's callback, which may come after the pool's end.
    std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);
    // The announcement has ended, so no further stream of the capture is served.
    bool ended = false;
    bool origin_released = false;  // so it does not run, although its announcement may be open

    bool IsGone() const { return ended && gone->load(std::memory_order_acquire); }
  };

  // Waits until no graph is alive or the moment is over. Returns how many are alive.
  size_t AwaitNoneLive(std::chrono::milliseconds moment) const;
  // The open capture that the part serves; null where there is none.
  Capture* FindOpen(engine::Part part) COMMPOOL_REQUIRES(mutex_);

  const PoolBasis& basis_;
  mutable Mutex mutex_{LockRank::kLeaf};
  std::map<CaptureHandle, Capture> captures_ COMMPOOL_GUARDED_BY(mutex_);
  std::atomic<int> open_{0};
  std::atomic<size_t> known_{0};  // the size of captures_
};

}  // namespace commpool::internal
