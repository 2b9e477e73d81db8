// HeapSegment: a segment as the heap sees it, a contiguous range that blocks cover without gaps. The heap owns it. Not
// thread-safe.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_HEAP_SEGMENT_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_HEAP_SEGMENT_H_

#include <cstdint>

#include "src/library/engine/sorted_blocks.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

struct HeapSegment {
  SegmentIndex index = 0;
  SegmentRange range;
  Block* first = nullptr;
  Space space = Space::kLarge;
  uint64_t held_blocks = 0;   // live, awaiting fences, deferred, moving, or free memory of a graph
  uint64_t last_touched = 0;  // rises with every block that is closed
  // By offset; empty unless `indexed`. In a segment with few blocks a walk finds the block of an address soon enough,
  // and it is seldom asked for, while every cut and merge would have to change the index.
  SortedBlocks<uint64_t> blocks;
  bool indexed = true;
};

inline Address AddressOf(const Block& block) { return block.segment->range.address + block.offset; }

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_HEAP_SEGMENT_H_
