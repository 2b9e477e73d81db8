// BlockStore: the blocks of one pool. It owns the pool's engine, the pool's lock, and the fences that freed blocks wait
// for. It hands blocks out, frees them, shares them with other streams, and takes them back from the threads' caches.
//
// The mode (growing/, symmetric/) and the runtime call it, from any thread. The lock guards data and is never held
// across a driver call: fences are recorded and waits are made outside it.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_BLOCK_STORE_H_
#define COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_BLOCK_STORE_H_

#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/engine/engine.h"
#include "src/library/engine/size_classes.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/blocks/block_rules.h"
#include "src/library/pool/blocks/recording_streams.h"

namespace commpool::internal {

// Pool owns one. Lock: `pool`. A caller that needs the growth lock too takes it first. It knows what a block is and
// whose it is, and no way to make memory: that is the mode's. Statistics and recordings read it too.
class BlockStore {
 public:
  // The engine's class is the one that the pool's mode expects.
  BlockStore(const PoolBasis& basis, std::unique_ptr<engine::Engine> engine);
  // Makes the caches forget the pool.
  ~BlockStore();

  // The pool's lock: hold it to use the engine.
  Mutex& mutex() const COMMPOOL_RETURN_CAPABILITY(mutex_) { return mutex_; }
  // The engine as the class that the pool's mode made it. Do not keep the reference beyond the lock.
  template <typename Kind = engine::Engine>
  Kind& engine() COMMPOOL_REQUIRES(mutex_) {
    return static_cast<Kind&>(*engine_);
  }
  template <typename Kind = engine::Engine>
  const Kind& engine() const COMMPOOL_REQUIRES(mutex_) {
    return static_cast<const Kind&>(*engine_);
  }
  RecordingStreams& recording() { return recording_; }
  // Whether a stream may take back at once what it freed: set when the engine was made.
  engine::OwnReuse own_reuse() const { return own_reuse_; }

  // Call it before each take or free in the engine: the engine's peaks then leave out what this thread's caches hold.
  void NoteHolding() COMMPOOL_REQUIRES(mutex_) { Note(basis_.runtime.caches.OwnHolding(basis_.handle)); }

  // Makes the stream wait for the remaining uses of a served block (not for streams that have finished), and publishes
  // the block. Where a wait fails the block is taken back (TakeBackUnserved). REQUIRES: nobody forgets a stream of
  // `served.waits` meanwhile: it came with a RecordingStreams::Scope, or the caller holds the growth lock.
  Result<CUdeviceptr> HandOut(const engine::Served& served, uint64_t requested, StreamKey stream, Caching caching,
                              BlockRules& rules);

  // HandOut for a block that nothing must wait for.
  void Announce(const engine::SegmentRange& block, uint64_t requested, StreamKey stream, Caching caching) const;

  // Frees a live block, and records the fences that it needs. kNotFound for an address that is none, or was freed
  // before. On the thread of the program, once no cache has taken the block. Any other error tells of a fence that
  // could not be recorded: the block has ended then.
  Status Free(CUdeviceptr address, BlockRules& rules);
  // Another stream uses the block too. The caller passes the stream now, so it lives.
  Status RecordStream(CUdeviceptr address, StreamKey stream);

  // Notes something of a live block until its free. False where there is none.
  bool SetMark(CUdeviceptr address, engine::Mark mark);
  bool HasMark(CUdeviceptr address, engine::Mark mark) const {
    MutexLock lock(mutex_);
    return engine_->HasMark(address, mark);
  }

  // Whether HandOut can make the waits. It cannot where it must wait for a stream that captures now: the stream's work
  // from before the capture has no event, and a new event would pull the waiting stream into the capture. One load
  // while no capture is open.
  bool MayWaitFor(const engine::Served& served) const;
  // Call it instead of HandOut where MayWaitFor says no: frees the block again, and keeps it closed until those streams
  // can be asked for fences.
  void TakeBackUnserved(const engine::Served& served, BlockRules& rules);

  // ShareServer's thread calls it: the last importer does not use the freed block any more.
  void LetGo(CUdeviceptr address, BlockRules& rules);

  // Takes blocks that threads' caches held. Without the lock `caches`, which comes before the pool's.
  void TakeBack(const engine::ReturnedBlocks& returned);
  // Takes back what the caches of all threads hold. Returns whether they held anything. Takes the locks `caches` and
  // `pool` one after the other.
  bool DrainCaches();
  // From now on every request and every free takes the pool's lock. The blocks in them come back to the pool.
  void CloseCaches(ThreadCaches::Reopen reopen);

  // Whether the stream has finished all its work, so that what it freed is idle. False where nobody may ask: for
  // another thread's default stream, in a capture, and in a symmetric pool. Never waits. A yes frees memory: the engine
  // hears of it.
  Result<bool> IsIdle(StreamKey stream);
  // Tells the engine which fences have passed. Returns whether any has. Never waits.
  bool PollFences();
  // Whether some freed blocks open only after a wait for the device, because their streams may have died.
  bool AwaitsDevice() const {
    MutexLock lock(mutex_);
    return engine_->AnyClosedLacksFenceOf(MayHaveDied);
  }
  // Freed memory that only a wait for the device opens, where not even its own stream may take it before; at most so
  // much.
  uint64_t BytesAwaitingDevice() const COMMPOOL_REQUIRES(mutex_);
  // Waits on the host for everything submitted to the device, and to the places of all streams that may touch the
  // memory. Then forgets the uses of blocks that were freed before. kFailedPrecondition in a capture of one of the
  // devices, kDeadlineExceeded while one is busy: then nothing is forgotten.
  Status WaitForDevice() { return WaitForDevice(basis_.deadline_ms()); }
  Status WaitForDevice(uint64_t deadline_ms);

  // The uses that end once all work submitted by now is done at these places, the pool's device among them. A caller
  // that waits by itself takes them before its wait, and passes them to ForgetUses afterwards. A later moment would
  // count frees whose work the wait does not cover.
  struct Uses {
    engine::Moment moment = 0;
    std::vector<engine::Fence> fences;
    std::set<int> places;
  };
  // First records the fences that were missing, as far as they can be recorded now. Calls the driver.
  Uses NoteUses();
  // REQUIRES: those uses have ended.
  void ForgetUses(const Uses& uses);
  // Records an event on the stream, which this call passes. Then other streams may take what it freed, after a wait.
  // Does nothing while the stream captures.
  Status FenceFreed(StreamKey stream);
  // For a stream whose work is done and whose handle will be recycled: no block, live or free, waits for it any more.
  // Waits for calls of other threads that are about to record on it.
  void ForgetStream(StreamKey stream);

  // The live block that holds the address. kNotFound where there is none, or a thread's cache has it. The address may
  // lie anywhere in the block.
  Result<commpool_block> Find(CUdeviceptr address) const;
  // Every block, by segment and address. Changes that threads' caches make meanwhile may be missing. Holds the lock
  // while it lists them all.
  std::vector<commpool_block> List() const;

  // Records the memory that the pool has, and the live blocks that caches do not keep, for a recording that begins.
  void RecordPresent() const;
  // How many small blocks the pool has served to caches' lanes itself, by size class, while it was recorded.
  uint64_t served_small(engine::SizeClass size_class) const {
    return served_small_[size_class].load(std::memory_order_relaxed);
  }

  // Each takes the pool's lock; Statistics and ResetPeaks pause the pool's caches before.
  uint64_t ReservedBytes() const;
  engine::Counters counters() const;  // as the engine sees it: cached blocks count as allocated
  // As the program sees it: cached blocks count as free.
  engine::Counters Statistics() const;
  void ResetPeaks();
  // For tests: aborts where the engine's books contradict each other.
  void CheckInvariants() const;

 private:
  Status MakeWait(StreamKey waiter, const engine::StreamUse& use);
  // From now on the live block's free comes here, and not to a cache.
  Status MakeUncacheable(CUdeviceptr address);
  // No importer holds the block, which the program has freed.
  void OpenToAll(CUdeviceptr address);
  // Whether its use ends with its free. A replay of the graph that captured with it would use it again.
  bool EndsWithItsFree(CUdeviceptr address) const;
  // Records the fences that a freed block needs. Those that cannot be recorded now are recorded later: until then the
  // block names them.
  Status RecordFences(CUdeviceptr address, const std::vector<StreamKey>& streams);
  // Calls the driver without the lock. Those of streams that may have died stay until a wait for the device.
  void RecordMissingFences();
  // Whether the stream is known to have finished all its work. Never waits. REQUIRES: as for IsIdle.
  Result<bool> HasFinished(StreamKey stream) const;
  // Whether a fence recorded now would break no capture: the stream does not capture, and this thread can reach it.
  bool MayRecordOn(StreamKey stream) const;
  // Tells the engine what caches hold, corrected by what the engine takes for the requested sizes.
  void Note(engine::Holding holding) const COMMPOOL_REQUIRES(mutex_);
  // The pool, for a cache that will keep its blocks.
  CachedPool AsCachedPool() const;
  // A block as programs see it: one in a cache is not live. Looks at the block's word, which a cache may change
  // meanwhile.
  commpool_block Describe(const engine::BlockView& view) const COMMPOOL_REQUIRES(mutex_);
  // List, under the lock.
  std::vector<commpool_block> Sorted() const COMMPOOL_REQUIRES(mutex_);

  const PoolBasis& basis_;
  const engine::OwnReuse own_reuse_;
  RecordingStreams recording_;
  mutable Mutex mutex_{LockRank::kPool};
  const std::unique_ptr<engine::Engine> engine_ COMMPOOL_PT_GUARDED_BY(mutex_);
  // Counted without the lock, as blocks are announced.
  mutable std::array<std::atomic<uint64_t>, engine::kSizeClasses> served_small_ = {};
  std::atomic<bool> has_tickets_{false};  // whether a ticket of a block was ever made
  // All that threads' caches have given back so far. What has left a cache and is not counted here is on its way.
  engine::Tally taken_back_ COMMPOOL_GUARDED_BY(mutex_);
  // The engine notes the requested size of a block when it serves the block, and a cache may then serve it again for
  // another size. This is the sum of the differences, for statistics.
  int64_t requested_correction_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_BLOCK_STORE_H_
