// The C ABI: pools, their peers, registrations and statistics.
#include <optional>

#include "commpool/commpool.h"
#include "src/c_api/boundary.h"
#include "src/c_api/process_runtime.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

// Runs `body` with the pool of a handle.
template <typename Body>
commpool_status WithPool(commpool_pool handle, Body body) {
  return Guarded([&]() -> Status {
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    Status status = (*runtime)->RefuseForkedChild();
    if (!status.ok()) return status;
    Result<std::shared_ptr<Pool>> pool = (*runtime)->pools().Find(handle);
    if (!pool.ok()) return pool.status();
    return body(**pool);
  });
}

Status StoreCount(const Result<uint64_t>& count, uint64_t* output) {
  if (count.ok() && output != nullptr) *output = *count;
  return count.status();
}

Result<std::vector<int>> Devices(const int* devices, size_t count) {
  if (count != 0 && devices == nullptr)
    return Status(StatusCode::kInvalidArgument, "devices is null and count is not 0");
  return std::vector<int>(devices, devices + count);
}

// Options that were refused here keep no other rank waiting.
Status RefuseOptions(const commpool_pool_options& options, const Status& why) {
  const std::optional<PoolConfiguration> home = ParseHome(options);
  if (!home) return why;
  Result<Runtime*> runtime = ProcessRuntime();
  return runtime.ok() ? (*runtime)->RefusePool(*home, why) : why;
}

// Why there is none. Apart, so that the fast path saves no registers for it.
[[gnu::noinline]] commpool_status FindNoWindow(const void* pointer, ncclWindow_vidmem** window, uint64_t* offset) {
  return Guarded([&]() -> Status {
    if (window == nullptr || offset == nullptr) {
      return Status(StatusCode::kInvalidArgument, "window or offset is null");
    }
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    Result<std::shared_ptr<BlockOwner>> owner = (*runtime)->addresses().OwnerOf(AddressOf(pointer));
    if (!owner.ok()) return owner.status();
    return Status(StatusCode::kNotFound,
                  "pool " + (*owner)->name() + " has no window on this communicator that holds the pointer");
  });
}

commpool_counter CounterOf(const engine::Counter& counter) { return {counter.current, counter.peak, counter.total}; }

}  // namespace

void commpool_pool_options_init(commpool_pool_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_bytes = sizeof(*options);
  options->name = "pool";
  options->numa_node = -1;
  options->deadline_ms = 60000;
  options->alignment_bytes = 512;
  options->release_threshold_bytes = UINT64_MAX;
  options->limit_bytes = UINT64_MAX;
}

commpool_status commpool_pool_create(const commpool_pool_options* options, commpool_pool* pool) {
  return Guarded([&]() -> Status {
    const Status null(StatusCode::kInvalidArgument, "options or the output pointer is null");
    if (options == nullptr) return null;
    Result<PoolConfiguration> configuration = pool == nullptr ? null : ParsePoolOptions(*options);
    if (!configuration.ok()) return RefuseOptions(*options, configuration.status());
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    Result<PoolHandle> created = (*runtime)->CreatePool(std::move(*configuration));
    if (!created.ok()) return created.status();
    *pool = *created;
    return Status();
  });
}

commpool_status commpool_pool_destroy(commpool_pool pool) {
  return Guarded([&]() -> Status {
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    return (*runtime)->DestroyPool(pool);
  });
}

commpool_status commpool_pool_close(commpool_pool pool) {
  return WithPool(pool, [](Pool& found) { return found.Close(); });
}

commpool_status commpool_default_pool(int device, commpool_pool* pool) {
  return Guarded([&]() -> Status {
    if (pool == nullptr) return NullOutput();
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    Result<PoolHandle> found = (*runtime)->DefaultPool(device);
    if (!found.ok()) return found.status();
    *pool = *found;
    return Status();
  });
}

commpool_status commpool_pool_reserve(commpool_pool pool, uint64_t bytes) {
  return WithPool(pool, [&](Pool& found) { return found.Reserve(bytes); });
}

commpool_status commpool_pool_reclaim(commpool_pool pool, uint64_t* reclaimed_bytes) {
  return WithPool(pool, [&](Pool& found) { return StoreCount(found.Reclaim(), reclaimed_bytes); });
}

commpool_status commpool_pool_trim(commpool_pool pool, uint64_t keep_bytes, uint64_t* released_bytes) {
  return WithPool(pool, [&](Pool& found) { return StoreCount(found.Trim(keep_bytes), released_bytes); });
}

commpool_status commpool_pool_verify(commpool_pool pool) {
  return WithPool(pool, [](Pool& found) { return found.Verify(); });
}

commpool_status commpool_pool_grant(commpool_pool pool, const int* devices, size_t count) {
  return WithPool(pool, [&](Pool& found) -> Status {
    Result<std::vector<int>> peers = Devices(devices, count);
    if (!peers.ok()) return peers.status();
    return found.Grant(*peers);
  });
}

commpool_status commpool_pool_revoke(commpool_pool pool, const int* devices, size_t count) {
  return WithPool(pool, [&](Pool& found) -> Status {
    Result<std::vector<int>> peers = Devices(devices, count);
    if (!peers.ok()) return peers.status();
    return found.Revoke(*peers);
  });
}

commpool_status commpool_pool_register_with(commpool_pool pool, ncclComm* communicator) {
  return WithPool(pool, [&](Pool& found) { return found.RegisterWith(communicator); });
}

commpool_status commpool_pool_register_pending(commpool_pool pool, uint64_t* registered) {
  return WithPool(pool, [&](Pool& found) { return StoreCount(found.RegisterPending(), registered); });
}

commpool_status commpool_pool_deregister(commpool_pool pool, ncclComm* communicator) {
  return WithPool(pool, [&](Pool& found) { return found.Deregister(communicator); });
}

commpool_status commpool_pool_abandon(commpool_pool pool, ncclComm* communicator) {
  return WithPool(pool, [&](Pool& found) { return found.AbandonCommunicator(communicator); });
}

commpool_status commpool_window_of(const void* pointer, ncclComm* communicator, ncclWindow_vidmem** window,
                                   uint64_t* offset) {
  const Runtime* const runtime = OpenedProcessRuntime();
  if (runtime == nullptr || window == nullptr || offset == nullptr) return FindNoWindow(pointer, window, offset);
  const std::optional<WindowPlace> place = runtime->windows().Find(communicator, AddressOf(pointer));
  if (!place) return FindNoWindow(pointer, window, offset);
  *window = place->window;
  *offset = place->offset;
  return COMMPOOL_OK;
}

commpool_status commpool_pool_statistics(commpool_pool pool, commpool_statistics* statistics) {
  return WithPool(pool, [&](Pool& found) -> Status {
    if (statistics == nullptr || statistics->struct_bytes != sizeof(*statistics)) {
      return Status(StatusCode::kInvalidArgument, "statistics is null, or its struct_bytes is not its size");
    }
    const PoolStatistics figures = found.Statistics();
    const engine::Counters& counters = figures.counters;
    statistics->requested_bytes = CounterOf(counters.requested_bytes);
    statistics->allocated_bytes = CounterOf(counters.allocated_bytes);
    statistics->allocated_blocks = CounterOf(counters.allocated_blocks);
    statistics->reserved_bytes = CounterOf(counters.reserved_bytes);
    statistics->reserved_segments = CounterOf(counters.reserved_segments);
    statistics->free_bytes = counters.free_bytes;
    statistics->pending_bytes = counters.pending_bytes;
    statistics->largest_free_block_bytes = counters.largest_free_block;
    statistics->registered_segments = figures.registered_segments;
    statistics->pending_segments = figures.pending_segments;
    statistics->failed_allocations = figures.failed_allocations;
    statistics->cached_bytes = figures.cached_bytes;
    statistics->moved_bytes = figures.moved_bytes;
    statistics->host_waits = figures.host_waits;
    return Status();
  });
}

commpool_status commpool_pool_reset_peaks(commpool_pool pool) {
  return WithPool(pool, [](Pool& found) {
    found.ResetPeaks();
    return Status();
  });
}
