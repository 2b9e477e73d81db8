// The free blocks, by who may still use them and then by size: finds the best fit for a stream in O(log n).
//
// Not thread-safe. A block's bytes, place and uses must not change while it is in the index.
#ifndef COMMPOOL_SRC_ENGINE_FREE_INDEX_H_
#define COMMPOOL_SRC_ENGINE_FREE_INDEX_H_

#include <cstdint>
#include <map>

#include "src/engine/block_set.h"
#include "src/engine/types.h"

namespace commpool::internal::engine {

// Whose free memory may serve a request.
enum class Reuse {
  kIdle,        // blocks that nobody uses any more
  kSameStream,  // also blocks that this stream used last
  kAnyStream,   // also blocks that other streams used: the caller waits for them on the device
};

// What free memory is looked for.
struct Fit {
  uint64_t bytes = 0;
  StreamKey stream = 0;
  Reuse reuse = Reuse::kSameStream;
  Space space = Space::kLarge;
  Part part = kCommonPart;
  Choice choice = Choice::kBestFit;
};

class FreeIndex {
 public:
  void Insert(Block* block);
  // REQUIRES: the block is in the index.
  void Erase(Block* block);

  // The block that the choice asks for; null where none is large enough. A first fit looks at all that are.
  Block* Find(const Fit& fit) const;

  uint64_t LargestBytes() const;
  uint64_t count() const { return count_; }
  bool Contains(Block* block) const;

  // Forgets streams that no block names any more.
  void DropEmptyClasses();

 private:
  // Blocks of one owner and space that the same streams may take without a wait: anyone, one stream, or nobody.
  struct UseClass {
    Part part = kCommonPart;
    Space space = Space::kLarge;
    enum class Extent : uint8_t { kPart, kWholeSegment } extent = Extent::kPart;
    enum class Kind : uint8_t { kIdle, kOneStream, kSeveral } kind = Kind::kIdle;
    StreamKey stream = 0;
    friend auto operator<=>(const UseClass&, const UseClass&) = default;
  };
  static UseClass ClassOf(const Block& block);
  Block* FindIn(UseClass::Extent extent, const Fit& fit) const;
  static Block* Better(Block* a, Block* b, Choice choice);
  static Block* ChooseFrom(const BlockSet<BySize>& blocks, const Fit& fit);
  Block* ChooseFrom(const UseClass& use_class, const Fit& fit) const;

  std::map<UseClass, BlockSet<BySize>> classes_;
  SpareNodes spare_;
  uint64_t count_ = 0;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_FREE_INDEX_H_
