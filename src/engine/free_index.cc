#include "src/engine/free_index.h"

#include <algorithm>
#include <tuple>

#include "src/base/check.h"
#include "src/engine/heap_segment.h"

namespace commpool::internal::engine {
namespace {

bool StandsBefore(const Block& a, const Block& b) {
  return std::tie(a.segment->index, a.offset) < std::tie(b.segment->index, b.offset);
}

}  // namespace

bool BySize::operator()(const Block* a, const Block* b) const {
  return std::tie(a->bytes, a->segment->index, a->offset) < std::tie(b->bytes, b->segment->index, b->offset);
}

FreeIndex::UseClass FreeIndex::ClassOf(const Block& block) {
  UseClass use_class{block.part, block.segment->space};
  if (block.bytes == block.segment->range.bytes) use_class.extent = UseClass::Extent::kWholeSegment;
  if (block.uses.empty()) return use_class;
  const StreamKey stream = block.uses.front().stream;
  const bool one =
      std::all_of(block.uses.begin(), block.uses.end(), [&](const Use& use) { return use.stream == stream; });
  use_class.kind = one ? UseClass::Kind::kOneStream : UseClass::Kind::kSeveral;
  if (one) use_class.stream = stream;
  return use_class;
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

Block* FreeIndex::Better(Block* a, Block* b, Choice choice) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  if (choice == Choice::kFirstFit) return StandsBefore(*b, *a) ? b : a;
  return BySize()(b, a) ? b : a;
}

Block* FreeIndex::ChooseFrom(const BlockSet<BySize>& blocks, const Fit& fit) {
  auto found = blocks.lower_bound(fit.bytes);
  if (found == blocks.end()) return nullptr;
  Block* chosen = *found;
  if (fit.choice != Choice::kFirstFit) return chosen;
  for (++found; found != blocks.end(); ++found) chosen = Better(chosen, *found, fit.choice);
  return chosen;
}

Block* FreeIndex::ChooseFrom(const UseClass& use_class, const Fit& fit) const {
  const auto found = classes_.find(use_class);
  return found == classes_.end() ? nullptr : ChooseFrom(found->second, fit);
}

Block* FreeIndex::FindIn(UseClass::Extent extent, const Fit& fit) const {
  if (fit.reuse != Reuse::kAnyStream) {
    Block* const idle = ChooseFrom({fit.part, fit.space, extent}, fit);
    if (fit.reuse == Reuse::kIdle) return idle;
    Block* const own = ChooseFrom({fit.part, fit.space, extent, UseClass::Kind::kOneStream, fit.stream}, fit);
    return Better(own, idle, fit.choice);
  }
  Block* best = nullptr;
  for (auto found = classes_.lower_bound({fit.part, fit.space, extent}); found != classes_.end(); ++found) {
    const UseClass& use_class = found->first;
    if (use_class.part != fit.part || use_class.space != fit.space || use_class.extent != extent) break;
    best = Better(best, ChooseFrom(found->second, fit), fit.choice);
  }
  return best;
}

Block* FreeIndex::Find(const Fit& fit) const {
  Block* const part = FindIn(UseClass::Extent::kPart, fit);
  if (part != nullptr && fit.choice == Choice::kPartlyUsedFirst) return part;
  return Better(part, FindIn(UseClass::Extent::kWholeSegment, fit), fit.choice);
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

}  // namespace commpool::internal::engine
