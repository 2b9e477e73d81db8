// What every engine does for its pool, whatever decides which block serves: who has which block, who may still use it,
// and how many bytes that makes. Serving differs, and what becomes of a block that is freed: each engine says how.
//
// A block's life: Serve -> live -> Close -> (closed until its fences or the other ranks come) -> free -> merged.
// Pure: an engine calls nothing outside this folder. Not thread-safe: the pool's lock guards it.
#ifndef COMMPOOL_SRC_ENGINE_ENGINE_H_
#define COMMPOOL_SRC_ENGINE_ENGINE_H_

#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/engine/heap.h"
#include "src/engine/size_policy.h"
#include "src/engine/types.h"

namespace commpool::internal::engine {

class Engine {
 public:
  virtual ~Engine() = default;

  // kNotFound where no live block starts at `address` (foreign, or freed already).
  virtual Result<Freed> Free(Address address) = 0;
  // Adds the fence of one of `Freed::streams_to_fence` to the block just freed; the pool may record them outside its
  // lock. Whether the block owed it: not where it was handed out meanwhile, to a caller that waits for all of the
  // stream's work. The fence is pending until it passes in any case.
  virtual bool AttachFence(Address address, StreamKey stream, Fence fence);
  // The same where the stream's work is known to be over, so that no fence comes.
  void PayDebt(Address address, StreamKey stream);
  // The fence was recorded behind all that the stream had submitted at `moment`: what it freed before waits for that
  // fence, and is stranded no more.
  void FenceStream(StreamKey stream, Fence fence, Moment moment);
  // Free memory that no other stream can be made to wait for, in bytes, by the stream that used it.
  ReservedMap<StreamKey, uint64_t> StrandedBytes();
  // Notes that `stream` uses a live block too. kNotFound as for Free.
  Status RecordStream(Address address, StreamKey stream);

  // The fence's event has completed: its uses are over, and neighbours may merge.
  void FencePassed(Fence fence);
  // Fences that have not passed, oldest first: also those whose blocks were handed out since, so that the pool gives
  // their events back.
  ReservedVector<Fence> PendingFences() const { return heap_.fences().Pending(); }
  // Whether there are any: one load.
  bool HasPendingFences() const { return !heap_.fences().empty(); }
  // The device was synchronised after `moment` = Now(): nobody uses a block that was freed before it.
  Moment Now() const { return clock_; }
  void DeviceIdle(Moment moment);
  // The same of one stream's work.
  void StreamIdle(StreamKey stream, Moment moment);
  // The stream's work is done and its key will mean another stream: no block, live or free, waits for it any more.
  void ForgetStream(StreamKey stream);

  SegmentIndex AddSegment(const SegmentRange& range, Space space = Space::kLarge, Part part = kCommonPart);
  // Whether a segment has neither live blocks nor streams that may still use one.
  bool IsIdle(SegmentIndex segment) const;
  // REQUIRES: IsIdle(segment).
  SegmentRange RemoveSegment(SegmentIndex segment);
  // Segments without a live block, and without one that still lacks a fence or another rank; smallest index first.
  std::vector<SegmentIndex> WhollyFreeSegments() const { return heap_.WhollyFreeSegments(); }
  bool IsWhollyFree(SegmentIndex segment) const { return heap_.IsWhollyFree(segment); }

  // The live block that holds `address` (anywhere inside it); kNotFound where none does.
  Result<BlockView> Find(Address address) const;
  std::vector<BlockView> Snapshot() const;

  Counters counters() const;
  // Blocks that threads' caches hold are live to the engine, but not in use: peaks leave them out. They held `least` at
  // every moment since the last call that changed what is live; until the next call they hold `now`.
  void NoteHolding(const Holding& holding);
  void ResetPeaks();
  // Aborts with a reason where the books do not balance. In O(n log n); for tests, and for suspicion in production.
  virtual void CheckInvariants() const;

 protected:
  // The fate of a block that its allocation gives back.
  enum class Disposal {
    kAwaitFences,  // free memory once every fence owed has come: at once where none is
    kDefer,        // closed until it is opened
    kFreeAtOnce,   // free memory now; whoever takes it waits for all work of a stream whose fence has not come yet
  };

  Engine(const EngineOptions& options, MergePolicy policy);
  Engine(Engine&&) = default;

  const EngineOptions& options() const { return options_; }
  Heap& heap() { return heap_; }
  const Heap& heap() const { return heap_; }
  // The counters without what has to be looked for: free, largest and pending bytes.
  const Counters& sums() const { return counters_; }

  // A block that the heap gave becomes the stream's, which waits for its uses; `sequence` is a symmetric pool's.
  Served Serve(Block* block, StreamKey stream, uint64_t requested, uint64_t sequence = 0);
  // The same for the stream's own memory, so that nothing is waited for.
  SegmentRange ServeOwn(Block* block, StreamKey stream, uint64_t requested);
  // The live block that starts at the address; an error that names `call` and the likely cause.
  Result<Block*> LiveBlock(const char* call, Address address) const;
  // REQUIRES: the block is live. Deferred, it stays what it is until it is opened.
  Freed Close(Block* block, Disposal disposal);

  // For expandable pools, whose segments come without memory: the pages that come, go and move in them.
  void Convert(const SegmentRange& range, BlockState from, BlockState to, const Claimant& claimant = {});
  // A page that was claimed goes to claimed addresses: no memory comes or goes.
  void MovePage(const SegmentRange& from, Address to, const Claimant& claimant);
  void AddPage();
  void RemovePage();

 private:
  // A freed block owes a fence no more: it has this one, or needs none. Whether it owed it.
  bool Pay(const Use& debt, Fence fence);
  // Changes the uses of free blocks that `matches` accepts, and of closed ones but for those that owe a fence.
  template <typename Matches, typename Change>
  void ChangeUsesWhere(Matches matches, Change change);
  // Drops such uses, which are over.
  template <typename Over>
  void DropUses(Over over);
  // The books of a block that has a new owner.
  void Begin(Block* block, StreamKey stream, uint64_t requested, uint64_t sequence);

  EngineOptions options_;
  Heap heap_;
  Moment clock_ = 0;
  Counters counters_{};
  Tally apart_;  // of what is live, what threads' caches hold
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_ENGINE_H_
