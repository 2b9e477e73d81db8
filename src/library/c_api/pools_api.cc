// The C ABI: calls for one pool, or for the pools of several ranks at once.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/kept.h"
#include "commpool/registrar.h"
#include "commpool/share.h"
#include "src/library/base/function_ref.h"
#include "src/library/base/printable.h"
#include "src/library/base/try.h"
#include "src/library/c_api/boundary.h"
#include "src/library/c_api/options.h"
#include "src/library/c_api/structs.h"
#include "src/library/pool/group_calls.h"
#include "src/library/pool/symmetric/symmetric_mode.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

// A job has a pool for each rank of a thread, and no thread has so many ranks.
constexpr size_t kMostPools = 1 << 16;

Status CheckPoolCount(size_t count) {
  if (count <= kMostPools) return Status();
  return InvalidArgument("count ", count, " is more pools than one call takes, ", kMostPools);
}

commpool_status ForPools(const commpool_pool* pools, size_t count, FunctionRef<Status(Runtime&, PoolHandles)> call,
                         const char* name = __builtin_FUNCTION()) {
  const auto checked = [&](Runtime& runtime) -> Status {
    if (pools == nullptr) return InvalidArgument("pools is null");
    COMMPOOL_TRY(CheckPoolCount(count));
    return call(runtime, PoolHandles(pools, count));
  };
  return WithRuntime(checked, name);
}

// `passed`: as OnEach.
commpool_status ForEachPool(const commpool_pool* pools, size_t count, FunctionRef<Status(Pool&, size_t place)> call,
                            ncclComm* const* passed = nullptr, const char* name = __builtin_FUNCTION()) {
  return ForPools(
      pools, count, [&](Runtime& runtime, PoolHandles handles) { return OnEach(runtime, handles, call, passed); },
      name);
}

// Runs `call`, which counts something for each pool, and writes the counts to `output` only where it succeeded.
commpool_status CountForPools(const commpool_pool* pools, size_t count, uint64_t* output,
                              FunctionRef<Status(Runtime&, PoolHandles, uint64_t* counts)> call,
                              const char* name = __builtin_FUNCTION()) {
  const auto counted = [&](Runtime& runtime, PoolHandles handles) -> Status {
    std::vector<uint64_t> counts(handles.size());
    COMMPOOL_TRY(call(runtime, handles, counts.data()));
    if (output != nullptr) std::copy(counts.begin(), counts.end(), output);
    return Status();
  };
  return ForPools(pools, count, counted, name);
}

commpool_status WithCommunicators(const commpool_pool* pools, ncclComm* const* communicators, size_t count,
                                  FunctionRef<Status(Pool&, ncclComm_t)> call,
                                  const char* name = __builtin_FUNCTION()) {
  if (communicators == nullptr) {
    return Report(InvalidArgument("communicators is null: there is one a pool, each may be null"));
  }
  return ForEachPool(
      pools, count, [&](Pool& pool, size_t place) { return call(pool, communicators[place]); }, communicators, name);
}

// Whether a pointer lies in a live block: for a name in sleep options.
Status CheckLive(const void* pointer) {
  const Status found = BlockAt(*OpenedProcessRuntime(), pointer).status();
  return found.ok() ? found : InvalidArgument(found.message());
}

// Where this rank refuses the options, or the output pointer is null, it still tells the other ranks, so that none of
// them waits.
Status Create(Runtime& runtime, const commpool_pool_options* options, size_t count, commpool_pool* pools) {
  std::vector<PoolRequest> requests;
  for (size_t place = 0; place < count; ++place) {
    const commpool_pool_options& one = options[place];
    // Do not read a struct of another size, not even its home: the program may not have written that field.
    COMMPOOL_TRY(CheckStructBytes("pool_options", one.struct_bytes, sizeof(one)));
    requests.push_back({.configuration = pools == nullptr ? Result<PoolConfiguration>(NullOptions())
                                                          : ParsePoolOptions(one, runtime.settings()),
                        .home = ParseHome(one)});
  }
  Result<std::vector<PoolHandle>> made = CreatePools(runtime, std::move(requests));
  if (made.ok()) std::copy(made->begin(), made->end(), pools);
  return made.status();
}

// For a process whose COMMPOOL_CONF is wrong. It opens no usual runtime, but must tell the other ranks of a symmetric
// pool.
Status Refuse(const Status& why, FunctionRef<Status(Runtime&)> create) {
  const Result<Runtime*> refusing = RefusingRuntime(why);
  return refusing.ok() ? create(**refusing) : why;
}

Result<std::string> ReadName(const char* name) {
  if (name == nullptr || *name == 0) return InvalidArgument("the registrar's name is null or empty");
  if (strnlen(name, kMostNameBytes + 1) > kMostNameBytes) {
    return InvalidArgument("the registrar's name is longer than ", kMostNameBytes, " bytes");
  }
  return Printable(name);
}

RegistrarRequest ReadRegistrar(const commpool_registrar* given) {
  if (given == nullptr) return std::optional<Registrar>();
  COMMPOOL_TRY(CheckStructBytes("registrar", given->struct_bytes, sizeof(*given)));
  std::string name = COMMPOOL_TRY(ReadName(given->name));
  if (given->add == nullptr || given->remove == nullptr) {
    return InvalidArgument("registrar ", name, " needs both functions, add and remove");
  }
  Registrar registrar{.name = std::move(name), .functions = *given};
  registrar.functions.name = nullptr;
  return std::optional<Registrar>(std::move(registrar));
}

}  // namespace

commpool_status commpool_pools_create(const commpool_pool_options* options, size_t count, commpool_pool* pools) {
  const auto create = [&](Runtime& runtime) -> Status {
    if (options == nullptr) return NullOptions();
    COMMPOOL_TRY(CheckPoolCount(count));
    return Create(runtime, options, count, pools);
  };
  if (OpenedProcessRuntime() == nullptr && options != nullptr && count != 0 && ParseHome(*options)) {
    const Status wrong = SettingsFromEnvironment().status();
    if (!wrong.ok()) return Guarded([&] { return Refuse(wrong, create); });
  }
  return WithRuntime(create);
}

commpool_status commpool_pools_reserve(const commpool_pool* pools, size_t count, uint64_t bytes) {
  return ForPools(pools, count,
                  [&](Runtime& runtime, PoolHandles handles) { return ReservePools(runtime, handles, bytes); });
}

commpool_status commpool_pools_reclaim(const commpool_pool* pools, size_t count, uint64_t* reclaimed_bytes) {
  return CountForPools(pools, count, reclaimed_bytes, [](Runtime& runtime, PoolHandles handles, uint64_t* counts) {
    return ReclaimPools(runtime, handles, counts);
  });
}

commpool_status commpool_pools_trim(const commpool_pool* pools, size_t count, uint64_t keep_bytes,
                                    uint64_t* released_bytes) {
  return CountForPools(pools, count, released_bytes, [&](Runtime& runtime, PoolHandles handles, uint64_t* counts) {
    return OnEach(runtime, handles,
                  [&](Pool& pool, size_t place) { return Store(pool.Trim(keep_bytes), &counts[place]); });
  });
}

commpool_status commpool_pools_register_with(const commpool_pool* pools, ncclComm* const* communicators, size_t count) {
  return WithCommunicators(pools, communicators, count,
                           [](Pool& pool, ncclComm_t communicator) { return pool.mode().RegisterWith(communicator); });
}

commpool_status commpool_pools_deregister(const commpool_pool* pools, ncclComm* const* communicators, size_t count) {
  return WithCommunicators(pools, communicators, count,
                           [](Pool& pool, ncclComm_t communicator) { return pool.mode().Deregister(communicator); });
}

commpool_status commpool_pools_rehome(const commpool_pool* pools, ncclComm* const* communicators, size_t count) {
  return WithCommunicators(pools, communicators, count, [](Pool& pool, ncclComm_t communicator) -> Status {
    SymmetricMode* const mode = COMMPOOL_TRY(SymmetricMode::Of(pool, "rehome"));
    return mode->Rehome(communicator);
  });
}

commpool_status commpool_pools_wake(const commpool_pool* pools, size_t count, commpool_graphs graphs,
                                    commpool_retain retain) {
  const SleepRequest request = ParseWake(NumberOf(graphs), NumberOf(retain));
  const auto part = [&](Pool& pool, OtherPoolsOfCall others) { return pool.Wake(request, others); };
  return ForPools(pools, count, [&](Runtime& runtime, PoolHandles handles) {
    return AllOrNone(runtime, handles, part, Oldest::kFirst);
  });
}

commpool_status commpool_pools_sleep_keeping(const commpool_pool* pools, size_t count,
                                             const commpool_sleep_options* options) {
  return ForPools(pools, count, [&](Runtime& runtime, PoolHandles handles) {
    const SleepRequest request = ParseSleepOptions(options, [](const void* pointer) { return CheckLive(pointer); });
    return AllOrNone(
        runtime, handles, [&](Pool& pool, OtherPoolsOfCall others) { return pool.Sleep(request, others); },
        Oldest::kLast);
  });
}

commpool_status commpool_pools_verify(const commpool_pool* pools, size_t count) {
  return ForPools(pools, count, [](Runtime& runtime, PoolHandles handles) { return VerifyPools(runtime, handles); });
}

commpool_status commpool_pools_close(const commpool_pool* pools, size_t count) {
  return ForEachPool(pools, count, [](Pool& pool, size_t) { return pool.Close(); });
}

commpool_status commpool_pools_add_registrar(const commpool_pool* pools, const commpool_registrar* const* registrars,
                                             size_t count) {
  if (registrars == nullptr)
    return Report(InvalidArgument("registrars is null: there is one a pool, each may be null"));
  return ForEachPool(pools, count, [&](Pool& pool, size_t place) {
    return pool.mode().AddRegistrar(ReadRegistrar(registrars[place]));
  });
}

commpool_status commpool_pools_remove_registrar(const commpool_pool* pools, size_t count, const char* name) {
  return ForEachPool(pools, count, [&](Pool& pool, size_t) -> Status {
    const Result<std::string> read = ReadName(name);
    return read.ok() ? pool.mode().RemoveRegistrar(*read) : read.status();
  });
}

commpool_status commpool_pools_map_peers(const commpool_pool* pools, size_t count) {
  return ForEachPool(pools, count, [](Pool& pool, size_t) -> Status {
    SymmetricMode* const mode = COMMPOOL_TRY(SymmetricMode::Of(pool, "map_peers"));
    return mode->MapPeers();
  });
}
