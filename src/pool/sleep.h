// How a pool falls asleep and wakes: what its modes have in common. Rule 5 holds: quiesce, deregister, unmap; and on
// waking map, then register.
//
// Under the pool's collective lock.
#ifndef COMMPOOL_SRC_POOL_SLEEP_H_
#define COMMPOOL_SRC_POOL_SLEEP_H_

#include "commpool/status.h"
#include "src/pool/options.h"
#include "src/pool/pool_parts.h"

namespace commpool::internal {

// kNotSupported where memory and addresses cannot be parted; kFailedPrecondition where the pool does not serve, a
// stream of its device is captured, or graphs live that captured with it and may hold collectives.
Status CheckMaySleep(PoolParts& parts, const SleepRequest& request);
Status CheckMayWake(const PoolParts& parts);

// From here on the pool serves nobody, not from threads' caches either; and again.
void BeginSleep(PoolParts& parts);
void EndSleep(PoolParts& parts);

// Nobody uses the memory any more; what shall be kept is on the host.
Status QuiesceAndKeep(PoolParts& parts, const SleepRequest& request) COMMPOOL_REQUIRES(parts.segments.growth());
// Ends all registrations, and knows the communicators still. Goes on after a failure, and returns the first.
Status DeregisterSegments(PoolParts& parts);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SLEEP_H_
