/* The memory that NCCL takes for a communicator itself (buffers of its channels: GiB on large machines), and how it
 * goes back to the driver for a while. A capability beside commpool.h, whose conventions hold. NCCL 2.29.7 or later.
 *
 *   first the pools that are registered with it:
 *   commpool_pools_sleep(&pool, 1, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_NO_COLLECTIVES);
 *   commpool_communicator_sleep(communicator, 60000);
 *   ...
 *   commpool_communicator_wake(communicator);
 *   commpool_pool_wake(pool, COMMPOOL_GRAPHS_NO_COLLECTIVES);                   their windows come back */
#ifndef COMMPOOL_COMMUNICATOR_H_
#define COMMPOOL_COMMUNICATOR_H_

#include "commpool/commpool.h"

/* Gives the buffers of the communicator back, with ncclCommSuspend. Work on the device ends first. COLLECTIVE over the
 * communicator, on the thread that owns it, one rank a thread; nobody uses it until it is awake. NCCL waits for all
 * ranks without a deadline, so the ranks agree first, over TCP. `deadline_ms` bounds each wait of this call and of the
 * wake, 0 for 60000. NOT_SUPPORTED for an older NCCL. FAILED_PRECONDITION on all ranks, and nothing has changed, where
 * it is asleep, a stream of a rank's device is being captured, or a pool that is awake is registered with it: the error
 * names the pool. COMMUNICATOR_ERROR where it shares resources with a split child or parent. Where a rank is missing,
 * or fails inside NCCL's call, the error says to abort the communicator. Asleep it may be destroyed or aborted. */
COMMPOOL_API commpool_status commpool_communicator_sleep(struct ncclComm* communicator, uint64_t deadline_ms);

/* Makes the buffers again, at the same addresses, with ncclCommResume: graphs that captured collectives hold.
 * COLLECTIVE, as sleep. NCCL succeeds also where a peer's memory is lost, so a small all-gather checks it. If that
 * fails, or a rank is missing or lost, all ranks get an error that says to abort the communicator. OUT_OF_MEMORY on all
 * ranks, with who holds what, where a device has no room: it sleeps on. FAILED_PRECONDITION where this library did not
 * suspend it. */
COMMPOOL_API commpool_status commpool_communicator_wake(struct ncclComm* communicator);

/* What NCCL counts on this rank's device: all of it, with what has gone to sleep; the part that sleep gives back; and
 * whether it is asleep (1). Any output may be null. Local. NOT_SUPPORTED for an older NCCL. */
COMMPOOL_API commpool_status commpool_communicator_memory(struct ncclComm* communicator, uint64_t* bytes,
                                                          uint64_t* sleeping_bytes, int* asleep);

#endif /* COMMPOOL_COMMUNICATOR_H_ */
