#include "src/engine/symmetric_engine.h"

#include <algorithm>
#include <vector>

#include "src/base/check.h"
#include "src/base/try.h"

namespace commpool::internal::engine {

namespace {

// Whether other streams can wait for the block's users.
bool OthersCanWait(const Block& block) { return !LacksFence(block) && !IsStranded(block); }

}  // namespace

Result<Outcome> SymmetricEngine::Allocate(uint64_t bytes, StreamKey stream) {
  const RequestSizes sizes = COMMPOOL_TRY(SizesOf(bytes, options()));
  Block* const block =
      heap().Take({sizes.block_bytes, stream, Reuse::kAnyUse, Space::kLarge, kCommonPart, Choice::kBesideItsLike});
  log_.Append(block == nullptr ? SequenceCall::kRefused : SequenceCall::kAllocate, bytes);
  if (block == nullptr) return Outcome(Grow{sizes.block_bytes});
  return Outcome(Serve(block, stream, bytes, next_sequence_++));
}

bool SymmetricEngine::CanServe(uint64_t bytes) const {
  const Result<RequestSizes> sizes = SizesOf(bytes, options());
  // Resting blocks merge whatever their uses are, so the largest block is known without waking any.
  return sizes.ok() && heap().LargestFree() >= sizes->block_bytes;
}

Result<Freed> SymmetricEngine::Free(Address address) {
  Block* const block = COMMPOOL_TRY(LiveBlock("free", address));
  const Sequence sequence = block->sequence;
  if (order_ == FreeOrder::kOrdered) {
    log_.Append(SequenceCall::kFree, sequence);
    return Close(block, Disposal::kFreeAtOnce);
  }
  deferred_.emplace(sequence, block);
  return Close(block, Disposal::kDefer);
}

std::vector<Sequence> SymmetricEngine::LocallyFreed() const {
  std::vector<Sequence> freed;
  for (const auto& [sequence, block] : deferred_) {
    if (OthersCanWait(*block)) freed.push_back(sequence);
  }
  return freed;
}

bool SymmetricEngine::AwaitsDevice() const {
  return std::any_of(deferred_.begin(), deferred_.end(), [](const auto& entry) { return IsStranded(*entry.second); });
}

void SymmetricEngine::ApplyFrees(const std::vector<Sequence>& sequences) {
  std::vector<Sequence> ascending(sequences.begin(), sequences.end());
  std::sort(ascending.begin(), ascending.end());
  for (const Sequence sequence : ascending) {
    const auto found = deferred_.find(sequence);
    COMMPOOL_CHECK(found != deferred_.end(), "a free is applied that this rank did not offer");
    Block* block = found->second;
    COMMPOOL_CHECK(OthersCanWait(*block), "a free is applied whose fences have not come");
    deferred_.erase(found);
    heap().Open(block);
  }
}

void SymmetricEngine::BeginEpoch() {
  COMMPOOL_CHECK(deferred_.empty(), "an epoch begins while a free waits for other ranks");
  heap().BeginAgain();
  log_ = SequenceLog();
  next_sequence_ = 0;
}

void SymmetricEngine::CheckInvariants() const {
  Engine::CheckInvariants();
  uint64_t deferred = 0;
  for (const BlockView& view : Snapshot()) deferred += view.state == BlockView::State::kDeferred ? 1 : 0;
  COMMPOOL_CHECK(deferred == deferred_.size(), "a deferred block is not among the frees to exchange");
}

}  // namespace commpool::internal::engine
