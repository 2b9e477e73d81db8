#include "src/library/engine/free_index.h"

#include <algorithm>

namespace commpool::internal::engine {

UseClass FreeIndex::ClassOfSeveral(const Block& block) {
  using Kind = UseClass::Kind;
  const Space space = block.segment->space;
  if (block.uses.empty()) return {block.part, space, Kind::kIdle};
  const StreamKey stream = block.uses.front().stream;
  const bool several = block.uses.Any([&](const Use& use) { return use.stream != stream; });
  if (several) return {block.part, space, IsStranded(block) ? Kind::kSeveralStranded : Kind::kSeveral};
  return {block.part, space, IsStranded(block) ? Kind::kOneStranded : Kind::kOneStream, stream};
}

bool FreeIndex::MayTake(const UseClass& use_class, const Fit& fit) {
  if (use_class.bits >> 4 != UseClass(fit.part, fit.space, {}).bits >> 4) return false;
  if (fit.reuse == Reuse::kAnyUse) return true;
  if (use_class.kind() == UseClass::Kind::kOneStranded) return use_class.stream == fit.stream;
  return use_class.kind() != UseClass::Kind::kSeveralStranded;
}

void FreeIndex::ChangeTo(const UseClass& use_class, Space space) {
  auto found = lists_.find(use_class);
  if (found == lists_.end()) {
    const Order order = space == Space::kLarge ? order_ : Order::kBySize;
    found = lists_.emplace(use_class, FreeList{use_class, FreeBlocks(order)}).first;
    last_lists_ = {};  // a search may find one list more
  }
  last_changed_ = &found->second;
}

void FreeIndex::FindLists(const UseClass& own, Part part, Space space, Lists& lists) const {
  using Kind = UseClass::Kind;
  lists = {own};
  const auto add = [&](const UseClass& use_class) {
    const auto found = lists_.find(use_class);
    if (found != lists_.end()) lists.lists[lists.count++] = &found->second;
  };
  add({part, space, Kind::kIdle});
  if (own.kind() == Kind::kIdle) return;
  add(own);
  if (IsUnpromised(own.stream)) add({part, space, Kind::kOneStranded, own.stream});
}

Block* FreeIndex::FindAny(const Fit& fit) const {
  Block* first = nullptr;
  for (const auto& [use_class, list] : lists_) {
    if (MayTake(use_class, fit)) first = FirstOf(first, list, fit.bytes);
  }
  return first;
}

uint64_t FreeIndex::LargestBytes() const {
  uint64_t largest = 0;
  for (const auto& [use_class, list] : lists_) {
    if (use_class.part() != kCommonPart) continue;
    list.blocks.VisitFrom(largest, [&](const Block* block) { largest = std::max(largest, block->bytes); });
  }
  return largest;
}

std::map<StreamKey, uint64_t> FreeIndex::StrandedBytes() const {
  std::map<StreamKey, uint64_t> stranded;
  for (const auto& [use_class, list] : lists_) {
    if (use_class.kind() < UseClass::Kind::kOneStranded || use_class.part() != kCommonPart) continue;
    list.blocks.VisitFrom(0, [&](const Block* block) {
      const Uses& uses = block->uses;
      const Use* const first = std::find_if(uses.begin(), uses.end(), [](const Use& use) { return use.stranded(); });
      stranded[first->stream] += block->bytes;
    });
  }
  return stranded;
}

void FreeIndex::DropEmptyClasses() {
  std::erase_if(lists_, [](const auto& entry) { return entry.second.blocks.empty(); });
  last_lists_ = {};
  last_changed_ = nullptr;
}

}  // namespace commpool::internal::engine
