// The captures that a pool was told of: which of its memory belongs to which graph, and which graphs are gone.
//
// Any thread. Calls the driver without a lock. A graph's end is learnt from a user object, whose callback only sets a
// flag: it may call no CUDA, and runs on a thread of the driver's.
#ifndef COMMPOOL_SRC_POOL_BLOCKS_GRAPH_CAPTURES_H_
#define COMMPOOL_SRC_POOL_BLOCKS_GRAPH_CAPTURES_H_

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/base/mutex.h"
#include "src/engine/types.h"
#include "src/pool/basis/pool_basis.h"

namespace commpool::internal {

using CaptureHandle = uint64_t;

class GraphCaptures {
 public:
  explicit GraphCaptures(const PoolBasis& basis) : basis_(basis) {}

  // What a capture began with: its stream, and the devices that it concerns.
  struct Origin {
    CUstream stream = nullptr;
    std::set<int> devices;
  };

  // kFailedPrecondition where the stream is not being captured.
  Status Begin(CaptureHandle capture, const Origin& origin);
  // What it began with. REQUIRES: it has begun, and not ended.
  Origin End(CaptureHandle capture);

  // Whether one has begun and not ended: the price that every allocation pays.
  bool any_open() const { return open_.load(std::memory_order_acquire) > 0; }

  // Whether there is one at all that TakeGone has not told of: one load.
  bool any_known() const { return known_.load(std::memory_order_acquire) > 0; }

  // The part of the capture that the stream belongs to, as its origin or by a fork; the common part where it is not
  // captured; kFailedPrecondition where it is in a capture that this pool was not told of.
  Result<engine::Part> PartOf(StreamKey stream) const;

  // OK where no graph is alive that captured here. One that was destroyed just now may not be known to be: the driver
  // tells on a thread of its own, so a moment is waited. kFailedPrecondition says how many there are.
  Status CheckNoneLive() const;
  // Waits such a moment for the graphs of captures that have ended, in case they were destroyed just now. How many are
  // alive; 0 while a capture is open, which nobody waits for.
  size_t AwaitEndedGraphs() const;

  // Whether TakeGone would tell of any.
  bool any_gone() const;
  // Parts whose graph, and everything made from it, was destroyed. Each is told once.
  ReservedVector<engine::Part> TakeGone();

 private:
  struct Capture {
    Origin origin;
    CUgraph graph = nullptr;
    std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);
    bool ended = false;

    bool IsGone() const { return ended && gone->load(std::memory_order_acquire); }
  };

  // How many are alive once none is, or the moment is over.
  size_t AwaitNoneLive(std::chrono::milliseconds moment) const;

  const PoolBasis& basis_;
  mutable Mutex mutex_{LockRank::kLeaf};
  ReservedMap<CaptureHandle, Capture> captures_ COMMPOOL_GUARDED_BY(mutex_);  // a handle is its part
  std::atomic<int> open_{0};
  std::atomic<size_t> known_{0};  // of captures_
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_GRAPH_CAPTURES_H_
