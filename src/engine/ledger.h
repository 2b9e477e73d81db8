// Who has which block, who may still use it, and how many bytes that makes: what all engines share over the heap.
//
// A block's life: Serve -> live -> Close -> (closed until its fences or the other ranks come) -> free -> merged.
// Not thread-safe.
#ifndef COMMPOOL_SRC_ENGINE_LEDGER_H_
#define COMMPOOL_SRC_ENGINE_LEDGER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/engine/heap.h"
#include "src/engine/size_policy.h"
#include "src/engine/types.h"

namespace commpool::internal::engine {

struct Request {
  uint64_t requested = 0;
  uint64_t block_bytes = 0;  // rounded up
  StreamKey stream = 0;
  Reuse reuse = Reuse::kSameStream;
  Space space = Space::kLarge;
  Part part = kCommonPart;
  Choice choice = Choice::kBestFit;
  uint64_t sequence = 0;

  Fit fit() const { return {block_bytes, stream, reuse, space, part, choice}; }
};

// What becomes of a block that its allocation gives back.
enum class Disposal {
  kAwaitFences,  // free memory once every fence owed has come: at once where none is
  kDefer,        // closed until ReleaseDeferred
  kFreeAtOnce,   // free memory now; whoever takes it waits for all work of a stream whose fence has not come yet
};

struct Closed {
  Freed freed;
  Block* block = nullptr;  // valid until the next call where the disposal was kDefer
};

class Ledger {
 public:
  explicit Ledger(const EngineOptions& options) : Ledger(options, options.merge) {}
  Ledger(const EngineOptions& options, MergePolicy policy)
      : heap_(options.alignment, policy, options.resting_blocks, options.spaces) {}

  std::optional<Served> Serve(const Request& request);
  // The same on the stream's own memory, so that nothing is waited for. No bytes where there is none.
  SegmentRange ServeOwn(const Request& request);
  // Whether Serve would find a block. What rests is not looked at.
  bool CanServe(const Fit& fit) const { return heap_.FindFree(fit) != nullptr; }
  // What rests merges with its neighbours.
  void Wake() { heap_.Wake(); }
  // Free neighbours of the part that the stream may take at once become one.
  void Unify(StreamKey stream, Part part) { heap_.Unify(stream, part); }
  // All free neighbours become one, whoever uses them.
  void UnifyAll(Space space) { heap_.UnifyAll(space); }
  Result<Closed> Close(Address address, Disposal disposal);
  void ReleaseDeferred(Block* block) { heap_.Open(block); }

  // Whether the free at `address` owed a fence for `stream`. The fence is pending until it passes in any case.
  bool AttachFence(Address address, StreamKey stream, Fence fence);
  Status RecordStream(Address address, StreamKey stream);

  Moment Now() const { return clock_; }
  void FencePassed(Fence fence);
  void DeviceIdle(Moment moment);
  // The stream's work was waited for after `moment`: it uses no block any more that was freed before.
  void StreamIdle(StreamKey stream, Moment moment);
  void ForgetStream(StreamKey stream);
  bool HasPendingFences() const { return !heap_.fences().empty(); }
  ReservedVector<Fence> PendingFences() const { return heap_.fences().Pending(); }

  SegmentIndex AddSegment(const SegmentRange& range, Space space, Part part = kCommonPart);
  // REQUIRES: IsIdle(segment).
  SegmentRange RemoveSegment(SegmentIndex segment);
  // Whether the segment holds nothing but free memory that nobody uses any more.
  bool IsIdle(SegmentIndex segment) const;

  // REQUIRES: there is no segment.
  void BeginAgain() { heap_.BeginAgain(); }

  // Addresses of an expandable pool: a segment without memory, and the pages that come, go and move in it.
  SegmentIndex AddTerritory(const SegmentRange& range, Space space);
  // REQUIRES: no page lies in it.
  void RemoveTerritory(SegmentIndex index) { heap_.RemoveSegment(index); }
  void Convert(const SegmentRange& range, BlockState from, BlockState to, const Claimant& claimant = {});
  // A page that was claimed goes to claimed addresses: no memory comes or goes.
  void MovePage(const SegmentRange& from, Address to, const Claimant& claimant);
  uint64_t segment_count() const { return segment_count_; }
  void AddPage() { CountSegment(1); }
  void RemovePage() { CountSegment(-1); }

  // The free memory of a graph that is gone becomes the whole pool's.
  void ReleasePart(Part part) { heap_.ReleasePart(part); }

  Result<BlockView> Find(Address address) const;
  // The live block that starts at the address; an error that names `call` and the likely cause.
  Result<Block*> LiveBlock(const char* call, Address address) const;

  Counters counters() const;
  // The same without what has to be looked for: free, largest and pending bytes.
  const Counters& sums() const { return counters_; }
  void NoteHolding(const Holding& holding);
  void ResetPeaks();
  std::vector<BlockView> Snapshot() const;

  const Heap& heap() const { return heap_; }

 private:
  // Drops the uses of freed blocks that are over; a closed block keeps those that owe a fence.
  template <typename Over>
  void DropUses(Over over);
  void CountSegment(int change);
  // The books of a block that has a new owner, or has it no more.
  void Begin(Block* block, const Request& request);
  void End(Block* block);

  Heap heap_;
  Moment clock_ = 0;
  uint64_t segment_count_ = 0;  // physical handles
  Counters counters_{};
  Tally apart_;  // of what is live, what threads' caches hold
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_LEDGER_H_
