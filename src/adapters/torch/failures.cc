#include "src/adapters/torch/failures.h"

#include <c10/util/Exception.h>

#include <sstream>

#include "src/adapters/torch/call_lines.h"
#include "src/adapters/torch/commpool_calls.h"
#include "src/adapters/torch/history.h"
#include "src/adapters/torch/known_pools.h"
#include "src/adapters/torch/native.h"

namespace commpool::torch_adapter {
namespace {

using Observer = c10::cuda::CUDACachingAllocator::OutOfMemoryObserver;

struct Observers {
  std::mutex mutex;
  std::vector<Observer> all;
};

Observers& OutOfMemoryObservers() {
  static Observers* observers = new Observers;
  return *observers;
}

std::string Bytes(uint64_t bytes) {
  std::ostringstream text;
  text.precision(2);
  if (bytes < (uint64_t{1} << 20)) {
    text << bytes << " bytes";
  } else if (bytes < (uint64_t{1} << 30)) {
    text << std::fixed << static_cast<double>(bytes) / (1 << 20) << " MiB";
  } else {
    text << std::fixed << static_cast<double>(bytes) / (1 << 30) << " GiB";
  }
  return text.str();
}

std::string NativeTable(int device) {
  const auto stats = Native()->getDeviceStats(static_cast<c10::DeviceIndex>(device));
  const auto& allocated = stats.allocated_bytes[0];
  const auto& reserved = stats.reserved_bytes[0];
  return "PyTorch's own allocator has " + Bytes(static_cast<uint64_t>(reserved.current)) + " reserved, " +
         Bytes(static_cast<uint64_t>(allocated.current)) + " of it allocated.";
}

void TellObservers(const Request& request) {
  const DeviceMemory memory = MemoryOf(request.device);
  TorchHistory().OutOfMemory(request.device, request.bytes, memory.free);
  std::vector<Observer> observers;
  {
    const std::lock_guard lock(OutOfMemoryObservers().mutex);
    observers = OutOfMemoryObservers().all;
  }
  for (const Observer& observer : observers) observer(request.device, request.bytes, memory.total, memory.free);
}

}  // namespace

void ObserveOutOfMemory(const Observer& observer) {
  const std::lock_guard lock(OutOfMemoryObservers().mutex);
  OutOfMemoryObservers().all.push_back(observer);
}

std::string PoolTable(int device) {
  std::string table;
  for (const KnownPool& known : Pools().OfDevice(device)) {
    commpool_statistics held;
    if (!ReadStatistics(known.pool, &held)) continue;
    table += (table.empty() ? "commpool's pools on device " + std::to_string(device) + ": " : "; ") + "pool " +
             std::to_string(known.pool) + " has " + Bytes(held.reserved_bytes.current) + " reserved, " +
             Bytes(held.allocated_bytes.current) + " of it allocated";
  }
  return table.empty() ? table : table + ".";
}

void ThrowFailure(commpool_status status, commpool_pool pool, const Request& request) {
  std::string reason = Commpool().last_error();  // what follows may fail as well
  // Which line differs, or what a backing in Python raised.
  if (status == COMMPOOL_DISAGREEMENT || status == COMMPOOL_OUT_OF_MEMORY) reason = Explained(pool, reason);
  if (status != COMMPOOL_OUT_OF_MEMORY && status != COMMPOOL_EXHAUSTED) TORCH_CHECK(false, "commpool: ", reason);
  TellObservers(request);
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", Bytes(request.bytes),
                   " from a commpool pool: ", reason, "\n", NativeTable(request.device));
}

}  // namespace commpool::torch_adapter
