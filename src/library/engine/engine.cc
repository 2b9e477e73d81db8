#include "src/library/engine/engine.h"

#include <algorithm>
#include <map>
#include <vector>

#include "src/library/base/check.h"
#include "src/library/base/try.h"
#include "src/library/engine/messages.h"

namespace commpool::internal::engine {
namespace {

// `apart`: what threads' caches hold of it, which the peak leaves out (NoteHolding).
void RaisePeak(Counter& counter, int64_t apart) {
  const int64_t in_use = static_cast<int64_t>(counter.current) - apart;
  if (in_use > static_cast<int64_t>(counter.peak)) counter.peak = static_cast<uint64_t>(in_use);
}

void Add(Counter& counter, uint64_t amount, int64_t apart = 0) {
  counter.current += amount;
  counter.total += amount;
  RaisePeak(counter, apart);
}

void Subtract(Counter& counter, uint64_t amount) { counter.current -= amount; }

BlockView::State StateOf(const Block& block) {
  if (block.state == BlockState::kLive) return BlockView::State::kLive;
  if (block.state == BlockState::kFree) return BlockView::State::kFree;
  return IsHole(block) ? BlockView::State::kUnmapped : BlockView::State::kClosed;
}

BlockView ViewOf(const Block& block) {
  return {block.segment->index, AddressOf(block), block.bytes, block.requested, StateOf(block), block.stream};
}

}  // namespace

Engine::Engine(const EngineOptions& options, MergePolicy policy)
    : options_(options), heap_(options.alignment, policy, options.choice, options.spaces) {
  CheckOptions(options);
}

Served Engine::Serve(Block* block, StreamKey stream, uint64_t requested, uint64_t sequence) {
  Served served{AddressOf(*block), block->bytes, {}};
  if (!block->uses.empty()) {
    served.waits = WaitsOf(block->uses, stream);
    block->uses.clear();
  }
  Begin(block, stream, requested, sequence);
  return served;
}

SegmentRange Engine::ServeOwn(Block* block, StreamKey stream, uint64_t requested) {
  block->uses.clear();
  Begin(block, stream, requested, 0);
  return {AddressOf(*block), block->bytes};
}

void Engine::Begin(Block* block, StreamKey stream, uint64_t requested, uint64_t sequence) {
  block->stream = stream;
  block->stream_over = stream == kNoStream;
  block->requested = requested;
  block->sequence = sequence;
  Add(counters_.requested_bytes, block->requested, apart_.requested);
  Add(counters_.allocated_bytes, block->bytes, apart_.bytes);
  Add(counters_.allocated_blocks, 1, apart_.blocks);
}

Freed Engine::Close(Block* block, Fencing fencing, Reasons also) {
  Freed freed{block->bytes, block->requested, {}};
  for (Use& use : block->uses) {
    use.missing_for = AddressOf(*block);
    freed.streams_to_fence.push_back(use.stream);
  }
  const bool fences_own = options_.own_reuse == OwnReuse::kOncePassed && fencing == Fencing::kCloses;
  if (fences_own && !block->stream_over) freed.streams_to_fence.push_back(block->stream);
  if (!block->stream_over) AddUse(block->uses, {block->stream, kNoFence, fences_own ? AddressOf(*block) : kNoBlock});
  Subtract(counters_.requested_bytes, block->requested);
  Subtract(counters_.allocated_bytes, block->bytes);
  Subtract(counters_.allocated_blocks, 1);
  block->requested = 0;
  block->freed_at = ++clock_;
  const bool lacks_fence = fencing == Fencing::kCloses && !freed.streams_to_fence.empty();
  heap_.Close(block, also | (lacks_fence ? ReasonsOf(Reason::kFences) : Reasons{0}));
  return freed;
}

bool Engine::AttachFence(Address address, StreamKey stream, Fence fence) {
  heap_.fences().Add(fence, ++clock_);
  return ReplaceMissing({stream, kNoFence, address}, fence);
}

void Engine::CancelFence(Address address, StreamKey stream) { ReplaceMissing({stream, kNoFence, address}, kNoFence); }

bool Engine::ReplaceMissing(const Use& missing, Fence fence) {
  Block* block = heap_.Find(missing.missing_for);
  if (block == nullptr || block->state == BlockState::kLive) return false;
  if (!std::binary_search(block->uses.begin(), block->uses.end(), missing)) return false;
  block = heap_.ChangeUses(block, [&](Uses& uses) {
    uses.EraseIf([&](const Use& use) { return use == missing; });
    if (fence != kNoFence) AddUse(uses, {missing.stream, fence, kNoBlock});
  });
  if (engine::IsClosedBy(*block, Reason::kFences) && !LacksFence(*block)) heap_.EndReason(block, Reason::kFences);
  return true;
}

bool Engine::EndReason(Address address, Reason reason) {
  if (!IsClosedBy(address, reason)) return false;
  heap_.EndReason(heap_.FindStart(address), reason);
  return true;
}

bool Engine::IsClosedBy(Address address, Reason reason) const {
  const Block* const block = heap_.FindStart(address);
  return block != nullptr && engine::IsClosedBy(*block, reason);
}

void Engine::Quarantine(Address address) {
  Block* const block = heap_.FindStart(address);
  if (block != nullptr && block->state == BlockState::kClosed) block->closed_by |= ReasonsOf(Reason::kQuarantine);
}

std::vector<MissingFence> Engine::MissingFences() const {
  std::vector<MissingFence> missing;
  for (const Block* block : heap_.closed()) {
    if (engine::IsClosedBy(*block, Reason::kGraph) || engine::IsClosedBy(*block, Reason::kQuarantine)) continue;
    for (const Use& use : block->uses) {
      if (use.fence_missing()) missing.push_back({use.missing_for, use.stream, block->freed_at});
    }
  }
  return missing;
}

bool Engine::AnyClosedLacksFenceOf(bool (*is_such)(StreamKey)) const {
  const std::vector<Block*>& closed = heap_.closed();
  return std::any_of(closed.begin(), closed.end(), [&](const Block* block) {
    return !engine::IsClosedBy(*block, Reason::kGraph) &&
           std::any_of(block->uses.begin(), block->uses.end(),
                       [&](const Use& use) { return use.fence == kNoFence && is_such(use.stream); });
  });
}

bool Engine::SetMark(Address address, Mark mark) {
  Block* const block = LiveBlock(address);
  if (block == nullptr) return false;
  block->marks |= static_cast<Marks>(mark);
  return true;
}

bool Engine::HasMark(Address address, Mark mark) const {
  const Block* const block = heap_.FindStart(address);
  return block != nullptr && (block->marks & static_cast<Marks>(mark)) != 0;
}

bool Engine::AnyHasMark(Mark mark) const {
  for (const auto& [index, segment] : heap_.segments()) {
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if ((block->marks & static_cast<Marks>(mark)) != 0) return true;
    }
  }
  return false;
}

void Engine::EndMarks(Mark mark) {
  for (const auto& [index, segment] : heap_.segments()) {
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      block->marks &= static_cast<Marks>(~static_cast<Marks>(mark));
    }
  }
}

Status Engine::RecordStream(Address address, StreamKey stream) {
  Block* const block = LiveBlock(address);
  if (block == nullptr) return NotLive("record_stream", address);
  const bool own = stream == block->stream && !block->stream_over;
  if (!own) AddUse(block->uses, {stream, kNoFence, kNoBlock});
  return Status();
}

void Engine::FencePassed(Fence fence) {
  // Each change removes one block from the fence's list, and may merge it with others of the list.
  while (Block* block = heap_.fences().AnyBlock(fence)) {
    heap_.ChangeUses(block, [&](Uses& uses) { uses.EraseIf([&](const Use& use) { return use.fence == fence; }); });
  }
  heap_.fences().Remove(fence);
}

template <typename Matches, typename Change>
void Engine::ChangeUsesWhere(Matches matches, Change change) {
  for (const auto& [index, segment] : heap_.segments()) {
    for (Block* block = segment->first; block != nullptr;) {
      const bool closed = block->state != BlockState::kFree;
      const auto matching = [&](const Use& use) { return matches(*block, use) && !(closed && use.fence_missing()); };
      if (block->state == BlockState::kLive || std::none_of(block->uses.begin(), block->uses.end(), matching)) {
        block = block->next;
        continue;
      }
      // The change may have merged the block with the next one, and it has that one's uses too: look at it again.
      block = heap_.ChangeUses(block, [&](Uses& uses) {
        uses.EraseIf(matching);
        change(uses);
      });
    }
  }
  heap_.free_index().DropEmptyClasses();
}

template <typename Over>
void Engine::DropUses(Over over) {
  ChangeUsesWhere(over, [](Uses&) {});
}

void Engine::FenceStream(StreamKey stream, Fence fence, Moment moment) {
  heap_.fences().Add(fence, ++clock_);
  ChangeUsesWhere(
      [&](const Block& block, const Use& use) {
        return use.stream == stream && use.fence == kNoFence && !use.fence_missing() && block.freed_at <= moment;
      },
      [&](Uses& uses) {
        AddUse(uses, {stream, fence, kNoBlock});
      });
}

void Engine::DeviceIdle(int place, Moment moment) {
  for (const Fence fence : heap_.fences().Pending(moment)) {
    if (PlaceOf(fence) == place) FencePassed(fence);
  }
  DropUses(
      [&](const Block& block, const Use& use) { return PlaceOf(use.stream) == place && block.freed_at <= moment; });
}

std::set<int> Engine::Places() const {
  std::set<int> places;
  for (const auto& [index, segment] : heap_.segments()) {
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      for (const Use& use : block->uses) places.insert(PlaceOf(use.stream));
      if (block->state == BlockState::kLive && !block->stream_over) places.insert(PlaceOf(block->stream));
    }
  }
  return places;
}

void Engine::StreamIdle(StreamKey stream, Moment moment) {
  DropUses([&](const Block& block, const Use& use) { return use.stream == stream && block.freed_at <= moment; });
}

void Engine::ForgetStream(StreamKey stream) {
  DropUses([&](const Block&, const Use& use) { return use.stream == stream; });
  for (const auto& [index, segment] : heap_.segments()) {
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->state != BlockState::kLive) continue;
      block->uses.EraseIf([&](const Use& use) { return use.stream == stream; });
      if (block->stream == stream) block->stream_over = true;
    }
  }
}

SegmentIndex Engine::AddSegment(const SegmentRange& range, Space space, Part part) {
  const SegmentIndex index = heap_.AddSegment(range, space, BlockState::kFree, part);
  Add(counters_.reserved_bytes, range.bytes);
  AddPage();
  return index;
}

SegmentRange Engine::RemoveSegment(SegmentIndex segment) {
  COMMPOOL_CHECK(IsIdle(segment), "a segment is removed that is unknown, or that a stream may still use");
  const SegmentRange range = heap_.RemoveSegment(segment);
  Subtract(counters_.reserved_bytes, range.bytes);
  RemovePage();
  return range;
}

void Engine::Convert(const SegmentRange& range, BlockState from, BlockState to, const Claimant& claimant) {
  heap_.Convert(range, from, to, claimant);
  if (IsHole(from) && !IsHole(to)) Add(counters_.reserved_bytes, range.bytes);
  if (IsHole(to) && !IsHole(from)) Subtract(counters_.reserved_bytes, range.bytes);
}

void Engine::MovePage(const SegmentRange& from, Address to, const Claimant& claimant) {
  heap_.Convert(from, BlockState::kLeaving, BlockState::kUnmapped);
  heap_.Convert({to, from.bytes}, BlockState::kArriving, BlockState::kFree, claimant);
}

void Engine::AddPage() { Add(counters_.reserved_segments, 1); }

void Engine::RemovePage() { Subtract(counters_.reserved_segments, 1); }

bool Engine::IsIdle(SegmentIndex segment) const {
  if (!heap_.IsWhollyFree(segment)) return false;
  for (const Block* block = heap_.segments().at(segment)->first; block != nullptr; block = block->next) {
    if (!block->uses.empty()) return false;
  }
  return true;
}

Status Engine::NotLive(const char* call, Address address) const {
  return NoLiveBlock(call, address, heap_.Find(address));
}

Part Engine::PartOf(Address address) const {
  const Block* const block = heap_.Find(address);
  return block == nullptr || block->state != BlockState::kLive ? kCommonPart : block->part;
}

Result<BlockView> Engine::Find(Address address) const {
  const Block* block = heap_.Find(address);
  if (block == nullptr || block->state != BlockState::kLive) return NoLiveBlock("find", address, block);
  return ViewOf(*block);
}

Counters Engine::counters() const {
  Counters counters = counters_;
  counters.free_bytes = counters.reserved_bytes.current - counters.allocated_bytes.current;
  counters.largest_free_block_bytes = heap_.free_index().LargestBytes();
  counters.pending_bytes = heap_.pending_bytes();
  return counters;
}

void Engine::NoteHolding(const Holding& holding) {
  RaisePeak(counters_.requested_bytes, holding.least.requested);
  RaisePeak(counters_.allocated_bytes, holding.least.bytes);
  RaisePeak(counters_.allocated_blocks, holding.least.blocks);
  apart_ = holding.now;
}

void Engine::ResetPeaks() {
  for (Counter* counter : {&counters_.requested_bytes, &counters_.allocated_bytes, &counters_.allocated_blocks,
                           &counters_.reserved_bytes, &counters_.reserved_segments}) {
    counter->peak = counter->current;
  }
  counters_.requested_bytes.peak -= static_cast<uint64_t>(apart_.requested);
  counters_.allocated_bytes.peak -= static_cast<uint64_t>(apart_.bytes);
  counters_.allocated_blocks.peak -= static_cast<uint64_t>(apart_.blocks);
}

std::vector<BlockView> Engine::Snapshot() const {
  std::vector<BlockView> views;
  for (const auto& [index, segment] : heap_.segments()) {
    for (const Block* block = segment->first; block != nullptr; block = block->next) views.push_back(ViewOf(*block));
  }
  return views;
}

}  // namespace commpool::internal::engine
