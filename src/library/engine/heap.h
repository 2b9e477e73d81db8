// Heap: segments cut into blocks. It finds, splits and merges blocks. Every engine owns one; nobody else changes
// blocks. A FenceBook knows which of them wait for a fence.
//
// The blocks of a segment form a list in the order of addresses. Free ones are in the free index, which orders by size,
// segment and offset but never by address, so that equal calls place equally on every rank. Metadata lies outside
// device memory. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "src/library/base/check.h"
#include "src/library/engine/block.h"
#include "src/library/engine/block_table.h"
#include "src/library/engine/free_index.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

// From which end of a free block to cut a request, where blocks of all sizes share a range that cannot grow or move.
//
// An example: a loss allocates one block of half a size, then several of the full size, and frees the half first. If
// the half lay beside a full one, it leaves a hole that fits nothing of the next step. So a block should lie beside
// blocks of its size, and away from blocks of about twice or half its size. Where the neighbours at both ends do not
// decide, large blocks come from the upper end, small ones and the very largest from the lower end: the room is between
// them. A segment's first block lies at its beginning. It uses sizes and offsets alone, so every rank of a symmetric
// pool decides the same.
enum class CutSide { kLow, kHigh };
// REQUIRES: nothing rests beside the block, which is free and merged.
CutSide CutSideFor(uint64_t bytes, const Block& free);

// Knows which freed blocks wait for which fence, so that a passed fence finds its blocks at once. The heap keeps it up
// to date; the engine adds fences and removes those that passed.
//
// A fence stays in the book until it passes, even when its last block has been handed out: the pool then recycles its
// event.
class FenceBook {
 public:
  // What the book knows of one fence.
  struct Entry {
    Moment added = 0;
    std::set<Block*> blocks;
  };

  void Add(Fence fence, Moment moment) {
    COMMPOOL_CHECK(fence != kNoFence, "a fence is attached that is none");
    fences_.try_emplace(fence, Entry{moment, {}});
  }
  // REQUIRES: AnyBlock(fence) is null.
  void Remove(Fence fence) { fences_.erase(fence); }
  bool empty() const { return fences_.empty(); }

  // Adds or removes the block under every fence among its uses. REQUIRES: these are in the book.
  void Link(Block* block) {
    for (const Use& use : block->uses) {
      if (use.fence == kNoFence) continue;
      const auto found = fences_.find(use.fence);
      COMMPOOL_CHECK(found != fences_.end(), "a block waits for a fence that nobody attached");
      found->second.blocks.insert(block);
    }
  }
  void Unlink(Block* block) {
    for (const Use& use : block->uses) {
      if (use.fence != kNoFence) fences_.at(use.fence).blocks.erase(block);
    }
  }

  // A block that the fence guards; null where there is none left.
  Block* AnyBlock(Fence fence) const {
    const auto found = fences_.find(fence);
    return found == fences_.end() || found->second.blocks.empty() ? nullptr : *found->second.blocks.begin();
  }

  // Oldest first: all of them, or those added up to the moment.
  std::vector<Fence> Pending(Moment until = kNoMoment) const {
    std::vector<std::pair<Moment, Fence>> ordered;
    for (const auto& [fence, entry] : fences_) {
      if (entry.added <= until) ordered.emplace_back(entry.added, fence);
    }
    std::sort(ordered.begin(), ordered.end());
    std::vector<Fence> pending;
    for (const auto& [added, fence] : ordered) pending.push_back(fence);
    return pending;
  }
  const std::map<Fence, Entry>& entries() const { return fences_; }

 private:
  std::map<Fence, Entry> fences_;
};

class Heap {
 public:
  // Blocks start at multiples of `alignment`. REQUIRES: it is a power of two.
  Heap(uint64_t alignment, MergePolicy policy, Choice choice = Choice::kBestFit);

  // Makes the range one block, free or unmapped. REQUIRES: it is aligned, not empty, and overlaps no other.
  SegmentIndex AddSegment(const SegmentRange& range, Space space = Space::kLarge, BlockState state = BlockState::kFree,
                          Part part = kCommonPart);
  // REQUIRES: IsWhollyFree(index).
  SegmentRange RemoveSegment(SegmentIndex index);
  bool IsWhollyFree(SegmentIndex index) const;
  std::vector<SegmentIndex> WhollyFreeSegments() const;
  uint32_t segments_ever() const { return next_index_; }
  // Numbers segments from the first again. REQUIRES: there is no segment.
  void BeginAgain();

  // Takes the block that the choice names, cut to size: a live block, with the uses that it had while it was free. Null
  // where none fits. A graph takes idle memory of the whole pool where its own is not enough. REQUIRES: bytes is a
  // multiple of the alignment, not 0.
  Block* Take(const Fit& fit);
  // The block that Take would cut.
  Block* FindFree(const Fit& fit) const;
  // Ends a live block: it is closed by these reasons, or becomes free (and merges) where there are none.
  void Close(Block* block, Reasons reasons);
  // Ends a reason of a closed block. The last one's end makes it free, and merges it.
  void EndReason(Block* block, Reason reason);
  // The closed blocks, in no order.
  const std::vector<Block*>& closed() const { return closed_; }

  // Changes the uses of a block that is not live. A free one may merge then: returns the block that holds it.
  template <typename Change>
  Block* ChangeUses(Block* block, Change change) {
    COMMPOOL_CHECK(block->state != BlockState::kLive, "the uses of a live block are its allocation's");
    Leave(block);
    change(block->uses);
    return EnterMerged(block);
  }

  // Merges free neighbours of the part, if nobody but this stream may still use them. The merged block counts as used
  // by the stream, so call it only where its memory is short.
  void Unify(StreamKey stream, Part part);

  // Merges all free neighbours of the common part, even those that different streams use: for a request that waits for
  // all these uses.
  void UnifyAll(Space space);
  // The largest block that UnifyAll would make.
  uint64_t LargestUnited(Space space) const;

  // Cuts the range out of a block of the common part, and changes its state from `from` to `to`. Memory that becomes
  // free has the claimant's use alone, and merges with neighbours. REQUIRES: one block in `from` holds the range;
  // neither state is live or closed.
  void Convert(const SegmentRange& range, BlockState from, BlockState to, const Claimant& claimant = {});

  // Changes every block that `wanted` accepts until it accepts none; free ones merge.
  template <typename Wanted, typename Change>
  void ChangeWhere(Wanted wanted, Change change) {
    for (const auto& [index, segment] : segments_) {
      for (Block* block = segment->first; block != nullptr;) {
        if (!wanted(*block)) {
          block = block->next;
        } else if (block->state == BlockState::kLive) {
          change(*block);
        } else {
          Leave(block);
          change(*block);
          block = EnterMerged(block);  // it has the uses of its neighbours too: look at it again
        }
      }
    }
  }

  // Visits every block, by segment and address. The visit changes no block's state, and merges none but with the next.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [index, segment] : segments_) {
      for (Block* block = segment->first; block != nullptr; block = block->next) visit(*block);
    }
  }

  // The block that holds the address, in any state; null outside the segments.
  Block* Find(Address address) const;
  // The block that begins there; null where there is none.
  Block* FindStart(Address address) const { return starts_.Find(address); }

  uint64_t alignment() const { return alignment_; }
  uint64_t pending_bytes() const { return pending_bytes_; }
  using Segments = std::map<SegmentIndex, std::unique_ptr<HeapSegment>>;
  const Segments& segments() const { return segments_; }
  const FreeIndex& free_index() const { return free_index_; }
  FreeIndex& free_index() { return free_index_; }
  const FenceBook& fences() const { return fences_; }
  FenceBook& fences() { return fences_; }

  // Whether a block that is not live keeps its segment from being released.
  static bool Holds(const Block& block) {
    if (block.state == BlockState::kFree) return block.part != kCommonPart;
    return block.state != BlockState::kUnmapped;
  }

  // Whether two neighbours should be one block.
  bool Mergeable(const Block& a, const Block& b) const {
    if (a.state != b.state || a.part != b.part) return false;
    if (a.state != BlockState::kFree) return a.state == BlockState::kUnmapped;
    return a.uses == b.uses || MergeableUses(a, b);
  }

 private:
  bool MergeableUses(const Block& a, const Block& b) const;
  // A block that is not live stands in books that depend on its state, bytes and uses: the free index, the fence book,
  // the counts. Before you change one of these, call Leave; afterwards Enter.
  void Enter(Block* block) {
    if (block->state == BlockState::kFree) free_index_.Insert(block);
    if (Holds(*block)) ++block->segment->held_blocks;
    if (IsPending(*block)) EnterPending(block);
  }
  void Leave(Block* block) {
    if (block->state == BlockState::kFree) free_index_.Erase(block);
    if (Holds(*block)) --block->segment->held_blocks;
    if (IsPending(*block)) LeavePending(block);
  }
  [[gnu::noinline]] void EnterPending(Block* block) {
    pending_bytes_ += block->bytes;
    fences_.Link(block);
  }
  [[gnu::noinline]] void LeavePending(Block* block) {
    pending_bytes_ -= block->bytes;
    fences_.Unlink(block);
  }

  // The segment that holds the address; null where none does.
  HeapSegment* SegmentAt(Address address) const;
  // Merges neighbours that the predicate accepts.
  template <typename Usable>
  void UnifyWhere(Usable usable);

  // Merges a block that is in no book, if it is free, with its neighbours, and enters the result. The lower comes
  // first: growth fills addresses above free memory of the asking stream, and memory of another stream may lie above
  // them.
  Block* EnterMerged(Block* block);
  // The lower of two neighbours takes the upper's bytes and uses. Both are in no book.
  void Absorb(Block* lower, Block* upper);
  // Cuts so many bytes off a free block. Returns them, in no book; the rest is free.
  Block* Cut(Block* block, uint64_t bytes);
  // Cuts a block that is in no book behind its first `bytes`. Returns the upper block: same state, in no book.
  Block* Split(Block* block, uint64_t bytes);

  uint64_t alignment_;
  MergePolicy policy_;
  Choice choice_;
  BlockArena arena_;
  Segments segments_;
  std::map<Address, HeapSegment*> segments_by_address_;  // for addresses at which no block begins
  BlockTable starts_;
  FreeIndex free_index_;
  FenceBook fences_;
  std::vector<Block*> closed_;
  SegmentIndex next_index_ = 0;
  uint64_t pending_bytes_ = 0;
};

}  // namespace commpool::internal::engine
