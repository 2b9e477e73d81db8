// What comes before an operation, by the submissions so far. It is known at submission; a vector clock only at the run.
//
// The stream-ordered allocator goes by it to reuse memory. It may know less than is true, never more. Values.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_STREAM_REACH_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_STREAM_REACH_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace commpool::internal::emulator {

class StreamReach {
 public:
  // The last operation of a stream, by its sequence in the process, that comes before.
  void Set(uint64_t stream, uint64_t sequence);
  void Join(const StreamReach& other);
  bool Covers(uint64_t stream, uint64_t sequence) const;

 private:
  std::vector<std::pair<uint64_t, uint64_t>> entries_;  // (stream, sequence), sorted by stream
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_STREAM_REACH_H_
