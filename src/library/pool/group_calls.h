// Several pools in one collective call: the pools of several ranks that one thread owns (ncclCommInitAll), or of one
// rank.
//
// Each rank's part of a collective call waits for the other ranks, so one thread cannot make the parts one by one.
// While the caller waits, each rank gets a short-lived thread with its device current: NCCL allows one thread for each
// communicator. Pools that share a communicator (their home, or one that the call passes), and fixed pools of one
// device, take turns instead, in the order in which the program passes them, the same on every rank. Pools of different
// homes never take turns, even where a third communicator has both: a program passes such pools one by one. The
// caller's current device does not change. Any thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/function_ref.h"
#include "src/library/pool/options.h"
#include "src/library/pool/pool.h"
#include "src/library/pool/runtime.h"

namespace commpool::internal {

// A rank's request for a pool: its options, or why they were refused. In the second case `home` says how to tell the
// other ranks. The C ABI makes them from a program's options.
struct PoolRequest {
  Result<PoolConfiguration> configuration;
  std::optional<PoolConfiguration> home = {};
};

// Makes all of them, or none. Pools of one home that one call makes belong together: a collective call of the same
// thread for only some of them is refused. Handles in the order of the requests.
Result<std::vector<PoolHandle>> CreatePools(Runtime& runtime, std::vector<PoolRequest> requests);

using PoolHandles = std::span<const PoolHandle>;

// Runs call(pool, place) for each pool: for one pool on this thread, for pools of several ranks at the same time.
// Returns the first failure in the order of the pools. kInvalidArgument for no pool, or the same one twice;
// kFailedPrecondition where a pool is missing that belongs to one of several. `passed`: the communicators that the call
// gives to the pools, one for each; null where it gives none. For calls that have no joint form: each pool goes through
// rounds of its own.
Status OnEach(Runtime& runtime, PoolHandles pools, FunctionRef<Status(Pool&, size_t)> call,
              ncclComm* const* passed = nullptr);

// Calls that can be undone. Pools of one rank and one home agree in the same rounds: the call succeeds for all of them,
// or for none.
Status ReservePools(Runtime& runtime, PoolHandles pools, uint64_t bytes);
// Writes how many bytes each pool reclaimed.
Status ReclaimPools(Runtime& runtime, PoolHandles pools, uint64_t* reclaimed);
Status VerifyPools(Runtime& runtime, PoolHandles pools);

// What one pool does in a call for several: its own part, with what the others do in the middle of it.
using PartWithOthers = FunctionRef<Status(Pool&, OtherPoolsOfCall others)>;
// Which pools of a home begin, whatever the order of the call. Windows come back to their places where the newest end
// first, for a sleep, and come back last, for a wake. The oldest is the one that joined the home first.
enum class Oldest { kFirst, kLast };
// Sleep and wake: all pools of one home, and all without ranks, go the whole way or none of them. Each holds its
// collective lock meanwhile. Returns the failure of the pool that began first; what else failed is logged or named in
// it. kInvalidArgument and kFailedPrecondition as OnEach.
Status AllOrNone(Runtime& runtime, PoolHandles pools, PartWithOthers part, Oldest oldest);

}  // namespace commpool::internal
