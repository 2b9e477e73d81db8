// Several pools in one collective call: of the ranks that a thread owns (ncclCommInitAll), or of one rank.
//
// A rank's part of a collective call waits for the other ranks, so one thread cannot make the parts one after another.
// Each rank gets a short-lived thread, with its device current, while the caller waits: NCCL allows one thread a
// communicator at a time, and different threads for different ones. So pools of one home, those that the call brings to
// one communicator, and fixed pools of one device take turns, in the order in which they are passed, the same on every
// rank. Pools of different homes do not, though they may be registered with a third communicator: a program passes such
// pools one by one. The caller's device stays as it is. Any thread.
#ifndef COMMPOOL_SRC_POOL_GROUP_CALLS_H_
#define COMMPOOL_SRC_POOL_GROUP_CALLS_H_

#include <optional>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/base/function_ref.h"
#include "src/pool/options.h"
#include "src/pool/pool.h"
#include "src/pool/runtime.h"

namespace commpool::internal {

// What one rank asks for: options, or why they were refused and the home whose other ranks must hear it.
struct PoolRequest {
  Result<PoolConfiguration> configuration;
  std::optional<PoolConfiguration> home = {};
};

// All of them, or none. The pools of one home that come out of one call belong together: a collective call that the
// same thread makes for only some of them is refused.
Result<std::vector<PoolHandle>> CreatePools(Runtime& runtime, std::vector<PoolRequest> requests);

// Runs call(pool, its place) for each pool, for those of several ranks at the same time. Returns the first failure in
// the order of the pools. kInvalidArgument for no pool, or one twice; kFailedPrecondition where a pool is missing that
// belongs to one of them. `passed`: the communicators that the call gives to the pools, one each; null where it gives
// none.
Status OnEach(Runtime& runtime, const std::vector<PoolHandle>& pools, FunctionRef<Status(Pool&, size_t)> call,
              ncclComm* const* passed = nullptr);

// The same for calls that a later failure can take back: pools of one rank, with one home, agree in the same rounds,
// and all go or none.
Status ReservePools(Runtime& runtime, const std::vector<PoolHandle>& pools, uint64_t bytes);
// What each reclaimed.
Result<std::vector<uint64_t>> ReclaimPools(Runtime& runtime, const std::vector<PoolHandle>& pools);
Status VerifyPools(Runtime& runtime, const std::vector<PoolHandle>& pools);

// Runs call(pool) for each pool with the tag, in the order of their creation; for those of one home at the same time.
// Goes on where one fails, for other ranks may wait in the next, and returns the first failure. kNotFound for no pool.
Status OnTagged(Runtime& runtime, const std::string& tag, FunctionRef<Status(Pool&)> call);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROUP_CALLS_H_
