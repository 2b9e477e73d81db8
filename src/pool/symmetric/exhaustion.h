// What a full symmetric pool answers. Only what follows from the pool's sequence of calls: the same on every rank, so
// nothing of frees, which happen at rank-local moments.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_EXHAUSTION_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_EXHAUSTION_H_

#include <cstdint>
#include <string>

#include "src/engine/symmetric_engine.h"

namespace commpool::internal {

struct ExhaustedPool {
  uint64_t requested_bytes = 0;
  uint64_t needed_bytes = 0;  // the block that would serve the request: what a reserve must ask for
  uint64_t reserved_bytes = 0;
  uint64_t largest_free_block = 0;
  uint64_t largest_segment = 0;
  engine::FreeOrder frees = engine::FreeOrder::kDeferred;
};

// "has no free block of 3 MiB: ... On every rank: reserve(3145728)", and reclaim() where one could ever do.
std::string Describe(const ExhaustedPool& exhaustion);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_EXHAUSTION_H_
