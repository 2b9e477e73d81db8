// Engine: the base of all engines. It knows who has which block, who may still use it, and the sums of their bytes. A
// subclass decides how to serve a request, and what happens to a freed block.
//
// A block's life: Serve -> live -> Close -> (closed until its fences or the other ranks come) -> free -> merged. Pure:
// an engine calls nothing outside this folder. Not thread-safe: the pool's lock guards it. BlockStore
// (src/library/pool/blocks) owns it and makes every call.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "commpool/status.h"
#include "src/library/engine/heap.h"
#include "src/library/engine/size_policy.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

// `apart`: what threads' caches hold of it, which the peak leaves out (NoteHolding).
inline void RaisePeak(Counter& counter, int64_t apart) {
  const int64_t in_use = static_cast<int64_t>(counter.current) - apart;
  if (in_use > static_cast<int64_t>(counter.peak)) counter.peak = static_cast<uint64_t>(in_use);
}

inline void Add(Counter& counter, uint64_t amount, int64_t apart = 0) {
  counter.current += amount;
  counter.total += amount;
  RaisePeak(counter, apart);
}

inline void Subtract(Counter& counter, uint64_t amount) { counter.current -= amount; }

class Engine {
 public:
  virtual ~Engine() = default;

  // Closes the block: until `also`, and what the engine itself knows, have ended it serves nobody. kNotFound where no
  // live block starts at `address` (foreign, or freed already).
  virtual Result<Freed> Free(Address address, Reasons also = 0) = 0;
  // Ends a reason that a free named. Returns false where it closes no block that starts there. Reason::kFences ends
  // with the last fence by itself.
  bool EndReason(Address address, Reason reason);
  bool IsClosedBy(Address address, Reason reason) const;
  // The fences that closed blocks need, but for those that a live graph may use.
  std::vector<MissingFence> MissingFences() const;
  // Whether a closed block, of no live graph, has a use by such a stream that no fence stands for.
  bool AnyClosedLacksFenceOf(bool (*is_such)(StreamKey)) const;

  // Notes something of the live block that starts at the address; false where there is none. All ends with its free.
  bool SetMark(Address address, Mark mark);
  bool HasMark(Address address, Mark mark) const;
  bool AnyHasMark(Mark mark) const;
  void EndMarks(Mark mark);
  // Adds a fence that a free needs. The pool may record it outside of its lock, so another caller may have got the
  // block meanwhile, or has attached a fence of its own. Then that free needs this one no more: returns false. The
  // fence is pending until it passes in any case.
  bool AttachFence(const MissingFence& missing, Fence fence);
  // Call it instead of AttachFence where the stream's work is known to be done, so that no fence comes.
  void CancelFence(const MissingFence& missing) { ReplaceMissing(missing, kNoFence); }
  // The fence was recorded behind all that the stream had submitted at `moment`. What the stream freed before that
  // waits for this fence from now on, and is no longer stranded.
  void FenceStream(StreamKey stream, Fence fence, Moment moment);
  // How many bytes of free memory each stream has stranded: no other stream can wait for that stream's work.
  std::map<StreamKey, uint64_t> StrandedBytes() const { return heap_.free_index().StrandedBytes(); }
  // Notes that `stream` uses a live block too. kNotFound as for Free.
  Status RecordStream(Address address, StreamKey stream);
  // Whether the live block was served for the stream, which lives on: what it records adds nothing.
  bool IsOwnStream(Address address, StreamKey stream) const;

  // The live block was served again by a cache, for so many bytes. Returns how many more the engine had noted.
  int64_t CorrectRequested(Address address, uint64_t requested);

  // The fence has passed: its uses are over, and neighbours may merge.
  void FencePassed(Fence fence);
  // Fences that have not passed, oldest first. Fences whose blocks were handed out since are among them, so that the
  // pool can recycle their events.
  std::vector<Fence> PendingFences() const { return heap_.fences().Pending(); }
  // Whether there are any, and any closed blocks: one load each.
  bool HasPendingFences() const { return !heap_.fences().empty(); }
  bool HasClosedBlocks() const { return !heap_.closed().empty(); }
  // Before the pool waits for a device it asks for Now(), and afterwards calls DeviceIdle with that moment: no stream
  // of that place uses a block that was freed before it.
  Moment Now() const { return clock_; }
  void DeviceIdle(int place, Moment moment);
  // The places of all streams that may touch the memory now.
  std::set<int> Places() const;
  // DeviceIdle for one stream: the pool waited for that stream's work.
  void StreamIdle(StreamKey stream, Moment moment);
  // The stream's work is done and its key will mean another stream: no block, live or free, waits for it any more.
  void ForgetStream(StreamKey stream);

  SegmentIndex AddSegment(const SegmentRange& range, Space space = Space::kLarge, Part part = kCommonPart);
  // Whether a segment has no live block, and no stream that may still use one.
  bool IsIdle(SegmentIndex segment) const;
  // REQUIRES: IsIdle(segment).
  SegmentRange RemoveSegment(SegmentIndex segment);
  // Segments with only free blocks, none of which still waits for a fence or another rank; smallest index first.
  std::vector<SegmentIndex> WhollyFreeSegments() const { return heap_.WhollyFreeSegments(); }

  // The streams that may still use the part's free memory.
  std::set<StreamKey> StreamsOf(Part part = kCommonPart) const;
  // Whether the last free may have left a segment to nobody. Cheap where it left one to live blocks.
  bool MayShrink() const {
    return counters().allocated_blocks.current == 0 || HasClosedBlocks() || !WhollyFreeSegments().empty();
  }
  // Whether somebody may still use what was freed.
  bool AnyMayBeUsed() const { return HasPendingFences() || HasClosedBlocks() || !StreamsOf().empty(); }
  // Call it when the capture has ended. Blocks that were freed up to `until` were freed inside of it: their own
  // streams, and those of `captured`, used them in the graph alone, whose end the part awaits. All other uses stay, for
  // work outside of the graph.
  void ClosePart(Part part, Moment until, const std::set<StreamKey>& captured);
  // Call it when the graph is gone: gives its free memory to the whole pool.
  virtual void ReleasePart(Part part);
  // The part of the live block at the address; the common part where there is no block.
  Part PartOf(Address address) const;
  // The live block that holds `address` (anywhere inside it); kNotFound where there is none.
  Result<BlockView> Find(Address address) const;
  std::vector<BlockView> Snapshot() const;  // by segment and address

  OwnReuse own_reuse() const { return options_.own_reuse; }

  Counters counters() const;
  // Blocks in threads' caches are live for the engine, but the program does not use them, so peaks leave them out.
  // Since the last call that changed what is live, the caches held at least `least`. Until the next such call they hold
  // `now`.
  void NoteHolding(const Holding& holding);
  void ResetPeaks();
  // The blocks, for a search and for tests.
  const Heap& heap() const { return heap_; }

 protected:
  // What a block does whose fences are missing.
  enum class Fencing {
    kCloses,  // it is closed until the last one has come
    kAwaits,  // it serves now; the next user waits for all work of a stream whose fence has not come yet
  };

  // Aborts where options contradict each other. A pool has refused a program's wrong values before.
  Engine(const EngineOptions& options, MergePolicy policy, Choice choice);
  Engine(Engine&&) = default;

  const EngineOptions& options() const { return options_; }
  Heap& own_heap() { return heap_; }
  // The counters that need no search: not free, largest and pending bytes.
  const Counters& sums() const { return counters_; }

  // Gives a block of the heap to the stream, which must wait for its uses. `sequence` is for symmetric pools.
  Served Serve(Block* block, StreamKey stream, uint64_t requested, uint64_t sequence = 0);
  // Serve for memory that only this stream used: there is nothing to wait for.
  SegmentRange ServeOwn(Block* block, StreamKey stream, uint64_t requested, uint64_t sequence = 0);
  // The live block that starts at the address; null where there is none.
  Block* LiveBlock(Address address) const {
    Block* const block = heap_.FindStart(address);
    return block != nullptr && block->state == BlockState::kLive ? block : nullptr;
  }
  // The error where there is none: it names `call` and the likely cause.
  Status NotLive(const char* call, Address address) const;
  // REQUIRES: the block is live.
  Freed Close(Block* block, Fencing fencing, Reasons also);

  // For expandable pools, whose segments begin without memory: pages come, go and move in them.
  void Convert(const SegmentRange& range, BlockState from, BlockState to, const Claimant& claimant = {});
  void AddPage() { Add(counters_.reserved_segments, 1); }
  void RemovePage() { Subtract(counters_.reserved_segments, 1); }

 private:
  // Replaces a use whose fence is missing by one with this fence, or removes it (kNoFence). Returns whether the block
  // still had it.
  bool ReplaceMissing(const MissingFence& missing, Fence fence);
  // Removes the uses that `matches` accepts, but for missing fences of closed blocks. Each such block gets `instead`.
  template <typename Matches>
  void ReplaceUses(Matches matches, std::optional<Use> instead = {});

  EngineOptions options_;
  Heap heap_;
  Moment clock_ = 0;
  Counters counters_{};
  Tally apart_;  // the part of what is live that threads' caches hold
};

inline SegmentRange Engine::ServeOwn(Block* block, StreamKey stream, uint64_t requested, uint64_t sequence) {
  block->uses.clear();
  block->stream = stream;
  block->stream_over = stream == kNoStream;
  block->requested = requested;
  block->sequence = sequence;
  Add(counters_.requested_bytes, block->requested, apart_.requested);
  Add(counters_.allocated_bytes, block->bytes, apart_.bytes);
  Add(counters_.allocated_blocks, 1, apart_.blocks);
  return {AddressOf(*block), block->bytes};
}

inline Freed Engine::Close(Block* block, Fencing fencing, Reasons also) {
  Freed freed{block->requested, {}};
  block->freed_at = ++clock_;
  const auto miss = [&](StreamKey stream) { freed.missing.push_back({AddressOf(*block), stream, block->freed_at}); };
  for (Use& use : block->uses) {
    use.missing_since = block->freed_at;
    miss(use.stream);
  }
  const bool fences_own = options_.own_reuse == OwnReuse::kOncePassed && fencing == Fencing::kCloses;
  if (fences_own && !block->stream_over) miss(block->stream);
  if (!block->stream_over) AddUse(block->uses, {block->stream, kNoFence, fences_own ? block->freed_at : kNoMoment});
  Subtract(counters_.requested_bytes, block->requested);
  Subtract(counters_.allocated_bytes, block->bytes);
  Subtract(counters_.allocated_blocks, 1);
  block->requested = 0;
  const bool lacks_fence = fencing == Fencing::kCloses && !freed.missing.empty();
  heap_.Close(block, also | (lacks_fence ? ReasonsOf(Reason::kFences) : Reasons{0}));
  return freed;
}

}  // namespace commpool::internal::engine
