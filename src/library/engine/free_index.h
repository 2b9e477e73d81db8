// FreeIndex: the free blocks, by who may still use them, then in the order in which they serve. Finds the block that
// serves a stream in O(log n). The heap owns it.
//
// Not thread-safe. A block's bytes, place and uses must not change while it is in the index.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_FREE_INDEX_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_FREE_INDEX_H_

#include <array>
#include <cstdint>
#include <map>

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
// because no other stream may take them even after a wait.
struct UseClass {
  Part part = kCommonPart;
  Space space = Space::kLarge;
  enum class Kind : uint8_t { kIdle, kOneStream, kSeveral, kOneStranded, kSeveralStranded } kind = Kind::kIdle;
  StreamKey stream = 0;
  // All but the stream in two words: classes are compared in every search.
  uint64_t bits() const { return static_cast<uint64_t>(space) << 8 | static_cast<uint64_t>(kind); }
  friend bool operator<(const UseClass& a, const UseClass& b) {
    if (a.bits() != b.bits()) return a.bits() < b.bits();
    return a.part != b.part ? a.part < b.part : a.stream < b.stream;
  }
  friend bool operator==(const UseClass&, const UseClass&) = default;
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

  // The first that is large enough; null where none is.
  Block* Find(const Fit& fit) const;

  uint64_t LargestBytes() const;
  // The bytes of stranded blocks of the common part, by stream. A block that several streams strand counts for the
  // first of them.
  std::map<StreamKey, uint64_t> StrandedBytes() const;
  uint64_t count() const { return count_; }
  bool Contains(Block* block) const;

  // Forgets streams that no block names any more.
  void DropEmptyClasses();

 private:
  // The lists that a search for one stream looks at: idle memory and the stream's own. Null where there is none.
  struct Lists {
    Part part = kCommonPart;
    StreamKey stream = 0;
    bool known = false;
    const FreeList* idle = nullptr;
    const FreeList* own = nullptr;
    const FreeList* stranded = nullptr;  // memory that this stream itself has stranded
  };

  static UseClass ClassOf(const Block& block);
  static UseClass::Kind KindOf(const Block& block);
  // Whether the request may be served from the list after a wait.
  static bool MayTake(const UseClass& use_class, const Fit& fit);
  const FreeList* ListOf(const UseClass& use_class) const;
  // The first of this block and those of the list that have so many bytes.
  static Block* FirstOf(Block* first, const FreeList* list, uint64_t bytes);
  const Lists& ListsFor(const Fit& fit) const;

  const Order order_;                             // of large blocks
  std::map<UseClass, FreeList> lists_;            // few
  mutable std::array<Lists, 2> last_lists_ = {};  // by space: the lists of the last search
  FreeList* last_changed_ = nullptr;
  uint64_t count_ = 0;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_FREE_INDEX_H_
