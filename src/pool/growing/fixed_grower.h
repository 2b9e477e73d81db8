// Grows a fixed pool by segments that never move, and gives whole segments back.
#ifndef COMMPOOL_SRC_POOL_GROWING_FIXED_GROWER_H_
#define COMMPOOL_SRC_POOL_GROWING_FIXED_GROWER_H_

#include <optional>

#include "src/pool/growing/grower.h"

namespace commpool::internal {

class FixedGrower final : public Grower {
 public:
  using Grower::Grower;

  // Unpinned segments, the largest index first.
  Result<uint64_t> Release(uint64_t keep_bytes, Wait wait) override;

 private:
  Status Do(const engine::GrowthStep& step, Growth& growth) override COMMPOOL_REQUIRES(segments_.growth());
  // `stream`: that asked; none for reserve().
  Status MakeSegment(const engine::GrowthStep& step, uint64_t bytes, std::optional<StreamKey> stream)
      COMMPOOL_REQUIRES(segments_.growth());
  // What reserve() made serves blocks of every size, and stays: that is what it was asked for.
  void SetReserved(bool reserved);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_FIXED_GROWER_H_
