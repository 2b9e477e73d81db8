// The C ABI: pools, their peers, registrations, statistics and plain functions.
#include <array>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/kept.h"
#include "src/library/base/try.h"
#include "src/library/c_api/boundary.h"
#include "src/library/c_api/options.h"
#include "src/library/c_api/structs.h"
#include "src/library/pool/symmetric/symmetric_mode.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

// Says why there is no window. A separate function, so that the fast path saves no registers.
[[gnu::noinline]] commpool_status FindNoWindow(const void* pointer, ncclWindow_vidmem** window, uint64_t* offset,
                                               const char* name = __builtin_FUNCTION()) {
  const auto find = [&](Runtime& runtime) -> Status {
    if (window == nullptr || offset == nullptr) {
      return InvalidArgument("window or offset is null");
    }
    std::shared_ptr<BlockOwner> owner = COMMPOOL_TRY(runtime.addresses().OwnerOf(AddressOf(pointer)));
    return NotFound("pool ", owner->name(),
                    " has no window on this communicator that holds the pointer: symmetric pools have, awake and "
                    "registered with it");
  };
  return WithRuntime(find, name);
}

// Functions without a context that allocate from one pool, for frameworks that take a plain function pointer. The
// library has a fixed table of them, and binds each to a pool at run time.
constexpr size_t kFunctions = 256;

// Atomic, because a program may call a function of a destroyed pool while another pool takes the slot.
struct Slot {
  std::atomic<PoolHandle> pool{0};  // 0: never bound
  std::atomic<int> device{0};
};

constinit std::array<Slot, kFunctions> slots;

void* AllocateFor(const Slot& slot, size_t bytes, int device, CUstream_st* stream) {
  if (bytes == 0) return nullptr;
  const PoolHandle pool = slot.pool.load(std::memory_order_acquire);
  const int own = slot.device.load(std::memory_order_relaxed);
  if (device != own) {
    Report(InvalidArgument("pool ", pool, " is of device ", own, ", and its function was called for device ", device));
    return nullptr;
  }
  // The call names the device, so it means that one's default streams.
  Runtime& runtime = *OpenedProcessRuntime();
  std::optional<ContextGuard> current;
  if (IsDefault(stream) && runtime.RefuseForkedChild().ok()) {
    current.emplace(runtime.driver(), runtime.devices().places().At(device).context);
  }
  void* pointer = nullptr;
  return commpool_pool_allocate(pool, bytes, stream, &pointer) == COMMPOOL_OK ? pointer : nullptr;
}

template <size_t kPlace>
void* Allocate(size_t bytes, int device, CUstream_st* stream) {
  return AllocateFor(slots[kPlace], bytes, device, stream);
}

constexpr auto kTable = []<size_t... kPlaces>(std::index_sequence<kPlaces...>) {
  return std::array<commpool_plain_allocate, kFunctions>{Allocate<kPlaces>...};
}
(std::make_index_sequence<kFunctions>());

// Chooses the slot of the pool: its own, else an unused one, else that of the oldest destroyed pool. Returns kFunctions
// where there is none.
size_t Choose(Runtime& runtime, PoolHandle pool) {
  size_t gone = kFunctions;
  for (size_t place = 0; place < kFunctions; ++place) {
    const PoolHandle bound = slots[place].pool.load(std::memory_order_relaxed);
    if (bound == pool || bound == 0) return place;
    const bool older = gone == kFunctions || bound < slots[gone].pool.load(std::memory_order_relaxed);
    if (older && !runtime.pools().Find(bound).ok()) gone = place;
  }
  return gone;
}

// The function of the pool, the same at each call. Where all functions are taken, that of the oldest destroyed pool
// serves this pool from now on; kOutOfMemory where no pool was destroyed.
Result<commpool_plain_allocate> FunctionOf(Runtime& runtime, const Pool& pool) {
  MutexLock lock(ProcessMutex());
  const size_t place = Choose(runtime, pool.handle());
  if (place == kFunctions) {
    return OutOfMemory("all ", kFunctions, " functions are taken by pools that are alive: destroy some first");
  }
  slots[place].device.store(pool.device(), std::memory_order_relaxed);
  slots[place].pool.store(pool.handle(), std::memory_order_release);
  return kTable[place];
}

// The free function of commpool_pool_functions. All pools share it, because a block's address tells its pool.
void FreeBlock(void* pointer, size_t, int, CUstream_st*) { commpool_free(pointer); }

}  // namespace

commpool_status commpool_pool_destroy(commpool_pool pool) {
  return WithRuntime([&](Runtime& runtime) { return runtime.DestroyPool(pool); });
}

commpool_status commpool_default_pool(int device, commpool_pool* pool) {
  return WithRuntime(
      [&](Runtime& runtime) { return pool == nullptr ? NullOutput() : Store(runtime.DefaultPool(device), pool); });
}

commpool_status commpool_pool_functions(commpool_pool pool, commpool_plain_allocate* allocate,
                                        commpool_plain_free* release) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (allocate == nullptr || release == nullptr) return NullOutput();
    std::shared_ptr<Pool> found = COMMPOOL_TRY(runtime.pools().Find(pool));
    *allocate = COMMPOOL_TRY(FunctionOf(runtime, *found));
    *release = FreeBlock;
    return Status();
  });
}

commpool_status commpool_pool_kept(commpool_pool pool, const void* pointer, uint64_t bytes, const void** kept) {
  return WithPool(pool, [&](Pool& found) {
    return kept == nullptr ? NullOutput() : Store(found.segments().kept.Find(AddressOf(pointer), bytes), kept);
  });
}

commpool_status commpool_pool_set_access(commpool_pool pool, const int* devices, size_t count, commpool_access access) {
  return WithPool(pool, [&](Pool& found) -> Status {
    if (count != 0 && devices == nullptr) return InvalidArgument("devices is null and count is not 0");
    if (count > kMostPeers) return InvalidArgument("count ", count, " is more devices than any machine has");
    const auto asked = COMMPOOL_TRY(WordOf<commpool_access>("access", access, {"GRANTED", "REVOKED"}));
    const std::vector<int> named(devices, devices + count);
    PoolPeers& peers = found.segments().peers;
    return asked == COMMPOOL_ACCESS_GRANTED ? peers.Grant(named) : peers.Revoke(named);
  });
}

commpool_status commpool_pool_register_pending(commpool_pool pool, uint64_t* registered) {
  return WithPool(pool, [&](Pool& found) {
    uint64_t unwanted = 0;
    return Store(found.mode().RegisterPending(), registered == nullptr ? &unwanted : registered);
  });
}

commpool_status commpool_pool_abandon(commpool_pool pool, ncclComm* communicator, commpool_life life) {
  return WithPool(pool, [&](Pool& found) -> Status {
    const auto said = COMMPOOL_TRY(WordOf<CommunicatorLife>("life", life, {"ALIVE", "ENDED"}));
    return found.mode().AbandonCommunicator(communicator, said);
  });
}

commpool_status commpool_pool_lost_rank(commpool_pool pool, int* rank) {
  return WithPool(pool, [&](Pool& found) -> Status {
    if (rank == nullptr) return NullOutput();
    const SymmetricMode* const symmetric = found.mode().AsSymmetric();
    *rank = symmetric == nullptr ? -1 : symmetric->LostRank();
    return Status();
  });
}

commpool_status commpool_window_of(const void* pointer, ncclComm* communicator, ncclWindow_vidmem** window,
                                   uint64_t* offset) {
  const Runtime* const runtime = OpenedProcessRuntime();
  const bool looks = runtime != nullptr && window != nullptr && offset != nullptr && runtime->RefuseForkedChild().ok();
  const auto place = looks ? runtime->windows().Find(communicator, AddressOf(pointer)) : std::nullopt;
  if (!place) return FindNoWindow(pointer, window, offset);
  *window = place->window;
  *offset = place->offset;
  return COMMPOOL_OK;
}

commpool_status commpool_pool_statistics(commpool_pool pool, commpool_peaks peaks, commpool_statistics* statistics) {
  return WithPool(pool, [&](Pool& found) -> Status {
    if (statistics == nullptr) return NullOutput();
    const auto after = COMMPOOL_TRY(WordOf<BlockStore::Peaks>("peaks", peaks, {"STAY", "RESET"}));
    COMMPOOL_TRY(CheckStructBytes("statistics", statistics->struct_bytes, sizeof(*statistics)));
    *statistics = found.Statistics(after);
    statistics->struct_bytes = sizeof(*statistics);
    return Status();
  });
}
