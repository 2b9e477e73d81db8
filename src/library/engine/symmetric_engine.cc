#include "src/library/engine/symmetric_engine.h"

#include "src/library/base/check.h"
#include "src/library/base/try.h"

namespace commpool::internal::engine {

Result<Outcome> SymmetricEngine::Allocate(uint64_t bytes, StreamKey stream, Part part) {
  const RequestSizes sizes = COMMPOOL_TRY(SizesOf(bytes, options()));
  Block* const block = own_heap().Take({sizes.block_bytes, stream, Reuse::kAnyUse});
  log_.Append(block == nullptr ? SequenceCall::kRefused : SequenceCall::kAllocate, bytes);
  if (block == nullptr) return Outcome(Grow{sizes.block_bytes});
  block->part = part;
  return Outcome(Serve(block, stream, bytes, next_sequence_++));
}

bool SymmetricEngine::CanServe(uint64_t bytes) const {
  const Result<RequestSizes> sizes = SizesOf(bytes, options());
  return sizes.ok() && heap().free_index().LargestBytes() >= sizes->block_bytes;
}

Result<Freed> SymmetricEngine::Free(Address address, Reasons also) {
  Block* const block = LiveBlock(address);
  if (block == nullptr) return NotLive("free", address);
  if (order_ == FreeOrder::kOrdered) {
    log_.Append(SequenceCall::kFree, block->sequence);
    return Close(block, Fencing::kAwaits, also);
  }
  const bool of_graph = block->part != kCommonPart;
  Freed freed = Close(block, Fencing::kCloses,
                      also | ReasonsOf(Reason::kRanks) | (of_graph ? ReasonsOf(Reason::kGraph) : Reasons{0}));
  if (of_graph) freed.missing.clear();  // while the graph lives a fence would come too early
  return freed;
}

void SymmetricEngine::ReleasePart(Part part) {
  own_heap().ForEach([&](Block& block) {
    if (block.part != part) return;
    COMMPOOL_CHECK(block.state != BlockState::kFree, "free memory of a part is the heap's to release");
    block.part = kCommonPart;
    // The ranks still close it, so nothing merges while this goes through the list.
    if (engine::IsClosedBy(block, Reason::kGraph)) own_heap().EndReason(&block, Reason::kGraph);
  });
}

std::map<Sequence, Block*> SymmetricEngine::Offered() const {
  std::map<Sequence, Block*> offered;
  for (Block* const block : heap().closed()) {
    if (block->closed_by == ReasonsOf(Reason::kRanks) && !IsStranded(*block)) offered.emplace(block->sequence, block);
  }
  return offered;
}

std::vector<Sequence> SymmetricEngine::LocallyFreed() const {
  std::vector<Sequence> freed;
  for (const auto& [sequence, block] : Offered()) freed.push_back(sequence);
  return freed;
}

void SymmetricEngine::ApplyFrees(const std::vector<Sequence>& sequences) {
  const std::map<Sequence, Block*> offered = Offered();
  // In any order: blocks merge whatever their uses, so the order in which they open leaves no trace.
  for (const Sequence sequence : sequences) {
    const auto found = offered.find(sequence);
    COMMPOOL_CHECK(found != offered.end(), "a free is applied that this rank did not offer");
    own_heap().EndReason(found->second, Reason::kRanks);
  }
}

void SymmetricEngine::BeginEpoch() {
  COMMPOOL_CHECK(own_heap().closed().empty(), "an epoch begins while a free waits for other ranks");
  own_heap().BeginAgain();
  log_ = SequenceLog();
  next_sequence_ = 0;
}

}  // namespace commpool::internal::engine
