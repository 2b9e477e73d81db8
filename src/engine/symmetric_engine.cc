#include "src/engine/symmetric_engine.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/check.h"
#include "src/engine/invariants.h"

namespace commpool::internal::engine {

SymmetricEngine::SymmetricEngine(const EngineOptions& options, FreeOrder order)
    : options_(options), order_(order), ledger_(options, MergePolicy::kAlways) {
  CheckOptions(options);
}

Result<Outcome> SymmetricEngine::Allocate(uint64_t bytes, StreamKey stream) {
  Result<RequestSizes> sizes = SizesOf(bytes, options_);
  if (!sizes.ok()) return sizes.status();
  std::optional<Served> served = ledger_.Serve({.requested = bytes,
                                                .block_bytes = sizes->block_bytes,
                                                .stream = stream,
                                                .reuse = Reuse::kAnyStream,
                                                .choice = Choice::kBesideItsLike,
                                                .sequence = next_sequence_});
  if (!served) {
    log_.Append(SequenceCall::kRefused, bytes);
    return Outcome(Grow{sizes->block_bytes});
  }
  log_.Append(SequenceCall::kAllocate, bytes);
  ++next_sequence_;
  return Outcome(std::move(*served));
}

bool SymmetricEngine::CanServe(uint64_t bytes) const {
  const Result<RequestSizes> sizes = SizesOf(bytes, options_);
  // What rests merges whatever its uses are: the largest block then is known without waking any.
  return sizes.ok() && ledger_.heap().LargestFree() >= sizes->block_bytes;
}

Result<Freed> SymmetricEngine::Free(Address address) {
  const Result<Block*> block = ledger_.LiveBlock("free", address);
  const Sequence sequence = block.ok() ? (*block)->sequence : 0;
  const bool deferred = order_ == FreeOrder::kDeferred;
  Result<Closed> closed = ledger_.Close(address, deferred ? Disposal::kDefer : Disposal::kFreeAtOnce);
  if (!closed.ok()) return closed.status();
  if (deferred) {
    deferred_.emplace(sequence, closed->block);
  } else {
    log_.Append(SequenceCall::kFree, sequence);
  }
  return std::move(closed->freed);
}

void SymmetricEngine::AttachFence(Address address, StreamKey stream, Fence fence) {
  // Ordered, the block may have been handed out meanwhile: to a caller that waits for all of the stream's work.
  static_cast<void>(ledger_.AttachFence(address, stream, fence));
}

Status SymmetricEngine::RecordStream(Address address, StreamKey stream) {
  return ledger_.RecordStream(address, stream);
}

void SymmetricEngine::FencePassed(Fence fence) { ledger_.FencePassed(fence); }

void SymmetricEngine::DeviceIdle(Moment moment) { ledger_.DeviceIdle(moment); }

void SymmetricEngine::ForgetStream(StreamKey stream) { ledger_.ForgetStream(stream); }

ReservedVector<Fence> SymmetricEngine::PendingFences() const { return ledger_.PendingFences(); }

std::vector<Sequence> SymmetricEngine::LocallyFreed() const {
  std::vector<Sequence> freed;
  for (const auto& [sequence, block] : deferred_) {
    if (!OwesFence(*block)) freed.push_back(sequence);
  }
  return freed;
}

void SymmetricEngine::ApplyFrees(const std::vector<Sequence>& sequences) {
  ReservedVector<Sequence> ascending(sequences.begin(), sequences.end());
  std::sort(ascending.begin(), ascending.end());
  for (const Sequence sequence : ascending) {
    const auto found = deferred_.find(sequence);
    COMMPOOL_CHECK(found != deferred_.end(), "a free is applied that this rank did not offer");
    Block* block = found->second;
    COMMPOOL_CHECK(!OwesFence(*block), "a free is applied whose fences have not come");
    deferred_.erase(found);
    ledger_.ReleaseDeferred(block);
  }
}

SegmentIndex SymmetricEngine::AddSegment(const SegmentRange& range, Space, Part) {
  return ledger_.AddSegment(range, Space::kLarge);
}

SegmentRange SymmetricEngine::RemoveSegment(SegmentIndex segment) { return ledger_.RemoveSegment(segment); }

std::vector<SegmentIndex> SymmetricEngine::WhollyFreeSegments() const { return ledger_.heap().WhollyFreeSegments(); }

bool SymmetricEngine::IsWhollyFree(SegmentIndex segment) const { return ledger_.heap().IsWhollyFree(segment); }

bool SymmetricEngine::IsIdle(SegmentIndex segment) const { return ledger_.IsIdle(segment); }

uint32_t SymmetricEngine::SegmentsEver() const { return ledger_.heap().segments_ever(); }

void SymmetricEngine::BeginEpoch() {
  COMMPOOL_CHECK(deferred_.empty(), "an epoch begins while a free waits for other ranks");
  ledger_.BeginAgain();
  log_ = SequenceLog();
  next_sequence_ = 0;
}

Result<BlockView> SymmetricEngine::Find(Address address) const { return ledger_.Find(address); }

void SymmetricEngine::NoteCollective(SequenceCall call, uint64_t value) { log_.Append(call, value); }

Counters SymmetricEngine::counters() const { return ledger_.counters(); }

void SymmetricEngine::ResetPeaks() { ledger_.ResetPeaks(); }

std::vector<BlockView> SymmetricEngine::Snapshot() const { return ledger_.Snapshot(); }

void SymmetricEngine::CheckInvariants() const {
  CheckLedger(ledger_);
  uint64_t deferred = 0;
  for (const BlockView& view : ledger_.Snapshot()) deferred += view.state == BlockView::State::kDeferred ? 1 : 0;
  COMMPOOL_CHECK(deferred == deferred_.size(), "a deferred block is not among the frees to exchange");
}

}  // namespace commpool::internal::engine
