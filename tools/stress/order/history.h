// What has happened to memory lately, for those who read a failure. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace commpool::cli::stress_order {

struct MemoryRange {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;

  bool Overlaps(const MemoryRange& other) const {
    return address < other.address + other.bytes && other.address < address + bytes;
  }
};

// The ranges that a text names as "0xBEGIN to 0xEND", as the race checker writes them.
std::vector<MemoryRange> RangesIn(const std::string& text);

class History {
 public:
  void Note(uint64_t step, const MemoryRange& range, std::string text);
  // The last notes about memory in the range, in order.
  std::vector<std::string> About(const MemoryRange& range) const;

 private:
  struct Entry {
    uint64_t step;
    MemoryRange range;
    std::string text;
  };

  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
};

}  // namespace commpool::cli::stress_order
