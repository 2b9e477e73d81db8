// A call of NCCL that may block on the host, on a thread of its own: so the deadline holds also where it does not
// return. Then the thread stays in it until the program aborts the communicator.
#ifndef COMMPOOL_SRC_REGISTRATION_SEPARATE_CALL_H_
#define COMMPOOL_SRC_REGISTRATION_SEPARATE_CALL_H_

#include <cuda.h>
#include <nccl.h>

#include <chrono>
#include <functional>
#include <future>

#include "src/driver/loader.h"
#include "src/registration/communicator.h"

namespace commpool::internal {

// Begins the call, with `context` current. The call may outlive everything of the caller.
std::future<ncclResult_t> CallSeparately(const Driver& driver, CUcontext context, std::function<ncclResult_t()> call);

// Whether it returns before the deadline, and before a rank is lost.
bool HasReturned(const std::future<ncclResult_t>& call, const Communicator& communicator,
                 std::chrono::steady_clock::time_point deadline);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_SEPARATE_CALL_H_
