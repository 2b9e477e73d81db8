// How a pool gives up a communicator on this rank alone: after a loss no call reaches every rank any more.
//
// The order is: abandon every communicator while it is alive, abort them, then close() or rehome(). NCCL ends a
// registration without any other rank, but not after its communicator was aborted: then it keeps the memory of windows.
#ifndef COMMPOOL_SRC_POOL_ABANDONMENT_H_
#define COMMPOOL_SRC_POOL_ABANDONMENT_H_

#include <nccl.h>

#include "commpool/status.h"
#include "src/pool/pool_parts.h"
#include "src/registration/communicator.h"

namespace commpool::internal {

// One that is alive: on the thread that uses it. Waits for the device, at most the deadline, and goes on where that
// passes: NCCL's kernel may wait there for the lost rank until an abort ends it, and memory stays mapped until close()
// or rehome(), which wait again. One that has ended: any thread, at once. A line of the log says what NCCL holds for
// good.
Status AbandonCommunicator(PoolParts& parts, ncclComm_t communicator, CommunicatorLife life)
    COMMPOOL_EXCLUDES(parts.collective);

// Before memory is unmapped. Waits for the device, of which a window collective with a dead rank may hold a stream for
// ever: the error says so.
Status WaitForDeviceAfterLoss(PoolParts& parts);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_ABANDONMENT_H_
