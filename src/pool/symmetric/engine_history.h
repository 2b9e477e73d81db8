// What ranks compare of their pools: the options that have to be the same, and the calls of the sequence by name.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_ENGINE_HISTORY_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_ENGINE_HISTORY_H_

#include <string>
#include <utility>
#include <vector>

#include "src/engine/symmetric_engine.h"
#include "src/pool/blocks/block_store.h"
#include "src/pool/options.h"
#include "src/registration/agreement.h"
#include "src/registration/divergence.h"

namespace commpool::internal {

// What placement and growth depend on: where it differed, the ranks' offsets and decisions would part.
std::string DescribeSharedOptions(const PoolConfiguration& configuration);

// The entry of the sequence that a collective call leaves.
engine::SequenceCall SequenceCallOf(CollectiveCall call);

// The last of an engine's first `count` calls, for a rank that differs.
class EngineHistory final : public CallHistory {
 public:
  EngineHistory(const BlockStore& blocks, uint64_t count, Divergence& divergence)
      : blocks_(blocks), count_(count), divergence_(divergence) {}
  std::vector<engine::SequenceEntry> LastCalls() const override;
  void NoteDivergence(const Status& difference) const override { divergence_.Note(difference); }

 private:
  const BlockStore& blocks_;
  const uint64_t count_;
  Divergence& divergence_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_ENGINE_HISTORY_H_
