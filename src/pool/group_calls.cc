#include "src/pool/group_calls.h"

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "src/base/function_ref.h"
#include "src/base/host_failure.h"
#include "src/base/host_patience.h"
#include "src/base/host_reserve.h"
#include "src/base/printable.h"
#include "src/base/try.h"
#include "src/driver/handles.h"
#include "src/pool/symmetric/several_pools.h"

namespace commpool::internal {

namespace {

// Where the device cannot be had the call itself says why.
template <typename Part>
Status RunOn(Runtime& runtime, int device, Part part) {
  Result<std::shared_ptr<DeviceState>> state = Insist([&] { return runtime.devices().Get(device); });
  if (!state.ok()) return part();
  ContextGuard current(runtime.driver(), (*state)->context());
  const std::optional<RelaxedCapture> relaxed = runtime.Relax();
  return part();
}

// Places of one rank: their pools call NCCL with a communicator that each has in common with another of them, which
// takes one thread at a time, and in one order on all ranks.
using Lane = std::vector<size_t>;

// Each task on a thread of its own.
Status RunSideBySide(const std::vector<std::function<void()>>& tasks) {
  std::vector<std::thread> threads;
  threads.reserve(tasks.size());
  // No rank begins before all have a thread: the others would wait for one that never comes.
  std::promise<bool> ready;
  const std::shared_future<bool> all_here = ready.get_future().share();
  Status started;
  for (auto task = tasks.begin(); task != tasks.end() && started.ok(); ++task) {
    started = Attempt([&] {
      threads.emplace_back([&, task] {
        if (all_here.get()) (*task)();
      });
      return Status();
    });
  }
  ready.set_value(started.ok());
  for (std::thread& thread : threads) thread.join();
  return started;
}

// All lanes at the same time, each with the place of its first pool. A lane that fails keeps none of the others back:
// its failure is all ranks'.
Status RunTogether(const std::vector<Lane>& lanes, const std::function<Status(const Lane&)>& of_lane) {
  std::vector<Status> statuses(lanes.size());
  std::vector<std::function<void()>> tasks;
  for (size_t number = 0; number < lanes.size(); ++number) {
    tasks.push_back([&, number] { statuses[number] = Attempt([&] { return of_lane(lanes[number]); }); });
  }
  COMMPOOL_TRY(RunSideBySide(tasks));
  for (Status& status : statuses) {
    if (!status.ok()) return std::move(status);
  }
  return Status();
}

// One pool after the other, each to its end. The first failure. Asks the host for nothing: the other ranks have begun.
Status OneByOne(const Lane& lane, FunctionRef<Status(size_t place)> part) {
  Status first;
  for (const size_t place : lane) {
    Status status = Attempt([&] { return part(place); });
    if (first.ok()) first = std::move(status);
  }
  return first;
}

// What only one thread at a time may use: communicators and, for all fixed pools of a device, the device.
struct Used {
  ReservedVector<ncclComm_t> communicators;
  std::optional<int> device = {};

  bool Meets(const Used& other) const {
    if (device && device == other.device) return true;
    return std::find_first_of(communicators.begin(), communicators.end(), other.communicators.begin(),
                              other.communicators.end()) != communicators.end();
  }
};

// `passed`: the communicator that the call gives to the pool, null for none.
Used UsedBy(const Pool& pool, ncclComm_t passed) {
  Used used;
  if (!pool.symmetric()) used.device = pool.device();
  for (const ncclComm_t communicator : {pool.home(), passed}) {
    if (communicator != nullptr) used.communicators.push_back(communicator);
  }
  // One that has left its home, whose address another communicator may have by now, waits for no other rank.
  const ncclComm_t first_home = pool.configuration().home;
  if (used.communicators.empty() && first_home != nullptr) used.communicators.push_back(first_home);
  return used;
}

// In the order of their first pools.
std::vector<Lane> LanesOf(const ReservedVector<Used>& used) {
  std::vector<Lane> lanes;
  for (size_t place = 0; place < used.size(); ++place) {
    Lane mine{place};
    std::erase_if(lanes, [&](const Lane& lane) {
      const bool joins =
          std::any_of(lane.begin(), lane.end(), [&](size_t other) { return used[place].Meets(used[other]); });
      if (joins) mine.insert(mine.end(), lane.begin(), lane.end());
      return joins;
    });
    std::sort(mine.begin(), mine.end());
    lanes.push_back(std::move(mine));
  }
  std::sort(lanes.begin(), lanes.end());
  return lanes;
}

// Pools with one home form a group, where they are more than one.
void Bind(const ReservedVector<std::shared_ptr<Pool>>& pools) {
  ReservedMap<uint64_t, ReservedVector<Pool*>> by_home;
  for (const std::shared_ptr<Pool>& pool : pools) {
    if (pool->home_id() != 0) by_home[pool->home_id()].push_back(pool.get());
  }
  for (const auto& [home, members] : by_home) {
    if (members.size() < 2) continue;
    const auto group = std::allocate_shared<const PoolGroup>(ReservedAllocator<PoolGroup>(), members.size());
    for (Pool* member : members) member->Join(group);
  }
}

// The modes of a lane's pools where they can agree in the same rounds: they reach the other ranks over one home. None
// where they cannot.
SymmetricModes ModesOf(const Lane& lane, const ReservedVector<std::shared_ptr<Pool>>& pools) {
  const ncclComm_t home = pools[lane.front()]->home();
  SymmetricModes modes;
  for (const size_t place : lane) {
    if (home == nullptr || pools[place]->home() != home) return {};
    modes.push_back(pools[place]->AsSymmetric());
  }
  return modes;
}

Status CheckComplete(const ReservedVector<std::shared_ptr<Pool>>& pools) {
  std::set<const Pool*> seen;
  for (const std::shared_ptr<Pool>& pool : pools) {
    if (!seen.insert(pool.get()).second) {
      return Status(StatusCode::kInvalidArgument, "pool " + pool->name() + " is passed twice");
    }
  }
  for (const std::shared_ptr<Pool>& pool : pools) {
    const PoolGroup* const group = pool->group();
    if (group == nullptr || !group->IsOfThisThread()) continue;
    const auto present = std::count_if(pools.begin(), pools.end(),
                                       [&](const std::shared_ptr<Pool>& other) { return other->group() == group; });
    if (static_cast<size_t>(present) != group->size()) return group->Incomplete(pool->name(), present);
  }
  return Status();
}

Result<ReservedVector<std::shared_ptr<Pool>>> Find(Runtime& runtime, const std::vector<PoolHandle>& handles) {
  Status status = runtime.RefuseForkedChild();
  if (!status.ok()) return status;
  if (handles.empty()) return Status(StatusCode::kInvalidArgument, "a call for no pool");
  ReservedVector<std::shared_ptr<Pool>> pools;
  for (const PoolHandle handle : handles) {
    std::shared_ptr<Pool> pool = COMMPOOL_TRY(runtime.pools().Find(handle));
    pools.push_back(std::move(pool));
  }
  return pools;
}

// The pools of a call, and which of them take turns.
struct PoolsOfCall {
  ReservedVector<std::shared_ptr<Pool>> pools;
  std::vector<Lane> lanes;
};

Result<PoolsOfCall> FindAll(Runtime& runtime, const std::vector<PoolHandle>& handles, ncclComm* const* passed) {
  ReservedVector<std::shared_ptr<Pool>> pools = COMMPOOL_TRY(Find(runtime, handles));
  if (Status status = CheckComplete(pools); !status.ok()) return status;
  ReservedVector<Used> used;
  for (size_t place = 0; place < pools.size(); ++place) {
    used.push_back(UsedBy(*pools[place], passed == nullptr ? nullptr : passed[place]));
  }
  return PoolsOfCall{std::move(pools), LanesOf(used)};
}

// `together` for the pools of one home, where there are several of them, else `alone` for one after the other.
Status OnHomes(Runtime& runtime, const std::vector<PoolHandle>& handles,
               const std::function<Status(const SymmetricModes&, const Lane&)>& together,
               const std::function<Status(Pool&, size_t place)>& alone) {
  const PoolsOfCall call = COMMPOOL_TRY(FindAll(runtime, handles, nullptr));
  const auto of_lane = [&](const Lane& lane) {
    return RunOn(runtime, call.pools[lane.front()]->device(), [&] {
      const SymmetricModes modes = Insist([&] { return ModesOf(lane, call.pools); });
      if (modes.size() > 1) return together(modes, lane);
      return OneByOne(lane, [&](size_t place) { return alone(*call.pools[place], place); });
    });
  };
  // The pools of one rank need no thread of their own.
  const bool one_rank = call.lanes.size() == 1 && ModesOf(call.lanes.front(), call.pools).size() > 1;
  return one_rank ? of_lane(call.lanes.front()) : RunTogether(call.lanes, of_lane);
}

}  // namespace

Result<std::vector<PoolHandle>> CreatePools(Runtime& runtime, std::vector<PoolRequest> requests) {
  std::vector<PoolHandle> handles(requests.size(), 0);
  Status status = runtime.RefuseForkedChild();
  if (status.ok() && requests.empty()) status = Status(StatusCode::kInvalidArgument, "a call for no pool");
  if (!status.ok()) return status;
  ReservedVector<Used> homes;
  for (const PoolRequest& request : requests) {
    const bool asked = request.configuration.ok();
    const ncclComm_t home = asked ? request.configuration->home : request.home ? request.home->home : nullptr;
    homes.emplace_back();
    if (home != nullptr) homes.back().communicators.push_back(home);
  }
  const auto create = [&](size_t place) -> Status {
    PoolRequest& request = requests[place];
    if (!request.configuration.ok()) {
      const Status& why = request.configuration.status();
      return request.home ? runtime.RefusePool(*request.home, why) : why;
    }
    PoolConfiguration& configuration = *request.configuration;
    return RunOn(runtime, configuration.backing.placement.device, [&]() -> Status {
      Result<PoolHandle> made = runtime.CreatePool(std::move(configuration));
      if (made.ok()) handles[place] = *made;
      return made.status();
    });
  };
  status = RunTogether(LanesOf(homes), [&](const Lane& lane) { return OneByOne(lane, create); });
  if (!status.ok()) {
    for (const PoolHandle handle : handles) {
      if (handle != 0) static_cast<void>(runtime.DestroyPool(handle));
    }
    return status;
  }
  ReservedVector<std::shared_ptr<Pool>> pools = COMMPOOL_TRY(Find(runtime, handles));
  Bind(pools);
  return handles;
}

Status OnEach(Runtime& runtime, const std::vector<PoolHandle>& handles,
              const std::function<Status(Pool&, size_t)>& call, ncclComm* const* passed) {
  const PoolsOfCall all = COMMPOOL_TRY(FindAll(runtime, handles, passed));
  const auto part = [&](size_t place) {
    Pool& pool = *all.pools[place];
    return RunOn(runtime, pool.device(), [&] { return call(pool, place); });
  };
  return RunTogether(all.lanes, [&](const Lane& lane) { return OneByOne(lane, part); });
}

Status ReservePools(Runtime& runtime, const std::vector<PoolHandle>& pools, uint64_t bytes) {
  return OnHomes(
      runtime, pools, [&](const SymmetricModes& modes, const Lane&) { return ReserveTogether(modes, bytes); },
      [&](Pool& pool, size_t) { return pool.Reserve(bytes); });
}

Result<std::vector<uint64_t>> ReclaimPools(Runtime& runtime, const std::vector<PoolHandle>& pools) {
  std::vector<uint64_t> reclaimed(pools.size());
  const auto together = [&](const SymmetricModes& modes, const Lane& lane) {
    const Result<std::vector<uint64_t>> bytes = ReclaimTogether(modes);
    for (size_t place = 0; bytes.ok() && place < lane.size(); ++place) reclaimed[lane[place]] = (*bytes)[place];
    return bytes.status();
  };
  const Status status = OnHomes(runtime, pools, together, [&](Pool& pool, size_t place) {
    const Result<uint64_t> bytes = pool.Reclaim();
    if (bytes.ok()) reclaimed[place] = *bytes;
    return bytes.status();
  });
  return status.ok() ? std::move(reclaimed) : Result<std::vector<uint64_t>>(status);
}

Status VerifyPools(Runtime& runtime, const std::vector<PoolHandle>& pools) {
  return OnHomes(
      runtime, pools, [](const SymmetricModes& modes, const Lane&) { return VerifyTogether(modes); },
      [](Pool& pool, size_t) { return pool.Verify(); });
}

Status OnTagged(Runtime& runtime, const std::string& tag, const std::function<Status(Pool&)>& call) {
  ReservedVector<std::shared_ptr<Pool>> pools = runtime.pools().All();
  std::erase_if(pools, [&](const auto& pool) { return !pool->has_handle() || pool->configuration().tag != tag; });
  if (pools.empty()) return Status(StatusCode::kNotFound, "no pool has the tag \"" + Printable(tag.c_str()) + "\"");
  Status first;
  while (!pools.empty()) {
    // Its own, and the others of its home.
    const std::shared_ptr<Pool> next = pools.front();
    std::vector<PoolHandle> together;
    std::erase_if(pools, [&](const auto& pool) {
      const bool joins = pool == next || (next->home_id() != 0 && pool->home_id() == next->home_id());
      if (joins) together.push_back(pool->handle());
      return joins;
    });
    Status status =
        together.size() == 1 ? call(*next) : OnEach(runtime, together, [&](Pool& pool, size_t) { return call(pool); });
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace commpool::internal
