// SymmetricRegistrar: register_with and deregister of symmetric pools, and what ranks must agree on before a call to
// NCCL.
//
// Call it under the pool's collective lock.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_REGISTRAR_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_REGISTRAR_H_

#include <nccl.h>

#include <vector>

#include "commpool/status.h"
#include "src/pool/segments/segment_store.h"
#include "src/pool/symmetric/collective.h"
#include "src/registration/communicator.h"
#include "src/registration/domain.h"

namespace commpool::internal {

// SymmetricMode owns one and calls it in register_with, deregister, and at the beginning of an epoch.
class SymmetricRegistrar {
 public:
  SymmetricRegistrar(const PoolBasis& basis, SegmentStore& segments, Collective& collective, const Communicator& home)
      : basis_(basis), segments_(segments), collective_(collective), home_(home), domains_(home.ranks) {}

  // Makes the first registration of an epoch. Collective over home where the pool has segments.
  Status AddHome(const std::vector<SegmentToRegister>& segments) COMMPOOL_REQUIRES(segments_.collective());
  Status RegisterWith(ncclComm_t communicator) COMMPOOL_REQUIRES(segments_.collective());
  Status Deregister(ncclComm_t communicator) COMMPOOL_REQUIRES(segments_.collective());
  // kDisagreement where a rank has abandoned a registration that another rank has: growth would wait for it inside
  // NCCL.
  ClaimJudge JudgeHeld() COMMPOOL_REQUIRES(segments_.collective());

 private:
  // What this rank tells the others about a caller's communicator.
  Result<Communicator> Examine(ncclComm_t handle) const;
  DomainClaim ClaimOf(const Communicator& communicator) const;
  ClaimJudge JudgePassedByAll() COMMPOOL_REQUIRES(segments_.collective());
  // Every rank calls it, even one that passed no communicator. The members of each new communicator meet over it, and
  // all ranks number the new ones.
  Status Meet(const DomainClaim& mine, Communicator* communicator) COMMPOOL_REQUIRES(segments_.collective());

  const PoolBasis& basis_;
  SegmentStore& segments_;
  Collective& collective_;
  const Communicator& home_;
  DomainTable domains_ COMMPOOL_GUARDED_BY(segments_.collective());
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_REGISTRAR_H_
