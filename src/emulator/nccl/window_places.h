// Where a communicator puts its windows: metadata only; one thread at a time.
//
// NCCL 2.28.9 and 2.30.7, src/dev_runtime.cc and src/allocator.cc: a communicator reserves one range of addresses, in
// which memory takes the lowest gap that holds it. What a device reads of a window is a record: the lowest free one of
// a page of 64. Pages with free records form a stack: a new page comes on its top, and so does a full one that a record
// comes back to.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_WINDOW_PLACES_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_WINDOW_PLACES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace commpool::internal::emulated_nccl {

struct WindowPlaceInRange {
  uint64_t offset = 0;  // in the communicator's range of addresses
  uint64_t bytes = 0;
  uint32_t record = 0;
};

class WindowPlaces {
 public:
  WindowPlaces(uint64_t range_bytes, uint64_t granularity) : range_bytes_(range_bytes), granularity_(granularity) {}

  // Nothing where no gap of the range is large enough.
  std::optional<WindowPlaceInRange> Take(uint64_t bytes);
  uint64_t granularity() const { return granularity_; }
  // REQUIRES: it is taken.
  void Free(const WindowPlaceInRange& place);

 private:
  std::optional<uint64_t> LowestGap(uint64_t bytes) const;
  uint32_t TakeRecord();
  void FreeRecord(uint32_t record);

  uint64_t range_bytes_;
  uint64_t granularity_;
  std::map<uint64_t, uint64_t> taken_ = {};     // ends, by offsets
  std::vector<uint64_t> free_records_ = {};     // of each page, a bit for each
  std::vector<uint32_t> pages_with_free_ = {};  // the top of the stack is last
};

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_WINDOW_PLACES_H_
