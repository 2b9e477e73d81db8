// Where a communicator puts its windows. It is only metadata; one thread at a time.
//
// It follows NCCL 2.28.9 and 2.30.7, src/dev_runtime.cc and src/allocator.cc. A communicator reserves one range of
// addresses, and memory takes the lowest gap that is large enough. A device reads a record of each window: the lowest
// free record of a page of 64. Pages with free records form a stack. A new page goes on top; so does a full page when
// one of its records is freed.
#pragma once

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

// Owns the gaps of the range and the free records of one communicator, which asks it for each window.
class WindowPlaces {
 public:
  WindowPlaces(uint64_t range_bytes, uint64_t granularity) : range_bytes_(range_bytes), granularity_(granularity) {}

  // Returns nothing if no gap of the range is large enough.
  std::optional<WindowPlaceInRange> Take(uint64_t bytes);
  uint64_t range_bytes() const { return range_bytes_; }
  uint64_t granularity() const { return granularity_; }
  // REQUIRES: Take returned this place.
  void Free(const WindowPlaceInRange& place);

 private:
  std::optional<uint64_t> LowestGap(uint64_t bytes) const;
  uint32_t TakeRecord();
  void FreeRecord(uint32_t record);

  uint64_t range_bytes_;
  uint64_t granularity_;
  std::map<uint64_t, uint64_t> taken_ = {};     // begin -> end
  std::vector<uint64_t> free_records_ = {};     // for each page, one bit for each record
  std::vector<uint32_t> pages_with_free_ = {};  // the top of the stack is the last element
};

}  // namespace commpool::internal::emulated_nccl
