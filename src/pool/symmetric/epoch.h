// The beginning of an epoch of a symmetric pool: from here on its ranks are those of one home, and its sequence of
// calls is new. Ranks that create the pool, and have no memory yet, meet in one call those that rehome it and keep
// theirs: who has fewer segments makes the rest.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_EPOCH_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_EPOCH_H_

#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/engine/symmetric_engine.h"
#include "src/pool/segments/segment_store.h"
#include "src/pool/symmetric/collective.h"
#include "src/pool/symmetric/symmetric_registrar.h"

namespace commpool::internal {

// REQUIRES: the pool's collective lock, as long as it lives.
class Epoch {
 public:
  Epoch(const PoolBasis& basis, BlockStore& blocks, SegmentStore& segments, Collective& collective,
        SymmetricRegistrar& registrar)
      : basis_(basis), blocks_(blocks), segments_(segments), collective_(collective), registrar_(registrar) {}

  // Collective over home, which the collective's channel and the registrar are of already. Returns a number that its
  // ranks share. Where it fails this rank's memory is as before, and registered with nobody.
  Result<uint64_t> Begin(const Status& readiness) COMMPOOL_REQUIRES(segments_.collective());

 private:
  // The segments, smallest number first, get the numbers that they have on a rank that makes them now.
  Status Renumber();
  Status BeginEmpty() COMMPOOL_REQUIRES(segments_.collective());
  // `all`: the bytes of every segment of the pool, in order.
  Status MakeAndRegister(const std::vector<uint64_t>& all) COMMPOOL_REQUIRES(segments_.collective());
  Status MakeMissing(const std::vector<uint64_t>& all);
  std::vector<SegmentToRegister> AllSegments() const;
  void Adopt() COMMPOOL_REQUIRES(segments_.collective());

  engine::SymmetricEngine& engine() const COMMPOOL_REQUIRES(blocks_.mutex()) {
    return blocks_.engine<engine::SymmetricEngine>();
  }

  const PoolBasis& basis_;
  BlockStore& blocks_;
  SegmentStore& segments_;
  Collective& collective_;
  SymmetricRegistrar& registrar_;
  NewSegments made_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_EPOCH_H_
