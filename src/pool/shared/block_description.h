// A block as others see it: adapters, snapshots, and whoever holds a pointer and asks whose it is.
#ifndef COMMPOOL_SRC_POOL_SHARED_BLOCK_DESCRIPTION_H_
#define COMMPOOL_SRC_POOL_SHARED_BLOCK_DESCRIPTION_H_

#include <cstdint>

#include "src/engine/types.h"

namespace commpool::internal {

enum class BlockState {
  kLive,
  kFree,
  kPending,   // freed, and not reusable yet: another stream's work, or another rank's free
  kCached,    // freed, in a thread's cache
  kUnmapped,  // addresses without memory
};

struct BlockDescription {
  engine::SegmentRange range;
  uint64_t requested_bytes = 0;  // of a live block
  engine::SegmentIndex segment = 0;
  engine::StreamKey stream = 0;
  BlockState state = BlockState::kFree;
  uint64_t pool = 0;  // its handle; 0 once that has ended
  int device = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_BLOCK_DESCRIPTION_H_
