// The C ABI: one collective call for the pools of several ranks.
#include <algorithm>
#include <functional>
#include <vector>

#include "commpool/commpool.h"
#include "src/c_api/boundary.h"
#include "src/c_api/process_runtime.h"
#include "src/pool/group_calls.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

commpool_status ForPools(const commpool_pool* pools, size_t count, const std::function<Status(Pool&, size_t)>& call) {
  return Guarded([&]() -> Status {
    if (pools == nullptr) return Status(StatusCode::kInvalidArgument, "pools is null");
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    return OnEach(**runtime, std::vector<PoolHandle>(pools, pools + count), call);
  });
}

// The counts are written where every pool's call succeeded.
commpool_status CountForPools(const commpool_pool* pools, size_t count,
                              const std::function<Result<uint64_t>(Pool&)>& call, uint64_t* output) {
  std::vector<uint64_t> counts(count, 0);
  const commpool_status status = ForPools(pools, count, [&](Pool& pool, size_t place) {
    Result<uint64_t> counted = call(pool);
    if (counted.ok()) counts[place] = *counted;
    return counted.status();
  });
  if (status == COMMPOOL_OK && output != nullptr) std::copy(counts.begin(), counts.end(), output);
  return status;
}

commpool_status WithCommunicators(const commpool_pool* pools, ncclComm* const* communicators, size_t count,
                                  Status (Pool::*call)(ncclComm_t)) {
  if (communicators == nullptr) {
    return Report(Status(StatusCode::kInvalidArgument, "communicators is null: there is one a pool, each may be null"));
  }
  return ForPools(pools, count, [&](Pool& pool, size_t place) { return (pool.*call)(communicators[place]); });
}

}  // namespace

commpool_status commpool_pools_create(const commpool_pool_options* options, size_t count, commpool_pool* pools) {
  return Guarded([&]() -> Status {
    if (options == nullptr || pools == nullptr) {
      return Status(StatusCode::kInvalidArgument, "options or the output pointer is null");
    }
    std::vector<PoolRequest> requests;
    for (size_t place = 0; place < count; ++place) {
      requests.push_back({.configuration = ParsePoolOptions(options[place]), .home = ParseHome(options[place])});
    }
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    Result<std::vector<PoolHandle>> made = CreatePools(**runtime, requests);
    if (made.ok()) std::copy(made->begin(), made->end(), pools);
    return made.status();
  });
}

commpool_status commpool_pools_reserve(const commpool_pool* pools, size_t count, uint64_t bytes) {
  return ForPools(pools, count, [&](Pool& pool, size_t) { return pool.Reserve(bytes); });
}

commpool_status commpool_pools_reclaim(const commpool_pool* pools, size_t count, uint64_t* reclaimed_bytes) {
  return CountForPools(
      pools, count, [](Pool& pool) { return pool.Reclaim(); }, reclaimed_bytes);
}

commpool_status commpool_pools_trim(const commpool_pool* pools, size_t count, uint64_t keep_bytes,
                                    uint64_t* released_bytes) {
  return CountForPools(
      pools, count, [&](Pool& pool) { return pool.Trim(keep_bytes); }, released_bytes);
}

commpool_status commpool_pools_register_with(const commpool_pool* pools, ncclComm* const* communicators, size_t count) {
  return WithCommunicators(pools, communicators, count, &Pool::RegisterWith);
}

commpool_status commpool_pools_deregister(const commpool_pool* pools, ncclComm* const* communicators, size_t count) {
  return WithCommunicators(pools, communicators, count, &Pool::Deregister);
}

commpool_status commpool_pools_verify(const commpool_pool* pools, size_t count) {
  return ForPools(pools, count, [](Pool& pool, size_t) { return pool.Verify(); });
}

commpool_status commpool_pools_close(const commpool_pool* pools, size_t count) {
  return ForPools(pools, count, [](Pool& pool, size_t) { return pool.Close(); });
}
