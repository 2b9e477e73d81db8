// The blocks of a pool: its engine and the lock around it, and what happens when a block is handed out, freed, shared
// with another stream, or taken back from the threads' caches.
//
// Any thread may call any method. The lock guards data and is never held across a driver call: fences are recorded and
// waits are made outside it.
#ifndef COMMPOOL_SRC_POOL_BLOCKS_BLOCK_STORE_H_
#define COMMPOOL_SRC_POOL_BLOCKS_BLOCK_STORE_H_

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/base/mutex.h"
#include "src/engine/engine.h"
#include "src/pool/basis/pool_basis.h"
#include "src/pool/blocks/block_rules.h"
#include "src/pool/blocks/recording_streams.h"

namespace commpool::internal {

class BlockStore {
 public:
  BlockStore(const PoolBasis& basis, std::unique_ptr<engine::Engine> engine);
  // The caches forget the pool.
  ~BlockStore();

  // The pool's lock: whoever decides on the engine's books holds it.
  Mutex& mutex() const COMMPOOL_RETURN_CAPABILITY(mutex_) { return mutex_; }
  // As the pool's mode knows it, which had it made. Nobody keeps it.
  template <typename Kind = engine::Engine>
  Kind& engine() COMMPOOL_REQUIRES(mutex_) {
    return static_cast<Kind&>(*engine_);
  }
  template <typename Kind = engine::Engine>
  const Kind& engine() const COMMPOOL_REQUIRES(mutex_) {
    return static_cast<const Kind&>(*engine_);
  }
  RecordingStreams& recording() { return recording_; }

  // Before the engine is asked for a block, or given one: its peaks leave out what this thread's caches hold.
  void NoteHolding() COMMPOOL_REQUIRES(mutex_) { Note(basis_.runtime.caches.OwnHolding(basis_.handle)); }

  // Makes the stream wait for the uses that a served block still has, but for streams that stand still, and publishes
  // the block. Where a wait fails the block is quarantined: it stays live in nobody's hands. REQUIRES: no stream in
  // `served.waits` is forgotten meanwhile: it came with a RecordingStreams::Scope, or the pool's growth lock is held.
  Result<CUdeviceptr> HandOut(const engine::Served& served, uint64_t requested, StreamKey stream, Caching caching);

  // The same for a block without uses.
  void Announce(const engine::SegmentRange& block, uint64_t requested, StreamKey stream, Caching caching) const;

  Status Free(CUdeviceptr address, BlockRules& rules);
  // `stream_device`: asked where the stream may die, for then only a wait for its device tells that its work is over.
  Status RecordStream(CUdeviceptr address, StreamKey stream, std::optional<int> stream_device);

  // Whether HandOut could make the waits: not where one is for a stream that is captured now, for its work from before
  // the capture has no event, and a new one would pull the waiting stream into the capture.
  bool MayWaitFor(const engine::Served& served) const;
  // Then: the block is freed again, and closed until those streams can be asked for fences.
  void TakeBackUnserved(const engine::Served& served);

  // Blocks that threads' caches held.
  void TakeBack(const engine::ReturnedBlocks& returned);
  // Takes back what the caches of all threads hold. Whether that was anything.
  bool DrainCaches();
  // Nothing is served without the pool's lock from now on.
  void CloseCaches(ThreadCaches::Reopen reopen);

  // Whether the stream stands still: then what it had freed is idle. False where that cannot be asked: of another
  // thread's default stream, in a capture, and in a symmetric pool. Never waits. REQUIRES: the context of the pool's
  // device is current.
  Result<bool> IsIdle(StreamKey stream);
  // Lets the engine know of fences that have passed. Whether any has. Never waits.
  bool PollFences();
  // Whether freed blocks are closed that only a wait for the device opens, for their streams may have died.
  bool AwaitsDevice() const {
    MutexLock lock(mutex_);
    return std::any_of(owed_.begin(), owed_.end(), [](const OwedFence& fence) { return AwaitsDevice(fence); });
  }
  // Waits on the host for everything submitted to the device, and forgets the uses of blocks freed before.
  Status WaitForDevice() { return WaitForDevice(basis_.deadline_ms()); }
  Status WaitForDevice(uint64_t deadline_ms);

  // What is over once everything is done that was submitted by now to the pool's device, and to the others.
  struct Uses {
    engine::Moment moment = 0;
    ReservedVector<engine::Fence> fences;
    ReservedSet<int> other_devices;
  };
  Uses NoteUses();
  // REQUIRES: it is over, the fences too.
  void ForgetUses(const Uses& uses);
  // The stream, which this call passes, gets an event: other streams may take what it freed after a wait.
  Status FenceFreed(StreamKey stream);
  // The stream's work is done and its handle will be recycled: no block, live or free, waits for it any more.
  void ForgetStream(StreamKey stream);

  // The live block that holds the address; kNotFound where none does, or it lies in a thread's cache.
  Result<commpool_block> Find(CUdeviceptr address) const;
  // Every block, in the order of segments and addresses. What threads' caches do meanwhile may be in it or not.
  std::vector<commpool_block> List() const;

  uint64_t ReservedBytes() const;
  engine::Counters counters() const;  // as the engine knows them: cached blocks count as allocated
  engine::Counters Statistics() const;
  void ResetPeaks();
  void CheckInvariants() const;

 private:
  // A fence that a freed block owes and that could not be recorded: in a capture, or on a stream that nobody promised.
  struct OwedFence {
    CUdeviceptr address = 0;
    StreamKey stream = 0;
    engine::Moment moment = 0;  // not before the free
  };

  static bool AwaitsDevice(const OwedFence& fence) { return MayHaveDied(fence.stream); }
  Status MakeWait(StreamKey waiter, const engine::StreamUse& use);
  // Records the fences that a freed block owes, as far as no capture is in the way; the rest later.
  Status RecordFences(CUdeviceptr address, const ReservedVector<StreamKey>& streams);
  void RecordOwedFences();
  // Whether a fence recorded now would break no capture: the stream is in none, and can be reached by this thread.
  bool MayRecordOn(StreamKey stream) const;
  void Note(engine::Holding holding) const COMMPOOL_REQUIRES(mutex_);
  CachedPool AsCachedPool() const;
  commpool_block Describe(const engine::BlockView& view) const;

  const PoolBasis& basis_;
  RecordingStreams recording_;
  mutable Mutex mutex_{LockRank::kPool};
  const std::unique_ptr<engine::Engine> engine_ COMMPOOL_PT_GUARDED_BY(mutex_);
  ReservedVector<OwedFence> owed_ COMMPOOL_GUARDED_BY(mutex_);
  ReservedSet<int> other_devices_ COMMPOOL_GUARDED_BY(mutex_);  // that have used blocks on streams nobody promised
  // All-time, from threads' caches: what has left them and is not here yet is on its way.
  engine::Tally taken_back_ COMMPOOL_GUARDED_BY(mutex_);
  // What was asked for and what the engine knows of it differ for blocks that went through a cache.
  int64_t requested_correction_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_BLOCK_STORE_H_
