// FreeIndex: the free blocks, by who may still use them, then in the order in which they serve. Finds the block that
// serves a stream in O(log n). The heap owns it.
//
// Not thread-safe. A block's bytes, place and uses must not change while it is in the index.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "src/library/base/check.h"
#include "src/library/engine/free_blocks.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

// Whose free memory may serve a request.
enum class Reuse {
  kIdle,        // blocks that nobody uses any more
  kSameStream,  // also blocks that this stream used last
  kAnyStream,   // also blocks that other streams used: the caller waits for them on the device
  kAnyUse,      // also stranded blocks, so that only the calls decide which block serves: the caller waits on the host
};

// What free memory a request needs.
struct Fit {
  uint64_t bytes = 0;
  StreamKey stream = 0;
  Reuse reuse = Reuse::kSameStream;
  Space space = Space::kLarge;
  Part part = kCommonPart;
};

// Names the list that a free block belongs to. All blocks of a list belong to one part and one space, and the same
// streams may take them without a wait: every stream, one stream, or none. Stranded blocks have lists of their own,
// because no other stream may take them even after a wait. Two words: classes are compared in every search.
struct UseClass {
  enum class Kind : uint8_t { kIdle, kOneStream, kSeveral, kOneStranded, kSeveralStranded };

  UseClass() = default;
  UseClass(Part of, Space in, Kind is, StreamKey by = 0)
      : bits(of << 8 | static_cast<uint64_t>(in) << 4 | static_cast<uint64_t>(is)), stream(by) {}

  Kind kind() const { return static_cast<Kind>(bits & 15); }
  Part part() const { return bits >> 8; }
  friend auto operator<=>(const UseClass&, const UseClass&) = default;

  uint64_t bits = 0;
  StreamKey stream = 0;
};

// The free blocks of a class.
struct FreeList {
  const UseClass use_class;
  FreeBlocks blocks;
};

class FreeIndex {
 public:
  // `choice`: which of several large blocks to take; of small ones always the best fit.
  explicit FreeIndex(Choice choice) : order_(choice == Choice::kFirstFit ? Order::kByPlace : Order::kBySize) {}

  void Insert(Block* block);
  // REQUIRES: the block is in the index.
  void Erase(Block* block);
  // The block leaves, and what is left of it, with the same uses, takes its place. `rest` may be the block itself,
  // which has fewer bytes now. REQUIRES: the block is in the index.
  void Shrink(Block* block, Block* rest);

  // The first that is large enough; null where none is.
  Block* Find(const Fit& fit) const;

  uint64_t LargestBytes() const;
  // The bytes of stranded blocks of the common part, by stream. A block that several streams strand counts for the
  // first of them.
  std::map<StreamKey, uint64_t> StrandedBytes() const;
  // The list that a free block with these uses belongs to.
  static UseClass ClassOf(const Block& block);
  const std::map<UseClass, FreeList>& lists() const { return lists_; }

  // Forgets streams that no block names any more.
  void DropEmptyClasses();

 private:
  // The lists that a search for one stream looks at: idle memory; and of its own, what it has stranded too.
  struct Lists {
    UseClass own = {};  // whose lists they are
    std::array<const FreeList*, 3> lists = {};
    size_t count = 0;
  };

  static UseClass ClassOfSeveral(const Block& block);
  // Whether the request may be served from the list after a wait.
  static bool MayTake(const UseClass& use_class, const Fit& fit);
  // The first of this block and those of the list that have so many bytes.
  static Block* FirstOf(Block* first, const FreeList& list, uint64_t bytes);
  void FindLists(const UseClass& own, Part part, Space space, Lists& lists) const;
  Block* FindAny(const Fit& fit) const;
  void ChangeTo(const UseClass& use_class, Space space);

  const Order order_;                             // of large blocks
  std::map<UseClass, FreeList> lists_;            // few
  mutable std::array<Lists, 2> last_lists_ = {};  // by space: the lists of the last search
  FreeList* last_changed_ = nullptr;
};

// What each cut and merge calls is inlined there.
inline UseClass FreeIndex::ClassOf(const Block& block) {
  const bool plain = block.uses.size() == 1 && !IsUnpromised(block.uses.front().stream);
  if (!plain) return ClassOfSeveral(block);
  return {block.part, block.segment->space, UseClass::Kind::kOneStream, block.uses.front().stream};
}

// A block mostly comes to the list that another has just left: the one that it was cut from, or merges with.
inline void FreeIndex::Insert(Block* block) {
  const UseClass use_class = ClassOf(*block);
  if (last_changed_ == nullptr || last_changed_->use_class != use_class) ChangeTo(use_class, block->segment->space);
  block->free_list = last_changed_;
  last_changed_->blocks.Insert(block);
}

inline void FreeIndex::Erase(Block* block) {
  last_changed_ = block->free_list;
  const bool erased = last_changed_->blocks.Erase(block);
  COMMPOOL_CHECK(erased, "a free block is missing from the free index");
}

inline void FreeIndex::Shrink(Block* block, Block* rest) {
  last_changed_ = rest->free_list = block->free_list;
  last_changed_->blocks.Shrink(block, rest);
}

inline Block* FreeIndex::FirstOf(Block* first, const FreeList& list, uint64_t bytes) {
  Block* const other = list.blocks.FirstFrom(bytes);
  if (first == nullptr || other == nullptr) return first == nullptr ? other : first;
  return list.blocks.IsBefore(*other, *first) ? other : first;
}

inline Block* FreeIndex::Find(const Fit& fit) const {
  if (fit.reuse >= Reuse::kAnyStream) return FindAny(fit);
  const bool idle = fit.reuse == Reuse::kIdle;
  const UseClass own(fit.part, fit.space, idle ? UseClass::Kind::kIdle : UseClass::Kind::kOneStream,
                     idle ? 0 : fit.stream);
  Lists& lists = last_lists_[static_cast<size_t>(fit.space)];
  if (lists.count == 0 || lists.own != own) FindLists(own, fit.part, fit.space, lists);
  Block* first = nullptr;
  for (size_t place = 0; place < lists.count; ++place) first = FirstOf(first, *lists.lists[place], fit.bytes);
  return first;
}

}  // namespace commpool::internal::engine
