// Grower: makes room in a pool that may grow inside an allocation, and gives memory back. It carries out the engine's
// plan (engine/expansion.h): fixed pools with whole segments, expandable pools with pages that move. GrowingMode
// calls it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "commpool/status.h"
#include "src/library/engine/caching_engine.h"
#include "src/library/pool/pool.h"
#include "src/library/pool/segments/segment_store.h"

namespace commpool::internal {

using engine::Effort;

// GrowingMode owns one: a fixed or an expandable grower. Lock: `growth` for a whole growth; the pool's lock only while
// the engine plans, claims and completes. The thread of the program whose request lacks memory runs it; others that
// lack memory wait for the lock, and then often find theirs. Frees and cached pairs go on beside it.
//
// Before it plans with free memory, and before it releases any, it learns which streams are done with that memory. It
// asks each stream. If the stream has not finished, it records an event behind its work (a checkpoint), and asks the
// event later. It owns the fences of its checkpoints, and retires each once it has passed.
class Grower : protected PoolParts {
 public:
  explicit Grower(const PoolParts& parts) : PoolParts(parts) {}
  virtual ~Grower() = default;

  // Makes room for the request, unless another thread's growth does so first. kOutOfMemory where there is none. Memory
  // for a graph's part belongs to the graph; then nothing moves and nothing is released.
  //
  // The engine plans under the pool's lock. The steps run outside of it, under the growth lock. Then the engine serves
  // the new memory. Where a step fails the earlier ones are undone. OK means that the engine could serve the request at
  // that moment: the caller asks again.
  Status Grow(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part = engine::kCommonPart);
  // Releases free memory until at most `keep_bytes` are reserved; returns the released bytes. Takes the growth lock.
  // After a failure what was released stays released. For trim, close, the release threshold, and other pools that need
  // memory. Pages or segments that streams still use stay.
  Result<uint64_t> Release(uint64_t keep_bytes, Wait wait);
  // All free memory that is known to be idle, without a wait for anything, also for the growth lock: where another
  // thread has it nothing is released. REQUIRES: the caller keeps the pool alive.
  Result<uint64_t> ReleaseAtOnce();
  // Waits for the device, so that free memory becomes idle memory. kOutOfMemory beside a capture, which the wait would
  // break: to a request that is a lack of memory.
  Status AwaitDevice();
  // For a stream whose handle will be recycled, as BlockStore::ForgetStream. Takes the growth lock.
  void ForgetStream(StreamKey stream);

 protected:
  virtual Result<uint64_t> ReleaseHeld(uint64_t keep_bytes, Wait wait) COMMPOOL_REQUIRES(kGrowthLock) = 0;

  // A growth in progress. Lives in Grow's frame, so an interrupted growth leaves its pages here, and their destructors
  // release them. One thread's, under the growth lock.
  struct Growth {
    engine::GrowthRequest request;
    engine::GrowthPlan plan = {};
    std::deque<PhysicalMemory> in_hand = {};  // pages without an address
    size_t unmapped = 0;                      // how many pages lost their address
  };

  // Carries out a step of the plan. The context of the pool's device is current. Steps that only wait never come here.
  virtual Status Do(const engine::GrowthStep& step, Growth& growth) COMMPOOL_REQUIRES(kGrowthLock) = 0;
  // After a failed step: undoes the earlier steps, and the claim. A segment needs no undoing: it is adopted as a whole,
  // or goes with its object. Has no result: what it cannot put back it tells the log.
  virtual void Undo(Growth&) COMMPOOL_REQUIRES(kGrowthLock) {}

  // Asks about every stream that may still use free memory, so that free memory becomes idle memory. Never waits. Call
  // it without the pool's lock; it calls the driver.
  Status Poll() COMMPOOL_REQUIRES(kGrowthLock);

  // Both kinds of growing pools have an engine of this class, or of one derived from it.
  engine::CachingEngine& engine() COMMPOOL_REQUIRES(blocks_.mutex()) { return blocks_.engine<engine::CachingEngine>(); }

 private:
  using Clock = std::chrono::steady_clock;
  // An event behind a stream's work: tells whether the blocks that were freed before `moment` are idle. It owns the
  // fence.
  struct Checkpoint {
    StreamKey stream = 0;
    engine::Moment moment = 0;
    FenceId fence = 0;
  };

  // Adds the facts that the pool knows and the engine does not. Again before each plan, because the facts change while
  // the growth waits.
  void Describe(engine::GrowthRequest& request) const COMMPOOL_REQUIRES(kGrowthLock);
  // Plans, and carries the plan out. Returns whether the growth is complete. False: plan again, because the plan only
  // waited or another thread was faster. After a failure the plan is undone.
  Result<bool> GrowOnce(Growth& growth) COMMPOOL_REQUIRES(kGrowthLock);
  // Stops at the first step that fails.
  Status CarryOut(Growth& growth) COMMPOOL_REQUIRES(kGrowthLock);
  // Polls until no stream uses free memory any more, or `limit` has passed.
  Status Await(std::chrono::microseconds limit) COMMPOOL_REQUIRES(kGrowthLock);
  // Asks the stream. Where it still works, adds a checkpoint, unless there is one of this moment. Does nothing for
  // streams that nobody may ask.
  Status PollStream(StreamKey stream, engine::Moment now) COMMPOOL_REQUIRES(kGrowthLock);
  // Reports the passed checkpoints to the engine and keeps the others.
  void PollCheckpoints() COMMPOOL_REQUIRES(kGrowthLock);

  // Those that have not passed.
  std::vector<Checkpoint> checkpoints_ COMMPOOL_GUARDED_BY(kGrowthLock);
};

// Fixed pools grow by whole segments, expandable ones by pages that move.
std::unique_ptr<Grower> MakeFixedGrower(const PoolParts& parts);
std::unique_ptr<Grower> MakeExpandableGrower(const PoolParts& parts);

// The options of a growing pool's engine. Segments and pages are multiples of `granularity`. The factory makes the
// engine with them, and tests do.
engine::EngineOptions GrowingEngineOptions(const PoolConfiguration& configuration, uint64_t granularity);

}  // namespace commpool::internal
