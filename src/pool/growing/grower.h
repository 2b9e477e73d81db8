// How a pool that may grow inside an allocation makes room, and gives memory back: fixed pools by whole segments,
// expandable ones by pages that move.
#ifndef COMMPOOL_SRC_POOL_GROWING_GROWER_H_
#define COMMPOOL_SRC_POOL_GROWING_GROWER_H_

#include <cstdint>

#include "commpool/status.h"
#include "src/engine/size_policy.h"
#include "src/pool/options.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

// How hard growth tries.
enum class Effort {
  kUsual,     // what is cheap
  kReserve,   // the same, for reserve(): what it makes stays until somebody trims
  kPressure,  // free pages move whatever it costs, after a wait where one is needed
};

// Whether memory that streams may still use is waited for.
enum class Wait { kNo, kYes };

class Grower {
 public:
  virtual ~Grower() = default;

  // Makes room for the request, unless another thread's growth has meanwhile. kOutOfMemory where there is none. What
  // is made for a graph's part is the graph's; nothing moves and nothing goes then.
  virtual Status Grow(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part = engine::kCommonPart) = 0;
  // Whether growth under pressure takes the pool's own free memory along: then it is not given back first.
  virtual bool MovesPages() const { return false; }
  // Gives free memory back to the driver until at most `keep_bytes` are reserved; returns the bytes given back.
  virtual Result<uint64_t> Release(uint64_t keep_bytes, Wait wait) = 0;
};

// What the engines of growing pools have in common; segments and pages are multiples of `granularity`.
engine::EngineOptions GrowingEngineOptions(const PoolConfiguration& configuration, uint64_t granularity);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_GROWER_H_
