#include "src/engine/free_index.h"

#include <algorithm>
#include <tuple>

#include "src/base/check.h"
#include "src/engine/heap_segment.h"

namespace commpool::engine {
namespace {

Block* FirstOfAtLeast(const BlockSet<BySize>& blocks, uint64_t bytes) {
  const auto found = blocks.lower_bound(bytes);
  return found == blocks.end() ? nullptr : *found;
}

}  // namespace

bool BySize::operator()(const Block* a, const Block* b) const {
  return std::tie(a->bytes, a->segment->index, a->offset) < std::tie(b->bytes, b->segment->index, b->offset);
}

FreeIndex::UseClass FreeIndex::ClassOf(const Block& block) {
  const Space space = block.segment->space;
  if (block.uses.empty()) return {block.part, space};
  const StreamKey stream = block.uses.front().stream;
  const bool one =
      std::all_of(block.uses.begin(), block.uses.end(), [&](const Use& use) { return use.stream == stream; });
  if (!one) return {block.part, space, UseClass::Kind::kSeveral, 0};
  return {block.part, space, UseClass::Kind::kOneStream, stream};
}

void FreeIndex::Insert(Block* block) {
  InsertBlock(classes_[ClassOf(*block)], block, spare_);
  ++count_;
}

void FreeIndex::Erase(Block* block) {
  const auto found = classes_.find(ClassOf(*block));
  COMMPOOL_CHECK(found != classes_.end() && EraseBlock(found->second, block, spare_),
                 "a free block is missing from the free index");
  --count_;
}

bool FreeIndex::Contains(Block* block) const {
  const auto found = classes_.find(ClassOf(*block));
  if (found == classes_.end()) return false;
  const auto entry = found->second.find(block);
  return entry != found->second.end() && *entry == block;
}

Block* FreeIndex::Better(Block* a, Block* b) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  return BySize()(b, a) ? b : a;
}

Block* FreeIndex::BestOf(const UseClass& use_class, uint64_t bytes) const {
  const auto found = classes_.find(use_class);
  return found == classes_.end() ? nullptr : FirstOfAtLeast(found->second, bytes);
}

Block* FreeIndex::BestFit(const Fit& fit) const {
  if (fit.reuse != Reuse::kAnyStream) {
    Block* const idle = BestOf({fit.part, fit.space}, fit.bytes);
    if (fit.reuse == Reuse::kIdle) return idle;
    return Better(BestOf({fit.part, fit.space, UseClass::Kind::kOneStream, fit.stream}, fit.bytes), idle);
  }
  Block* best = nullptr;
  for (auto found = classes_.lower_bound({fit.part, fit.space}); found != classes_.end(); ++found) {
    if (found->first.part != fit.part || found->first.space != fit.space) break;
    best = Better(best, FirstOfAtLeast(found->second, fit.bytes));
  }
  return best;
}

uint64_t FreeIndex::LargestBytes() const {
  uint64_t largest = 0;
  for (const auto& [use_class, blocks] : classes_) {
    if (use_class.part == kCommonPart && !blocks.empty()) largest = std::max(largest, (*blocks.rbegin())->bytes);
  }
  return largest;
}

void FreeIndex::DropEmptyClasses() {
  std::erase_if(classes_, [](const auto& entry) { return entry.second.empty(); });
}

}  // namespace commpool::engine
