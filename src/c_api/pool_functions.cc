#include "src/c_api/pool_functions.h"

#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "src/base/mutex.h"
#include "src/c_api/boundary.h"

namespace commpool::internal {

namespace {

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
    Report(Status(StatusCode::kInvalidArgument, "pool " + std::to_string(pool) + " is of device " +
                                                    std::to_string(own) + ", and its function was called for device " +
                                                    std::to_string(device)));
    return nullptr;
  }
  void* pointer = nullptr;
  return commpool_pool_allocate(pool, bytes, stream, &pointer) == COMMPOOL_OK ? pointer : nullptr;
}

template <size_t kPlace>
void* Allocate(size_t bytes, int device, CUstream_st* stream) {
  return AllocateFor(slots[kPlace], bytes, device, stream);
}

template <size_t... kPlaces>
constexpr std::array<commpool_plain_allocate, kFunctions> MakeFunctions(std::index_sequence<kPlaces...>) {
  return {Allocate<kPlaces>...};
}

constexpr std::array<commpool_plain_allocate, kFunctions> kTable =
    MakeFunctions(std::make_index_sequence<kFunctions>());

// Guards binding. Never destroyed, like the runtime.
Mutex& BindingMutex() {
  static Mutex* const mutex = new Mutex(LockRank::kRuntime);
  return *mutex;
}

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

}  // namespace

Result<commpool_plain_allocate> FunctionOf(Runtime& runtime, const Pool& pool) {
  MutexLock lock(BindingMutex());
  const size_t place = Choose(runtime, pool.handle());
  if (place == kFunctions) {
    return Status(StatusCode::kOutOfMemory, "all " + std::to_string(kFunctions) +
                                                " functions are taken by pools that are alive: destroy some first");
  }
  slots[place].device.store(pool.device(), std::memory_order_relaxed);
  slots[place].pool.store(pool.handle(), std::memory_order_release);
  return kTable[place];
}

}  // namespace commpool::internal
