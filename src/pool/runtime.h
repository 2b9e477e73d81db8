// Runtime: a driver and everything that stands on it. The C ABI holds the process's one; tests make as many as they
// like.
//
// Any thread. Destroying a runtime abandons what is left: it is a test's end, or an exit, and calls neither NCCL nor a
// context that is broken.
#ifndef COMMPOOL_SRC_POOL_RUNTIME_H_
#define COMMPOOL_SRC_POOL_RUNTIME_H_

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "commpool/status.h"
#include "src/base/fork_guard.h"
#include "src/base/host_reserve.h"
#include "src/base/mutex.h"
#include "src/driver/graph_handles.h"
#include "src/driver/loader.h"
#include "src/engine/size_classes.h"
#include "src/pool/basis/runtime_parts.h"
#include "src/pool/memory_search.h"
#include "src/pool/options.h"
#include "src/pool/pool.h"
#include "src/pool/scope_table.h"
#include "src/pool/settings/settings.h"
#include "src/pool/shared/device_state.h"
#include "src/pool/shared/own_pools.h"
#include "src/stream/stream_devices.h"

namespace commpool::internal {

class Runtime {
 public:
  explicit Runtime(std::shared_ptr<const Driver> driver, Settings settings = {});
  ~Runtime();

  const Driver& driver() const { return *driver_; }
  const Settings& settings() const { return settings_; }
  PoolTable& pools() { return pools_; }
  const AddressTable& addresses() const { return parts_.addresses; }
  const ThreadCaches& caches() const { return parts_.caches; }
  MemoryHolders& holders() { return parts_.holders; }
  ScopeTable& scopes() { return scopes_; }
  const WindowIndex& windows() const { return parts_.windows; }
  DeviceTable& devices() { return devices_; }

  // What COMMPOOL_CONF sets is in the configuration already (Settings::ApplyTo).
  Result<PoolHandle> CreatePool(PoolConfiguration configuration);
  // Tells the other ranks of a symmetric pool that this one cannot make it. Returns what all ranks return.
  Status RefusePool(const PoolConfiguration& home, const Status& why);
  // kInvalidArgument for a default pool.
  Status DestroyPool(PoolHandle handle);
  // Made at its first use: vmm where the device has it, else cuda.
  Result<PoolHandle> DefaultPool(int device);

  // Routed: the innermost scope that catches it, else the device's default pool; scopes whose pools are exhausted may
  // hand it on outwards. A negative device is the stream's.
  Result<CUdeviceptr> Allocate(int device, uint64_t bytes, CUstream stream);
  // Nothing where no scope catches it, or all that do hand it on: the default pool is not asked.
  std::optional<Result<CUdeviceptr>> AllocateInScope(int device, uint64_t bytes, CUstream stream);
  Result<CUdeviceptr> AllocateFrom(PoolHandle pool, uint64_t bytes, CUstream stream);
  Status Free(CUdeviceptr address);

  // The fast path: from and to the caches that this thread used lately, without a lock or a call of any function. 0, or
  // false, where they cannot serve, or somebody listens to what is allocated and freed: the calls below do then.
  CUdeviceptr AllocateCached(int device, uint64_t bytes, CUstream stream);
  CUdeviceptr AllocateCachedFrom(PoolHandle pool, uint64_t bytes, CUstream stream);
  bool FreeCached(CUdeviceptr address);

  // From and to all caches of this thread; then blocks of the pool, where nothing about it or the block is unusual: at
  // most one hold of the pool's lock and no driver call. 0, or false, where the calls above have to serve.
  CUdeviceptr AllocateAtOnce(int device, uint64_t bytes, CUstream stream);
  CUdeviceptr AllocateAtOnceFrom(PoolHandle pool, uint64_t bytes, CUstream stream);
  bool FreeAtOnce(CUdeviceptr address);

  // A scope of this thread begins, or ends, without a lock. 0, or false, where that cannot be: ScopeTable's calls do.
  ScopeHandle BeginScopeAtOnce(PoolHandle pool, const SizeRange& sizes, Exhaustion exhaustion);
  bool EndScopeAtOnce(ScopeHandle scope);

  Status RecordStream(CUdeviceptr address, CUstream stream);
  // Waits for the stream, so that no pool needs the handle any more (rule 11).
  Status ReleaseStream(CUstream stream);

  Result<CaptureHandle> BeginCapture(PoolHandle pool, CUstream stream);
  // kNotFound for one that has ended.
  Status EndCapture(CaptureHandle capture);

  // While a capture is open anywhere, what the library asks the driver for is no part of it: every call holds this.
  std::optional<RelaxedCapture> Relax() const;

  // kFailedPrecondition in a forked child: every call's first question.
  Status RefuseForkedChild() const;

 private:
  static constexpr size_t kMostDevices = 64;

  struct OpenCapture {
    std::shared_ptr<Pool> pool;
    CUstream stream = nullptr;
  };

  // No capture, user's function or fork asks for the long way.
  bool MayServeAtOnce() const {
    return !forked_.InChild() && !own_state.in_user_function && !devices_.captures().any();
  }

  // How this thread's scopes, and those of all, stand now.
  RouteKey RouteKeyOf(int device, CUstream stream) const {
    return {nullptr, own_state.scope_changes, scopes_.shared_changes(), reinterpret_cast<uint64_t>(stream), device};
  }

  // From the scopes that catch the request. `passed` gets the names of the pools that had no memory.
  std::optional<Result<CUdeviceptr>> AllocateCaught(const RoutedRequest& request, std::string& passed);
  // This thread's cache, then the pool.
  Result<CUdeviceptr> AllocateFrom(Pool& pool, uint64_t bytes, StreamKey stream);

  const std::shared_ptr<const Driver> driver_;
  const Settings settings_;
  const ForkGuard forked_;  // CUDA does not survive fork()
  DeviceTable devices_;
  RuntimeParts parts_;
  PoolTable pools_;  // goes first: its pools use the rest
  MemorySearch search_{pools_, parts_.holders, devices_.captures()};
  ScopeTable scopes_;
  StreamDevices stream_devices_;
  Mutex mutex_{LockRank::kRuntime};  // held while a default pool is made: threads that race make one
  CaptureHandle next_capture_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  ReservedMap<CaptureHandle, OpenCapture> captures_ COMMPOOL_GUARDED_BY(mutex_);
  // 0 where there is none yet.
  std::array<std::atomic<PoolHandle>, kMostDevices> default_pools_ = {};
};

[[gnu::always_inline]] inline CUdeviceptr Runtime::AllocateCachedFrom(PoolHandle pool, uint64_t bytes,
                                                                      CUstream stream) {
  // Which stream this thread's default one is, takes a call: no cache has the key 0.
  const StreamKey key = stream == CU_STREAM_PER_THREAD ? 0 : KeyOfStream(stream);
  return forked_.InChild() ? 0 : parts_.caches.TakeRecent(pool, bytes, key);
}

[[gnu::always_inline]] inline CUdeviceptr Runtime::AllocateCached(int device, uint64_t bytes, CUstream stream) {
  return forked_.InChild() ? 0 : parts_.caches.TakeRouted(RouteKeyOf(device, stream), bytes);
}

inline CUdeviceptr Runtime::AllocateAtOnceFrom(PoolHandle handle, uint64_t bytes, CUstream stream) {
  if (bytes <= engine::kSmallBytes) {
    const CUdeviceptr cached = forked_.InChild() ? 0 : parts_.caches.TakeAtOnce(handle, bytes, KeyOfStream(stream));
    // Observers hear of what caches serve by the long way, which asks the caches first.
    if (cached != 0 || parts_.observers.watching_blocks()) return cached;
  }
  if (!MayServeAtOnce()) return 0;
  const std::shared_ptr<Pool> pool = OwnPools::FindAtOnce(pools_, handle);
  return pool == nullptr ? 0 : pool->AllocateAtOnce(bytes, KeyOfStream(stream));
}

inline bool Runtime::FreeAtOnce(CUdeviceptr address) {
  const engine::BlockWord word = parts_.caches.WordOf(address);
  if (word.state() != engine::BlockWord::State::kLive) {
    return !forked_.InChild() && parts_.caches.GiveAtOnce(address);
  }
  if (word.owner() == 0 || !MayServeAtOnce()) return false;
  const std::shared_ptr<Pool> pool = OwnPools::FindAtOnce(pools_, word.owner());
  return pool != nullptr && pool->FreeAtOnce(address);
}

[[gnu::always_inline]] inline bool Runtime::FreeCached(CUdeviceptr address) {
  return !forked_.InChild() && parts_.caches.GiveRecent(address);
}

[[gnu::always_inline]] inline ScopeHandle Runtime::BeginScopeAtOnce(PoolHandle pool, const SizeRange& sizes,
                                                                    Exhaustion exhaustion) {
  const std::optional<int> device = pools_.DeviceAtOnce(pool);
  return device && !forked_.InChild() ? scopes_.BeginAtOnce({pool, sizes, *device, exhaustion}) : ScopeHandle{0};
}

inline bool Runtime::EndScopeAtOnce(ScopeHandle scope) { return !forked_.InChild() && scopes_.EndAtOnce(scope); }

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_RUNTIME_H_
