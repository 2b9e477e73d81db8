// PageMap: finds the segment that holds an address, anywhere inside. A heap has one, for addresses at which no block
// begins. Not thread-safe.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_PAGE_MAP_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_PAGE_MAP_H_

#include <map>

#include "src/library/engine/types.h"

namespace commpool::internal::engine {

struct HeapSegment;

class PageMap {
 public:
  // REQUIRES: the range is not empty, does not wrap around and overlaps no other.
  void Insert(const SegmentRange& range, HeapSegment* segment);
  // REQUIRES: a range starts at `address`.
  void Erase(Address address);
  // Null for addresses that no range holds.
  HeapSegment* Find(Address address) const;

 private:
  struct Entry {
    uint64_t bytes = 0;
    HeapSegment* segment = nullptr;
  };
  std::map<Address, Entry> ranges_;  // by first address
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_PAGE_MAP_H_
