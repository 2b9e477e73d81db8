// BlockStore: the blocks of one pool. It owns the pool's engine, the pool's lock, and the fences that freed blocks wait
// for. It hands blocks out, frees them, shares them with other streams, and takes them back from the threads' caches.
//
// The mode (growing/, symmetric/) and the runtime call it, from any thread. The lock guards data and is never held
// across a driver call: fences are recorded and waits are made outside it.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <type_traits>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/function_ref.h"
#include "src/library/base/mutex.h"
#include "src/library/engine/engine.h"
#include "src/library/pool/basis/pool_basis.h"

namespace commpool::internal {

class GraphCaptures;

// Whether the waits for a served block's uses may go to streams that capture.
enum class Waits {
  kOutside,    // no: the work from before the capture has no event, and a new one would pull the waiter into it
  kInCapture,  // yes: the waiter is in the same capture, and each wait becomes an edge of the graph
};

// Pool owns one. Lock: `pool`. A caller that needs the growth lock too takes it first. It knows what a block is and
// whose it is, and no way to make memory: that is the mode's. Who only asks, asks the engine under the lock.
class BlockStore {
 public:
  // The engine's class is the one that the pool's mode expects.
  BlockStore(PoolBasis& basis, std::unique_ptr<engine::Engine> engine);
  // Makes the caches forget the pool.
  ~BlockStore();

  // The pool's lock: hold it to use the engine.
  Mutex& mutex() const COMMPOOL_RETURN_CAPABILITY(mutex_) { return mutex_; }
  // The engine as the class that the pool's mode made it. Do not keep the reference beyond the lock.
  template <typename Kind = engine::Engine>
  Kind& engine() const COMMPOOL_REQUIRES(mutex_) {
    return static_cast<Kind&>(*engine_);
  }
  // Asks the engine one thing, with the lock held for that alone: the answer may be out of date at once.
  template <typename Kind, typename Answer, typename... Parameters>
  Answer Ask(Answer (Kind::*question)(Parameters...) const, std::type_identity_t<Parameters>... about) const {
    MutexLock lock(mutex_);
    return (engine<Kind>().*question)(about...);
  }

  uint64_t reserved_bytes() const { return Ask(&engine::Engine::counters).reserved_bytes.current; }

  // Call it before each take or free in the engine: the engine's peaks then leave out what this thread's caches hold.
  void NoteHolding() COMMPOOL_REQUIRES(mutex_) {
    if (has_cached_.load(std::memory_order_relaxed)) Note(basis_.runtime.caches.OwnHolding(basis_.handle));
  }

  // Makes the stream wait for the remaining uses of a served block (not for streams that have finished), and publishes
  // the block. Where a wait fails the block is taken back (TakeBackUnserved). So it is, and 0 returned, where a wait
  // may not be made now: the block is closed until that stream can be asked for a fence, and the next try finds
  // another. REQUIRES: nobody forgets a stream of `served.waits` meanwhile: it came with a RecordingStreams::Scope, or
  // the caller holds the growth lock.
  Result<CUdeviceptr> HandOut(const engine::Served& served, uint64_t requested, StreamKey stream, Caching caching,
                              Waits waits);

  // HandOut for a block that nothing must wait for. The order matters to those who listen: the block is announced
  // before its word lets another thread free it. The word tells a free whose block it is, without the table of
  // addresses.
  [[gnu::always_inline]] void Announce(const engine::SegmentRange& block, uint64_t requested, StreamKey stream,
                                       Caching caching) {
    basis_.runtime.observer.BlockAllocated(block, requested, stream, basis_.name());
    if (block.bytes <= engine::kSmallBytes) return AnnounceSmall(block, requested, stream, caching);
    basis_.record.Served(block.address, block.bytes, requested, WithoutPlace(stream));
    basis_.runtime.caches.PublishLarge(block.address, basis_.handle);
  }

  // Frees a live block, and records the fences that it needs. kNotFound for an address that is none, or was freed
  // before. On the thread of the program, once no cache has taken the block. Any other error tells of a fence that
  // could not be recorded: the block has ended then.
  Status Free(CUdeviceptr address);
  // Another stream uses the block too. The caller passes the stream now, so it lives.
  Status RecordStream(CUdeviceptr address, StreamKey stream);
  // Notes something of a live block until its free. False where there is none.
  bool SetMark(CUdeviceptr address, engine::Mark mark);

  // Instead of HandOut: frees the block again, and keeps it closed until the streams to wait for can be asked for
  // fences.
  void TakeBackUnserved(const engine::Served& served);

  // Gives the memory of graphs that are gone to the whole pool.
  void ReleaseParts(const std::vector<engine::Part>& parts);
  // No importer holds the block any more. Where the program has freed it, the block opens to all.
  void LetGo(CUdeviceptr address);

  // Takes blocks that threads' caches held; returns whether there are any. Without the lock `caches`, which comes
  // before the pool's.
  bool TakeBack(const engine::ReturnedBlocks& returned);
  // For a pool that serves again; one that has ended meanwhile keeps its threads' caches closed.
  void LetCachesReopen();

  // Whether the stream has finished all its work, so that what it freed is idle. False where nobody may ask: for
  // another thread's default stream, in an announced capture, and in a symmetric pool. Never waits. A yes frees memory:
  // the engine hears of it. REQUIRES: PoolBasis::Captures(stream) said no, where it was not announced.
  Result<bool> IsIdle(StreamKey stream);
  // Tells the engine which fences have passed. Returns whether any has. Never waits.
  bool PollFences();
  // Waits on the host for everything submitted to the device, and to the places of all streams that may touch the
  // memory. Then forgets the uses of blocks that were freed before. kFailedPrecondition in a capture of one of the
  // devices, kDeadlineExceeded while one is busy: then nothing is forgotten. `is_vain`: as DeviceState::Quiesce has it.
  Status WaitForDevice() { return WaitForDevice(basis_.deadline_ms()); }
  Status WaitForDevice(const Patience& patience, FunctionRef<bool()> is_vain = {});

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
  // The announcement of a capture ends: what its part's free memory was used for in the graph is over. The capture may
  // have ended before, and its streams may have got work of their own: behind that come fences.
  void ClosePart(engine::Part part, GraphCaptures& captures);
  // For a stream whose work is done and whose handle will be recycled: no block, live or free, waits for it any more.
  // Waits for calls of other threads that are about to record on it.
  void ForgetStream(StreamKey stream);

  // As the program sees it: cached blocks count as free, where the engine's own counters have them as allocated. Pauses
  // the pool's caches. kForget: the peaks begin anew.
  enum class Peaks { kKeep, kForget };
  engine::Counters Statistics(Peaks peaks = Peaks::kKeep) const;
  // The same for a recording, told under the lock: no free is recorded between the look and what `tell` records.
  void TellStatistics(Peaks peaks, FunctionRef<void(const engine::Counters& counters)> tell) const;

 private:
  void AnnounceSmall(const engine::SegmentRange& block, uint64_t requested, StreamKey stream, Caching caching);
  Status MakeWait(StreamKey waiter, const engine::StreamUse& use);
  // From now on the live block's free comes here, and not to a cache.
  Status MakeUncacheable(CUdeviceptr address);
  // Records the fences that a freed block needs. Those that cannot be recorded now are recorded later: until then the
  // block names them.
  Status RecordFences(const std::vector<engine::MissingFence>& missing);
  // Calls the driver without the lock. Those of streams that may have died stay until a wait for the device.
  void RecordMissingFences();
  // Whether the stream is known to have finished all its work. Never waits. REQUIRES: as for IsIdle.
  Result<bool> HasFinished(StreamKey stream) const;
  // Tells the engine what caches hold, corrected by what the engine takes for the requested sizes.
  void Note(engine::Holding holding) const COMMPOOL_REQUIRES(mutex_);
  // Whether the waits for a block can be made outside of captures.
  bool MayWaitFor(const engine::Served& served) const;

  PoolBasis& basis_;
  mutable Mutex mutex_{LockRank::kPool};
  const std::unique_ptr<engine::Engine> engine_ COMMPOOL_PT_GUARDED_BY(mutex_);
  std::atomic<bool> has_tickets_{false};  // whether a ticket of a block was ever made
  std::atomic<bool> has_cached_{false};   // whether caches were ever let keep a block
  // All that threads' caches have given back so far. What has left a cache and is not counted here is on its way.
  engine::Tally taken_back_ COMMPOOL_GUARDED_BY(mutex_);
  // The engine notes the requested size of a block when it serves the block, and a cache may then serve it again for
  // another size. This is the sum of the differences, for statistics.
  int64_t requested_correction_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

// What programs and recordings see of the blocks: one in a thread's cache is not live. Any thread.

// The live block that holds the address, anywhere in it. kNotFound where there is none, or a thread's cache has it.
Result<commpool_block> FindBlock(const PoolBasis& basis, const BlockStore& blocks, CUdeviceptr address);
// Every block, by segment and address. Changes that threads' caches make meanwhile may be missing.
std::vector<commpool_block> ListBlocks(const PoolBasis& basis, const BlockStore& blocks);
// Records the memory that the pool has, and the live blocks that caches do not keep. Called as a recording begins, and
// when a pool has a new home.
void RecordBlocks(const PoolBasis& basis, const BlockStore& blocks);

}  // namespace commpool::internal
