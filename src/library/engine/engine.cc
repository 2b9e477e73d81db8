#include "src/library/engine/engine.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>

#include "src/library/base/check.h"
#include "src/library/base/failure.h"

namespace commpool::internal::engine {
namespace {

// Free memory of a graph that lives counts as pending too.
BlockView ViewOf(const Block& block) {
  commpool_block_state state = IsHole(block) ? COMMPOOL_BLOCK_UNMAPPED : COMMPOOL_BLOCK_PENDING;
  if (block.state == BlockState::kLive) state = COMMPOOL_BLOCK_LIVE;
  if (block.state == BlockState::kFree && block.part == kCommonPart && !IsPending(block)) state = COMMPOOL_BLOCK_FREE;
  return {reinterpret_cast<void*>(AddressOf(block)),
          block.bytes,
          block.requested,
          block.segment->index,
          block.stream,
          0,
          0,
          state};
}

bool IsOwn(const Block& block, StreamKey stream) { return stream == block.stream && !block.stream_over; }

void AddMissing(const Block& block, std::vector<MissingFence>& missing) {
  for (const Use& use : block.uses) {
    if (use.fence_missing()) missing.push_back({AddressOf(block), use.stream, use.missing_since});
  }
}

}  // namespace

std::string Hexadecimal(Address address) {
  std::array<char, 24> text;
  std::snprintf(text.data(), text.size(), "0x%" PRIx64, address);
  return text.data();
}

Engine::Engine(const EngineOptions& options, MergePolicy policy, Choice choice)
    : options_(options), heap_(options.alignment, policy, choice) {
  COMMPOOL_CHECK(options.granularity > 0 && options.granularity % options.alignment == 0,
                 "the granularity of segments is no multiple of the alignment of blocks");
}

Served Engine::Serve(Block* block, StreamKey stream, uint64_t requested, uint64_t sequence) {
  Served served{AddressOf(*block), block->bytes, WaitsOf(block->uses, stream)};
  ServeOwn(block, stream, requested, sequence);
  return served;
}

bool Engine::AttachFence(const MissingFence& missing, Fence fence) {
  heap_.fences().Add(fence, ++clock_);
  return ReplaceMissing(missing, fence);
}

bool Engine::ReplaceMissing(const MissingFence& missing, Fence fence) {
  const Use lacking{missing.stream, kNoFence, missing.freed_at};
  Block* block = heap_.Find(missing.address);
  if (block == nullptr || block->state == BlockState::kLive || !lacking.fence_missing()) return false;
  if (!std::binary_search(block->uses.begin(), block->uses.end(), lacking)) return false;
  block = heap_.ChangeUses(block, [&](Uses& uses) {
    uses.EraseIf([&](const Use& use) { return use == lacking; });
    if (fence != kNoFence) AddUse(uses, {missing.stream, fence, kNoMoment});
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

std::vector<MissingFence> Engine::MissingFences() const {
  std::vector<MissingFence> missing;
  for (const Block* block : heap_.closed()) {
    if (!engine::IsClosedBy(*block, Reason::kGraph)) AddMissing(*block, missing);
  }
  return missing;
}

bool Engine::AnyClosedLacksFenceOf(bool (*is_such)(StreamKey)) const {
  return std::ranges::any_of(heap_.closed(), [&](const Block* block) {
    return !engine::IsClosedBy(*block, Reason::kGraph) &&
           block->uses.Any([&](const Use& use) { return use.fence == kNoFence && is_such(use.stream); });
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
  bool any = false;
  heap_.ForEach([&](const Block& block) { any |= (block.marks & static_cast<Marks>(mark)) != 0; });
  return any;
}

void Engine::EndMarks(Mark mark) {
  heap_.ForEach([&](Block& block) { block.marks &= static_cast<Marks>(~static_cast<Marks>(mark)); });
}

Status Engine::RecordStream(Address address, StreamKey stream) {
  Block* const block = LiveBlock(address);
  if (block == nullptr) return NotLive("record_stream", address);
  if (!IsOwn(*block, stream)) AddUse(block->uses, {stream, kNoFence, kNoMoment});
  return Status();
}

bool Engine::IsOwnStream(Address address, StreamKey stream) const {
  const Block* const block = LiveBlock(address);
  return block != nullptr && IsOwn(*block, stream);
}

int64_t Engine::CorrectRequested(Address address, uint64_t requested) {
  Block* const block = LiveBlock(address);
  if (block == nullptr) return 0;
  const uint64_t more = block->requested - requested;
  Subtract(counters_.requested_bytes, more);
  block->requested = requested;
  return static_cast<int64_t>(more);
}

void Engine::FencePassed(Fence fence) {
  // Each change removes one block from the fence's list, and may merge it with others of the list.
  while (Block* block = heap_.fences().AnyBlock(fence)) {
    heap_.ChangeUses(block, [&](Uses& uses) { uses.EraseIf([&](const Use& use) { return use.fence == fence; }); });
  }
  heap_.fences().Remove(fence);
}

template <typename Matches>
void Engine::ReplaceUses(Matches matches, std::optional<Use> instead) {
  const auto matching = [&](const Block& block) {
    const bool closed = block.state != BlockState::kFree;
    return [&, closed](const Use& use) { return matches(block, use) && !(closed && use.fence_missing()); };
  };
  heap_.ChangeWhere(
      [&](const Block& block) { return block.state != BlockState::kLive && block.uses.Any(matching(block)); },
      [&](Block& block) {
        block.uses.EraseIf(matching(block));
        if (instead) AddUse(block.uses, *instead);
      });
  heap_.free_index().DropEmptyClasses();
}

void Engine::FenceStream(StreamKey stream, Fence fence, Moment moment) {
  heap_.fences().Add(fence, ++clock_);
  const auto unfenced = [&](const Block& block, const Use& use) {
    return use.stream == stream && use.fence == kNoFence && !use.fence_missing() && block.freed_at <= moment;
  };
  ReplaceUses(unfenced, Use{stream, fence, kNoMoment});
}

void Engine::DeviceIdle(int place, Moment moment) {
  for (const Fence fence : heap_.fences().Pending(moment)) {
    if (PlaceOf(fence) == place) FencePassed(fence);
  }
  ReplaceUses(
      [&](const Block& block, const Use& use) { return PlaceOf(use.stream) == place && block.freed_at <= moment; });
}

std::set<int> Engine::Places() const {
  std::set<int> places;
  heap_.ForEach([&](const Block& block) {
    for (const Use& use : block.uses) places.insert(PlaceOf(use.stream));
    if (block.state == BlockState::kLive && !block.stream_over) places.insert(PlaceOf(block.stream));
  });
  return places;
}

std::set<StreamKey> Engine::StreamsOf(Part part) const {
  std::set<StreamKey> streams;
  heap_.ForEach([&](const Block& block) {
    if (block.part != part || block.state != BlockState::kFree) return;
    for (const Use& use : block.uses) streams.insert(use.stream);
  });
  return streams;
}

void Engine::StreamIdle(StreamKey stream, Moment moment) {
  ReplaceUses([&](const Block& block, const Use& use) { return use.stream == stream && block.freed_at <= moment; });
}

// A block that has changed is looked at again (ChangeWhere). So first the uses that are over go, and then the others
// lose the mark by which the first step knows them.
void Engine::ClosePart(Part part, Moment until, const std::set<StreamKey>& captured) {
  const auto is_free = [&](const Block& block) { return block.part == part && block.state == BlockState::kFree; };
  ReplaceUses([&](const Block& block, const Use& use) {
    if (!is_free(block) || block.freed_at > until || use.fence != kNoFence) return false;
    return !use.fence_missing() || captured.contains(use.stream);
  });
  heap_.ChangeWhere([&](const Block& block) { return is_free(block) && LacksFence(block); },
                    [](Block& block) {
                      Uses unfenced;
                      for (const Use& use : block.uses) AddUse(unfenced, {use.stream, use.fence, kNoMoment});
                      block.uses = unfenced;
                    });
}

void Engine::ReleasePart(Part part) {
  heap_.ChangeWhere([&](const Block& block) { return block.part == part; },
                    [](Block& block) { block.part = kCommonPart; });
}

void Engine::ForgetStream(StreamKey stream) {
  std::vector<MissingFence> missing;
  for (const Block* block : heap_.closed()) AddMissing(*block, missing);
  for (const MissingFence& fence : missing) {
    if (fence.stream == stream) CancelFence(fence);
  }
  ReplaceUses([&](const Block&, const Use& use) { return use.stream == stream; });
  heap_.ForEach([&](Block& block) {
    if (block.state != BlockState::kLive) return;
    block.uses.EraseIf([&](const Use& use) { return use.stream == stream; });
    if (block.stream == stream) block.stream_over = true;
  });
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

bool Engine::IsIdle(SegmentIndex segment) const {
  if (!heap_.IsWhollyFree(segment)) return false;
  for (const Block* block = heap_.segments().at(segment)->first; block != nullptr; block = block->next) {
    if (!block->uses.empty()) return false;
  }
  return true;
}

Status Engine::NotLive(const char* call, Address address) const {
  std::string why = "not from this pool, or freed already and its segment given back to the system";
  if (const Block* const holder = heap_.Find(address)) {
    const std::string place = std::to_string(holder->bytes) + " bytes at " + Hexadecimal(AddressOf(*holder));
    if (holder->state == BlockState::kLive) {
      why = "the address lies inside a live block of " + place + "; pass the address that allocate returned";
    } else if (holder->state == BlockState::kFree) {
      why = "it lies in a free block of " + place + ": freed already, or never allocated";
    } else if (IsHole(*holder)) {
      why = "the pool has no memory there: never allocated, or moved since";
    } else {
      why = "freed already (a block of " + place + " that is not free memory yet)";
    }
  }
  return NotFound(call, ": no live block at ", Hexadecimal(address), ": ", why);
}

Part Engine::PartOf(Address address) const {
  const Block* const block = LiveBlock(address);
  return block == nullptr ? kCommonPart : block->part;
}

Result<BlockView> Engine::Find(Address address) const {
  const Block* block = heap_.Find(address);
  if (block == nullptr || block->state != BlockState::kLive) return NotLive("find", address);
  return ViewOf(*block);
}

Counters Engine::counters() const {
  Counters counters = counters_;
  counters.free_bytes = counters.reserved_bytes.current - counters.allocated_bytes.current;
  counters.largest_free_block_bytes = heap_.free_index().LargestBytes();
  counters.pending_bytes = heap_.pending_bytes();
  const auto add = [&](const Block* block) { counters.pending_bytes += IsPending(*block) ? 0 : block->bytes; };
  for (const auto& [use_class, list] : heap_.free_index().lists()) {
    if (use_class.part() != kCommonPart) list.blocks.VisitFrom(0, add);
  }
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
  heap_.ForEach([&](const Block& block) { views.push_back(ViewOf(block)); });
  return views;
}

}  // namespace commpool::internal::engine
