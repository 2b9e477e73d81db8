// What comes before an operation, as the submissions so far show. It is known at submission; a vector clock only at the
// run.
//
// The stream-ordered allocator uses it to reuse memory. It may know less than is true, never more. It is a value.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace commpool::internal::emulator {

// Owns, for each stream, the last operation that comes before. Operations and events carry it; the scheduler fills it.
class StreamReach {
 public:
  // Sets the last operation of a stream that comes before, by its number in the process.
  void Set(uint64_t stream, uint64_t sequence);
  void Join(const StreamReach& other);
  bool Covers(uint64_t stream, uint64_t sequence) const;

 private:
  std::vector<std::pair<uint64_t, uint64_t>> entries_;  // (stream, sequence), sorted by stream
};

}  // namespace commpool::internal::emulator
