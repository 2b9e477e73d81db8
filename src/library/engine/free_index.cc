#include "src/library/engine/free_index.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/library/base/check.h"

namespace commpool::internal::engine {

UseClass::Kind FreeIndex::KindOf(const Block& block) {
  using Kind = UseClass::Kind;
  if (block.uses.empty()) return Kind::kIdle;
  bool one = true;
  for (const Use& use : block.uses) one = one && use.stream == block.uses.front().stream;
  if (IsStranded(block)) return one ? Kind::kOneStranded : Kind::kSeveralStranded;
  return one ? Kind::kOneStream : Kind::kSeveral;
}

inline UseClass FreeIndex::ClassOf(const Block& block) {
  using Kind = UseClass::Kind;
  const bool plain = block.uses.size() == 1 && !block.uses.front().stranded();
  const Kind kind = plain ? Kind::kOneStream : KindOf(block);
  const bool one = kind == Kind::kOneStream || kind == Kind::kOneStranded;
  return {block.part, block.segment->space, kind, one ? block.uses.front().stream : StreamKey{0}};
}

bool FreeIndex::MayTake(const UseClass& use_class, const Fit& fit) {
  if (use_class.part != fit.part || use_class.space != fit.space) return false;
  if (fit.reuse == Reuse::kAnyUse) return true;
  if (use_class.kind == UseClass::Kind::kOneStranded) return use_class.stream == fit.stream;
  return use_class.kind != UseClass::Kind::kSeveralStranded;
}

const FreeList* FreeIndex::ListOf(const UseClass& use_class) const {
  const auto found = lists_.find(use_class);
  return found == lists_.end() ? nullptr : &found->second;
}

// A block mostly comes to the list that another has just left: the one that it was cut from, or merges with.
void FreeIndex::Insert(Block* block) {
  const UseClass use_class = ClassOf(*block);
  if (last_changed_ == nullptr || last_changed_->use_class != use_class) {
    const Order order = use_class.space == Space::kLarge ? order_ : Order::kBySize;
    const auto [place, added] = lists_.try_emplace(use_class, FreeList{use_class, FreeBlocks(order)});
    if (added) last_lists_ = {};
    last_changed_ = &place->second;
  }
  block->free_list = last_changed_;
  last_changed_->blocks.Insert(block);
  ++count_;
}

void FreeIndex::Erase(Block* block) {
  FreeList* const list = std::exchange(block->free_list, nullptr);
  COMMPOOL_CHECK(list != nullptr && list->blocks.Erase(block), "a free block is missing from the free index");
  last_changed_ = list;
  --count_;
}

bool FreeIndex::Contains(Block* block) const {
  const FreeList* const list = ListOf(ClassOf(*block));
  return list != nullptr && block->free_list == list && list->blocks.Contains(*block);
}

inline Block* FreeIndex::FirstOf(Block* first, const FreeList* list, uint64_t bytes) {
  Block* const other = list == nullptr ? nullptr : list->blocks.FirstFrom(bytes);
  if (first == nullptr || other == nullptr) return first == nullptr ? other : first;
  return list->blocks.IsBefore(*other, *first) ? other : first;
}

inline const FreeIndex::Lists& FreeIndex::ListsFor(const Fit& fit) const {
  Lists& lists = last_lists_[static_cast<size_t>(fit.space)];
  if (lists.known && lists.part == fit.part && lists.stream == fit.stream) return lists;
  lists = {
      fit.part,
      fit.stream,
      true,
      ListOf({fit.part, fit.space}),
      ListOf({fit.part, fit.space, UseClass::Kind::kOneStream, fit.stream}),
      IsUnpromised(fit.stream) ? ListOf({fit.part, fit.space, UseClass::Kind::kOneStranded, fit.stream}) : nullptr};
  return lists;
}

Block* FreeIndex::Find(const Fit& fit) const {
  if (fit.reuse < Reuse::kAnyStream) {
    const Lists& lists = ListsFor(fit);
    Block* const idle = FirstOf(nullptr, lists.idle, fit.bytes);
    if (fit.reuse == Reuse::kIdle) return idle;
    return FirstOf(FirstOf(idle, lists.own, fit.bytes), lists.stranded, fit.bytes);
  }
  Block* first = nullptr;
  for (const auto& [use_class, list] : lists_) {
    if (MayTake(use_class, fit)) first = FirstOf(first, &list, fit.bytes);
  }
  return first;
}

uint64_t FreeIndex::LargestBytes() const {
  uint64_t largest = 0;
  for (const auto& [use_class, list] : lists_) {
    if (use_class.part != kCommonPart) continue;
    list.blocks.VisitFrom(largest, [&](const Block* block) { largest = std::max(largest, block->bytes); });
  }
  return largest;
}

std::map<StreamKey, uint64_t> FreeIndex::StrandedBytes() const {
  std::map<StreamKey, uint64_t> stranded;
  for (const auto& [use_class, list] : lists_) {
    const bool counts =
        use_class.kind == UseClass::Kind::kOneStranded || use_class.kind == UseClass::Kind::kSeveralStranded;
    if (!counts || use_class.part != kCommonPart) continue;
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
