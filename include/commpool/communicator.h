/* The memory that NCCL takes for a communicator itself (buffers of its channels: GiB on large machines), and how it
 * goes back to the driver for a while. A capability beside commpool.h, whose conventions hold. NCCL 2.29.7 or later.
 *
 *   commpool_communicator_sleep(communicator, 60000);   its symmetric pools rest: windows end, memory and blocks stay
 *   commpool_communicator_wake(communicator);           the windows come back to their places
 *
 * For the pools' own memory, commpool_pools_sleep comes before that, and commpool_pools_wake after it. */
#ifndef COMMPOOL_COMMUNICATOR_H_
#define COMMPOOL_COMMUNICATOR_H_

#include "commpool/commpool.h"

/* Gives the buffers of the communicator back, with ncclCommSuspend. Work on the device ends first. Then the windows of
 * symmetric pools end that are at home there: these rest, and serve nobody meanwhile. COLLECTIVE over the communicator,
 * on the thread that owns it, one rank a thread; nobody uses it until it is awake. NCCL waits without a deadline, so
 * the ranks agree first, over TCP. `deadline_ms` bounds each wait of this call and of the wake, 0 for 60000; steps of a
 * pool use the pool's. NOT_SUPPORTED for an older NCCL. FAILED_PRECONDITION on all ranks, and nothing has changed,
 * where it is asleep, a stream of a rank's device is being captured, or a pool cannot rest (reference.md).
 * COMMUNICATOR_ERROR where it shares resources with a split child or parent. Where a rank dies or fails inside NCCL's
 * call, the error says to abort the communicator. */
COMMPOOL_API commpool_status commpool_communicator_sleep(struct ncclComm* communicator, uint64_t deadline_ms);

/* Makes the buffers again, at the same addresses, with ncclCommResume: graphs that captured collectives hold.
 * COLLECTIVE, as sleep. NCCL succeeds also where a peer's memory is lost, so a small all-gather checks it. If that
 * fails all ranks get COMMUNICATOR_ERROR, DEADLINE_EXCEEDED or DRIVER_ERROR: abort the communicator. Then the windows
 * come back, proven as in waking pools. If they do not, the error says that the communicator is awake, and the pool
 * rests on: wake it. OUT_OF_MEMORY on all ranks, with who holds what, where a device has no room: it sleeps on.
 * FAILED_PRECONDITION where this library did not suspend it. */
COMMPOOL_API commpool_status commpool_communicator_wake(struct ncclComm* communicator);

/* What NCCL counts on this rank's device: all of it, with what has gone to sleep; the part that sleep gives back; and
 * whether it is asleep (1). Any output may be null. Local. NOT_SUPPORTED for an older NCCL. */
COMMPOOL_API commpool_status commpool_communicator_memory(struct ncclComm* communicator, uint64_t* bytes,
                                                          uint64_t* sleeping_bytes, int* asleep);

#endif /* COMMPOOL_COMMUNICATOR_H_ */
