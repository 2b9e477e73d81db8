// Copies between a device and what is kept on the host: several at a time, so that each engine finds its next one
// waiting, and a file is read or written while others are copied. One thread at a time.
#ifndef COMMPOOL_SRC_POOL_BLOCKS_HOST_COPIES_H_
#define COMMPOOL_SRC_POOL_BLOCKS_HOST_COPIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "commpool/status.h"
#include "src/base/progress.h"
#include "src/driver/handles.h"
#include "src/pool/basis/pool_basis.h"
#include "src/pool/blocks/kept_memory.h"

namespace commpool::internal {

class HostCopies {
 public:
  enum class Direction { kToHost, kToDevice };
  struct Run {
    CUdeviceptr device = 0;
    KeptMemory* memory = nullptr;
    uint64_t offset = 0;  // there; in a file as the device's address is to KeptFile::kAlignment
    uint64_t bytes = 0;
  };

  explicit HostCopies(const PoolBasis& basis) : basis_(basis) {}

  // What follows copies so many bytes, as a user is told who waits: "keeping".
  void Begin(const char* what, uint64_t bytes) { progress_.emplace(basis_.title + ": " + what, bytes); }
  // Starts to copy, after what has to end first. Where it fails those before it run: Await() waits for them. REQUIRES:
  // the device's context is current, and the memory lives until then.
  Status Start(Run run, Direction direction);
  // Waits for all, and returns the first failure: that of starting, where it is one. Nothing runs on.
  Status Await(Status started);

 private:
  static constexpr size_t kLanes = 4;

  struct Lane {
    CopyStream stream;
    PinnedMemory staging;  // of what a file holds
    std::optional<Run> running;
    Direction direction = Direction::kToHost;
  };

  Status StartPart(const Run& part, Direction direction);
  // What runs in the lane is done.
  Status Finish(Lane& lane);

  const PoolBasis& basis_;
  std::array<Lane, kLanes> lanes_;  // while copies run
  size_t turn_ = 0;
  std::optional<Progress> progress_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_HOST_COPIES_H_
