// How a pool falls asleep and wakes: what its modes have in common. Rule 5 holds: quiesce, deregister, unmap; and on
// waking map, then register.
//
// Under the pool's collective lock.
#ifndef COMMPOOL_SRC_POOL_SEGMENTS_SLEEP_H_
#define COMMPOOL_SRC_POOL_SEGMENTS_SLEEP_H_

#include "commpool/status.h"
#include "src/pool/options.h"
#include "src/pool/segments/segment_store.h"

namespace commpool::internal {

// kNotSupported where memory and addresses cannot be parted; kFailedPrecondition where the pool does not serve, a
// stream of its device is captured, or graphs live that captured with it and may hold collectives.
Status CheckMaySleep(const PoolBasis& basis, SegmentStore& segments, const SleepRequest& request);
Status CheckMayWake(const PoolBasis& basis);

// From here on the pool serves nobody, not from threads' caches either; and again.
void BeginSleep(PoolBasis& basis, BlockStore& blocks, const SegmentStore& segments);
void EndSleep(PoolBasis& basis, const SegmentStore& segments);

// Nobody uses the memory any more; what shall be kept is on the host.
Status QuiesceAndKeep(BlockStore& blocks, SegmentStore& segments, const SleepRequest& request)
    COMMPOOL_REQUIRES(segments.growth());

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SEGMENTS_SLEEP_H_
