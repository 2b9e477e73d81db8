// Calls for several pools. Each rank's pools run on a thread of their own, because a rank that waits for the others
// must not keep them from coming.
#include "src/library/pool/group_calls.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "src/library/base/interruption.h"
#include "src/library/base/start_thread.h"
#include "src/library/base/try.h"
#include "src/library/driver/handles.h"
#include "src/library/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

namespace {

// Runs `part` with the device's context current. Where that cannot be done, `part` fails too and says why.
template <typename Part>
Status RunOn(Runtime& runtime, int device, Part part) {
  Result<std::shared_ptr<DeviceState>> state = runtime.devices().Get(device);
  // The part fails for the same reason, and tells its ranks.
  if (!state.ok()) return part();
  ContextGuard current(runtime.driver(), (*state)->context());
  const std::optional<RelaxedCapture> relaxed = runtime.Relax();
  return part();
}

// The places of pools that are called one after the other: those of one rank. They share a communicator, which NCCL
// lets one thread use at a time, and in the same order on all ranks; fixed pools share a device.
using Queue = std::vector<size_t>;
using Pools = std::vector<std::shared_ptr<Pool>>;

// Runs all queues at the same time, each on its own thread. A failed queue does not stop the others: its failure
// reaches all ranks.
Status RunTogether(Runtime& runtime, const std::vector<Queue>& queues, FunctionRef<Status(const Queue&)> run_queue) {
  // Each thread writes its own, and they are read once all have ended.
  std::vector<Status> statuses(queues.size());
  std::vector<std::thread> threads;
  threads.reserve(queues.size());
  // No rank begins before all have a thread: otherwise the ranks that began would wait for one that never comes.
  std::promise<bool> ready;
  const std::shared_future<bool> all_here = ready.get_future().share();
  Status started;
  InterruptibleParts call;
  std::vector<std::promise<void>> ended(queues.size());
  for (size_t number = 0; number < queues.size() && started.ok(); ++number) {
    Result<std::thread> thread = StartThread("a rank's part of a call", [&, number] {
      const InterruptibleParts::Part part(call);
      if (all_here.get()) statuses[number] = run_queue(queues[number]);
      runtime.FreePostponed();
      ended[number].set_value();
    });
    started = thread.status();
    if (thread.ok()) threads.push_back(std::move(*thread));
  }
  ready.set_value(started.ok());
  for (size_t number = 0; number < threads.size(); ++number) {
    call.Await(ended[number].get_future());
    threads[number].join();
  }
  // No queue has run: the threads heard false.
  for (Status& status : statuses) KeepFirst(started, std::move(status));
  return started;
}

// What a pool's part of the call uses that only one thread at a time may use: communicators; for a fixed pool its
// device.
struct Used {
  std::vector<ncclComm_t> communicators;
  std::optional<int> device = {};
  std::optional<int> rank_on = {};  // the device of a pool that has ranks

  // Pools that have ranks on two devices are two ranks, which wait for each other: they take no turns, even where the
  // program mixes up their communicators.
  bool Shares(const Used& other) const {
    if (device && device == other.device) return true;
    if (rank_on && other.rank_on && rank_on != other.rank_on) return false;
    return std::ranges::find_first_of(communicators, other.communicators) != communicators.end();
  }
};

// Null for a pool that is not symmetric, or has given up its home. Takes no lock: the mode keeps the handle as an
// atomic.
ncclComm_t HomeOf(const Pool& pool) { return pool.symmetric() ? pool.mode().AsSymmetric()->home() : nullptr; }

// `passed`: the communicator that the call gives to the pool, or null.
Used UsedBy(const Pool& pool, ncclComm_t passed) {
  Used used;
  (pool.symmetric() ? used.rank_on : used.device) = pool.device();
  for (const ncclComm_t communicator : {HomeOf(pool), passed}) {
    if (communicator != nullptr) used.communicators.push_back(communicator);
  }
  // A pool that has left its home waits for no other rank. Another communicator may have the home's address by now.
  const ncclComm_t first_home = pool.basis().configuration.home;
  if (used.communicators.empty() && first_home != nullptr) used.communicators.push_back(first_home);
  return used;
}

// The queues of a call, in the order of their first pools. A pool that shares something with several queues makes one
// queue of them.
std::vector<Queue> QueuesOf(const std::vector<Used>& used) {
  std::vector<Queue> queues;
  for (size_t place = 0; place < used.size(); ++place) {
    Queue mine{place};
    std::erase_if(queues, [&](const Queue& queue) {
      const bool joins = std::ranges::any_of(queue, [&](size_t other) { return used[place].Shares(used[other]); });
      if (joins) mine.insert(mine.end(), queue.begin(), queue.end());
      return joins;
    });
    // The order in which the program passed them, which is the same on all ranks.
    std::sort(mine.begin(), mine.end());
    queues.push_back(std::move(mine));
  }
  // By first place, so that failures are looked at in the program's order.
  std::sort(queues.begin(), queues.end());
  return queues;
}

// Makes a group of pools with one home, if there is more than one.
void MakeGroups(const Pools& pools) {
  std::map<uint64_t, std::vector<Pool*>> by_home;
  for (const std::shared_ptr<Pool>& pool : pools) {
    // Handles of communicators come again, these numbers do not.
    if (pool->symmetric()) by_home[pool->basis().home_id].push_back(pool.get());
  }
  for (const auto& [home, members] : by_home) {
    if (members.size() < 2) continue;
    const auto group = std::make_shared<const PoolGroup>(members.size());
    for (Pool* member : members) member->basis().group = group;
  }
}

// The modes of a queue's pools where they share a home, so that one set of rounds serves all of them. Empty where they
// do not. In the order of the queue, which is the program's.
SymmetricModes ModesOf(const Queue& queue, const Pools& pools) {
  const ncclComm_t home = HomeOf(*pools[queue.front()]);
  SymmetricModes modes;
  for (const size_t place : queue) {
    if (home == nullptr || HomeOf(*pools[place]) != home) return {};
    modes.push_back(pools[place]->mode().AsSymmetric());
  }
  return modes;
}

// The pools of a queue by their homes, in the program's order, which is the same on all ranks.
std::vector<Pools> ByHome(const Queue& queue, const Pools& pools) {
  std::vector<Pools> homes;
  for (const size_t place : queue) {
    const auto found = std::find_if(homes.begin(), homes.end(),
                                    [&](const Pools& home) { return HomeOf(*home.front()) == HomeOf(*pools[place]); });
    (found == homes.end() ? homes.emplace_back() : *found).push_back(pools[place]);
  }
  return homes;
}

// Each pool's part contains those of the pools after it, so the last one's end is known before any part is final.
Status RunAsOne(Runtime& runtime, const Pools& pools, PartWithOthers part) {
  std::vector<Mutex*> mutexes;
  for (const std::shared_ptr<Pool>& pool : pools) mutexes.push_back(&pool->basis().collective);
  const std::deque<MutexLock> locks = LockInOrder(std::move(mutexes));
  const std::function<Status(size_t)> from = [&](size_t place) -> Status {
    if (place == pools.size()) return Status();
    return RunOn(runtime, pools[place]->device(), [&] { return part(*pools[place], [&] { return from(place + 1); }); });
  };
  return from(0);
}

// Refuses a pool that is passed twice, and a group of pools that is not complete: both would wait for themselves.
Status CheckComplete(const Pools& pools) {
  std::set<const Pool*> seen;
  for (const std::shared_ptr<Pool>& pool : pools) {
    if (!seen.insert(pool.get()).second) return InvalidArgument("pool ", pool->name(), " is passed twice");
  }
  for (const std::shared_ptr<Pool>& pool : pools) {
    const PoolGroup* const group = pool->basis().group.get();
    if (group == nullptr) continue;
    const auto present =
        std::ranges::count_if(pools, [&](const auto& other) { return other->basis().group.get() == group; });
    COMMPOOL_TRY(group->CheckComplete(pool->name(), static_cast<size_t>(present)));
  }
  return Status();
}

// Finds all pools before the first one is called: a wrong handle must not leave half of a collective call behind.
Result<Pools> Find(Runtime& runtime, PoolHandles handles) {
  if (handles.empty()) return InvalidArgument("a call for no pool");
  Pools pools;
  for (const PoolHandle handle : handles) {
    std::shared_ptr<Pool> pool = COMMPOOL_TRY(runtime.pools().Find(handle));
    pools.push_back(std::move(pool));
  }
  return pools;
}

// Calls `together` for several pools of one home, else `for_one` for each pool. Queues run at the same time. `together`
// is empty for calls that have no such form. Finds, checks and sorts the pools before any of them is called.
Status OnPools(Runtime& runtime, PoolHandles handles, ncclComm* const* passed,
               FunctionRef<Status(const SymmetricModes&, const Queue&)> together,
               FunctionRef<Status(Pool&, size_t place)> for_one) {
  const Pools pools = COMMPOOL_TRY(Find(runtime, handles));
  // No thread, and no check of completeness: the pool's own call makes it (Collective::Begin).
  if (pools.size() == 1) return for_one(*pools.front(), 0);
  COMMPOOL_TRY(CheckComplete(pools));
  std::vector<Used> used;
  for (size_t place = 0; place < pools.size(); ++place) {
    used.push_back(UsedBy(*pools[place], passed == nullptr ? nullptr : passed[place]));
  }
  const std::vector<Queue> queues = QueuesOf(used);
  const auto run_queue = [&](const Queue& queue) {
    const SymmetricModes modes = together ? ModesOf(queue, pools) : SymmetricModes();
    const int device = pools[queue.front()]->device();
    if (modes.size() > 1) return RunOn(runtime, device, [&] { return together(modes, queue); });
    // It never stops early, for the other ranks have begun.
    return FirstFailureOf(queue, [&](size_t place) {
      return RunOn(runtime, pools[place]->device(), [&] { return for_one(*pools[place], place); });
    });
  };
  // The pools of one rank need no thread.
  const bool one_rank = together && queues.size() == 1 && ModesOf(queues.front(), pools).size() > 1;
  return one_rank ? run_queue(queues.front()) : RunTogether(runtime, queues, run_queue);
}

}  // namespace

// A request with refused options takes part as well, if it says how to reach its home: its other ranks wait for it.
// Where one pool cannot be made, those that were made are destroyed again.
Result<std::vector<PoolHandle>> CreatePools(Runtime& runtime, std::vector<PoolRequest> requests) {
  if (requests.empty()) return InvalidArgument("a call for no pool");
  std::vector<PoolHandle> handles(requests.size(), 0);
  std::vector<Used> homes;
  for (const PoolRequest& request : requests) {
    const bool asked = request.configuration.ok();
    // A refused request has a home too: its other ranks wait there.
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
      handles[place] = COMMPOOL_TRY(runtime.CreatePool(std::move(configuration)));
      return Status();
    });
  };
  // One pool needs no thread.
  const auto create_queue = [&](const Queue& queue) { return FirstFailureOf(queue, create); };
  const Status status = requests.size() == 1 ? create(0) : RunTogether(runtime, QueuesOf(homes), create_queue);
  if (!status.ok()) {
    for (const PoolHandle handle : handles) {
      // A failure here leaves nothing to do: the caller gets the first one.
      if (handle != 0) static_cast<void>(runtime.DestroyPool(handle));
    }
    return status;
  }
  Pools pools = COMMPOOL_TRY(Find(runtime, handles));
  // Before the program has a handle, so no call can come for a part of a group.
  MakeGroups(pools);
  return handles;
}

Status OnEach(Runtime& runtime, PoolHandles handles, FunctionRef<Status(Pool&, size_t)> call, ncclComm* const* passed) {
  return OnPools(runtime, handles, passed, {}, call);
}

// `bytes` is what each pool must be able to serve.
Status ReservePools(Runtime& runtime, PoolHandles pools, uint64_t bytes) {
  return OnPools(
      runtime, pools, nullptr,
      [&](const SymmetricModes& modes, const Queue&) { return SymmetricMode::ReserveTogether(modes, bytes); },
      [&](Pool& pool, size_t) { return pool.mode().Reserve(bytes); });
}

// `reclaimed` has a place for each pool; threads write to places of their own.
Status ReclaimPools(Runtime& runtime, PoolHandles pools, uint64_t* reclaimed) {
  const auto together = [&](const SymmetricModes& modes, const Queue& queue) {
    const Result<std::vector<uint64_t>> bytes = SymmetricMode::ReclaimTogether(modes);
    for (size_t place = 0; bytes.ok() && place < queue.size(); ++place) reclaimed[queue[place]] = (*bytes)[place];
    return bytes.status();
  };
  return OnPools(runtime, pools, nullptr, together, [&](Pool& pool, size_t place) -> Status {
    reclaimed[place] = COMMPOOL_TRY(pool.mode().Reclaim());
    return Status();
  });
}

// Pools of one home agree in one round. A difference in one of them is the error of the whole call.
Status VerifyPools(Runtime& runtime, PoolHandles pools) {
  return OnPools(
      runtime, pools, nullptr,
      [](const SymmetricModes& modes, const Queue&) { return SymmetricMode::VerifyTogether(modes); },
      // A pool without ranks has nothing to compare.
      [](Pool& pool, size_t) { return pool.symmetric() ? pool.mode().AsSymmetric()->Verify() : Status(); });
}

// Only pools whose parts come to the same end on every rank are undone together: ranks may pass different ones beside
// them, and a part that ended on one rank alone would leave its ranks apart.
Status AllOrNone(Runtime& runtime, PoolHandles handles, PartWithOthers part, Oldest oldest) {
  const Pools pools = COMMPOOL_TRY(Find(runtime, handles));
  // No thread, and no check of completeness: the pool's own call makes it (Collective::Begin).
  if (pools.size() == 1) return RunAsOne(runtime, pools, part);
  COMMPOOL_TRY(CheckComplete(pools));
  Pools alone;
  Pools ranked;
  for (const std::shared_ptr<Pool>& pool : pools) (pool->symmetric() ? ranked : alone).push_back(pool);
  // Before the ranks begin, because only one thread at a time may use a communicator: registrations end and come back
  // with it.
  Status first = RunAsOne(runtime, alone, part);
  Status next;
  std::vector<Used> used;
  for (const std::shared_ptr<Pool>& pool : ranked) {
    used.push_back(UsedBy(*pool, nullptr));
    for (const Communicator& registered : pool->segments().registrations.Communicators()) {
      used.back().communicators.push_back(registered.handle);
    }
  }
  // By a number that is the same on every rank; pools of the program's own channels have none, and keep their order.
  const auto comes_first = [&](const std::shared_ptr<Pool>& one, const std::shared_ptr<Pool>& other) {
    const uint64_t number = one->basis().channel_number.load(std::memory_order_acquire);
    const uint64_t others = other->basis().channel_number.load(std::memory_order_acquire);
    return oldest == Oldest::kFirst ? number < others : others < number;
  };
  const auto run_queue = [&](const Queue& queue) {
    return FirstFailureOf(ByHome(queue, ranked), [&](Pools home) {
      std::stable_sort(home.begin(), home.end(), comes_first);
      return RunAsOne(runtime, home, part);
    });
  };
  if (!ranked.empty()) next = RunTogether(runtime, QueuesOf(used), run_queue);
  if (pools.front()->symmetric()) std::swap(first, next);
  KeepFirst(first, std::move(next));
  return first;
}

}  // namespace commpool::internal
