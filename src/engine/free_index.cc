#include "src/engine/free_index.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/base/check.h"
#include "src/engine/heap_segment.h"

namespace commpool::internal::engine {
FreeRank FreeIndex::RankOf(const Block& block) { return {block.bytes, block.segment->index, block.offset}; }

UseClass FreeIndex::ClassOf(const Block& block) {
  UseClass use_class{block.part, block.segment->space};
  if (block.uses.empty()) return use_class;
  const StreamKey stream = block.uses.front().stream;
  const bool one =
      std::all_of(block.uses.begin(), block.uses.end(), [&](const Use& use) { return use.stream == stream; });
  use_class.kind = one ? UseClass::Kind::kOneStream : UseClass::Kind::kSeveral;
  if (one) use_class.stream = stream;
  if (IsStranded(block)) use_class.kind = one ? UseClass::Kind::kOneStranded : UseClass::Kind::kSeveralStranded;
  return use_class;
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

void FreeIndex::Insert(Block* block) {
  const UseClass use_class = ClassOf(*block);
  auto [place, added] = lists_.try_emplace(use_class, use_class);
  if (added) last_lists_ = {};
  block->free_list = &place->second;
  block->free_list->blocks.Insert(RankOf(*block), block);
  ++count_;
}

void FreeIndex::Erase(Block* block) {
  FreeList* const list = std::exchange(block->free_list, nullptr);
  COMMPOOL_CHECK(list != nullptr && list->blocks.Erase(RankOf(*block)), "a free block is missing from the free index");
  --count_;
}

void FreeIndex::Replace(FreeList* list, const FreeRank& was, Block* now) {
  if (list->use_class == ClassOf(*now)) {
    COMMPOOL_CHECK(list->blocks.Replace(was, RankOf(*now), now), "a free block is missing from the free index");
    now->free_list = list;
    return;
  }
  COMMPOOL_CHECK(list->blocks.Erase(was), "a free block is missing from the free index");
  --count_;
  Insert(now);
}

bool FreeIndex::Contains(Block* block) const {
  const FreeList* const list = ListOf(ClassOf(*block));
  const Entry* const entry = list == nullptr ? nullptr : list->blocks.LowerBound(RankOf(*block));
  return entry != nullptr && entry->block == block && block->free_list == list;
}

const FreeIndex::Entry* FreeIndex::Better(const Entry* a, const Entry* b, Choice choice) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  if (choice != Choice::kFirstFit) return b->key < a->key ? b : a;
  if (a->key.segment != b->key.segment) return b->key.segment < a->key.segment ? b : a;
  return b->key.offset < a->key.offset ? b : a;
}

const FreeIndex::Entry* FreeIndex::ChooseFrom(const FreeList* list, const Fit& fit) {
  if (list == nullptr || list->blocks.empty()) return nullptr;
  if (fit.choice != Choice::kFirstFit) return list->blocks.LowerBound({fit.bytes});
  const Entry* chosen = nullptr;
  list->blocks.VisitFrom({fit.bytes}, [&](const Entry& entry) { chosen = Better(chosen, &entry, fit.choice); });
  return chosen;
}

const FreeIndex::Lists& FreeIndex::ListsFor(const Fit& fit) const {
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

const FreeIndex::Entry* FreeIndex::FindEntry(const Fit& fit) const {
  if (fit.reuse < Reuse::kAnyStream) {
    const Lists& lists = ListsFor(fit);
    const Entry* const idle = ChooseFrom(lists.idle, fit);
    if (fit.reuse == Reuse::kIdle) return idle;
    const Entry* const own = Better(ChooseFrom(lists.own, fit), idle, fit.choice);
    return lists.stranded == nullptr ? own : Better(ChooseFrom(lists.stranded, fit), own, fit.choice);
  }
  const Entry* best = nullptr;
  for (const auto& [use_class, list] : lists_) {
    if (!MayTake(use_class, fit)) continue;
    best = Better(best, ChooseFrom(&list, fit), fit.choice);
  }
  return best;
}

Block* FreeIndex::Find(const Fit& fit) const {
  const Entry* const found = FindEntry(fit);
  return found == nullptr ? nullptr : found->block;
}

uint64_t FreeIndex::LargestBytes() const {
  uint64_t largest = 0;
  for (const auto& [use_class, list] : lists_) {
    if (use_class.part != kCommonPart || list.blocks.empty()) continue;
    largest = std::max(largest, list.blocks.Last()->key.bytes);
  }
  return largest;
}

std::map<StreamKey, uint64_t> FreeIndex::StrandedBytes() const {
  std::map<StreamKey, uint64_t> stranded;
  for (const auto& [use_class, list] : lists_) {
    const bool counts =
        use_class.kind == UseClass::Kind::kOneStranded || use_class.kind == UseClass::Kind::kSeveralStranded;
    if (!counts || use_class.part != kCommonPart) continue;
    list.blocks.VisitFrom({}, [&](const Entry& entry) {
      const Uses& uses = entry.block->uses;
      const Use* const first = std::find_if(uses.begin(), uses.end(), [](const Use& use) { return use.stranded(); });
      stranded[first->stream] += entry.block->bytes;
    });
  }
  return stranded;
}

void FreeIndex::DropEmptyClasses() {
  std::erase_if(lists_, [](const auto& entry) { return entry.second.blocks.empty(); });
  last_lists_ = {};
}

}  // namespace commpool::internal::engine
