#include "src/library/engine/page_map.h"

#include <iterator>

#include "src/library/base/bytes.h"
#include "src/library/base/check.h"

namespace commpool::internal::engine {

void PageMap::Insert(const SegmentRange& range, HeapSegment* segment) {
  COMMPOOL_CHECK(range.bytes > 0 && CheckedAdd(range.address, range.bytes - 1), "a segment is empty or wraps around");
  const auto next = ranges_.lower_bound(range.address);
  COMMPOOL_CHECK(next == ranges_.end() || next->first - range.address >= range.bytes, "two segments overlap");
  if (next != ranges_.begin()) {
    const auto& [address, entry] = *std::prev(next);
    COMMPOOL_CHECK(range.address - address >= entry.bytes, "two segments overlap");
  }
  ranges_.emplace_hint(next, range.address, Entry{range.bytes, segment});
}

void PageMap::Erase(Address address) {
  COMMPOOL_CHECK(ranges_.erase(address) == 1, "no segment starts at the address");
}

HeapSegment* PageMap::Find(Address address) const {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return nullptr;
  const auto& [first, entry] = *std::prev(after);
  return address - first < entry.bytes ? entry.segment : nullptr;
}

}  // namespace commpool::internal::engine
