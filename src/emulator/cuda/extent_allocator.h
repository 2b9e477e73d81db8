// Hands out pieces of a range of bytes. It takes the best fit, and the lowest among equals; freed pieces merge with
// their neighbours. It is not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace commpool::internal::emulator {

// Owns the list of free pieces of one memory bank, which calls it.
class ExtentAllocator {
 public:
  ExtentAllocator(uint64_t start, uint64_t bytes);

  // Returns the offset of a free piece, or nothing if none is large enough. REQUIRES: bytes > 0.
  std::optional<uint64_t> Allocate(uint64_t bytes);
  // REQUIRES: Allocate returned this piece.
  void Free(uint64_t offset, uint64_t bytes);

 private:
  void Insert(uint64_t offset, uint64_t bytes);
  void Erase(std::map<uint64_t, uint64_t>::iterator piece);

  std::map<uint64_t, uint64_t> free_;                  // offset -> bytes
  std::set<std::pair<uint64_t, uint64_t>> free_size_;  // the same, as (bytes, offset)
};

}  // namespace commpool::internal::emulator
