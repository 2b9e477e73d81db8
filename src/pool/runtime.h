// Runtime: a driver and everything that stands on it. The C ABI holds the process's one; tests make as many as they
// like.
//
// Any thread. Destroying a runtime abandons what is left: it is a test's end, or an exit, and calls neither NCCL nor a
// context that is broken.
#ifndef COMMPOOL_SRC_POOL_RUNTIME_H_
#define COMMPOOL_SRC_POOL_RUNTIME_H_

#include <array>
#include <atomic>
#include <memory>
#include <optional>

#include "commpool/status.h"
#include "src/base/fork_guard.h"
#include "src/base/host_reserve.h"
#include "src/base/mutex.h"
#include "src/driver/graph_handles.h"
#include "src/driver/loader.h"
#include "src/pool/basis/runtime_parts.h"
#include "src/pool/memory_search.h"
#include "src/pool/options.h"
#include "src/pool/pool.h"
#include "src/pool/scope_table.h"
#include "src/pool/settings/settings.h"
#include "src/pool/shared/device_state.h"
#include "src/stream/stream_devices.h"
#include "src/stream/stream_names.h"

namespace commpool::internal {

class Runtime {
 public:
  explicit Runtime(std::shared_ptr<const Driver> driver, Settings settings = {});
  ~Runtime();

  const Driver& driver() const { return *driver_; }
  const Settings& settings() const { return settings_; }
  PoolTable& pools() { return pools_; }
  const AddressTable& addresses() const { return parts_.addresses; }
  ThreadCaches& caches() { return parts_.caches; }
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

  // From whoever serves what the allocation names: a pool; or the innermost scope that catches it, else the device's
  // default pool. Scopes whose pools are exhausted may hand it on outwards. A negative device is the stream's.
  // kNotCaught where scopes alone are asked, and none catches it, or all that do hand it on.
  Result<CUdeviceptr> Allocate(Target target, uint64_t bytes, CUstream stream);
  Result<CUdeviceptr> Allocate(int device, uint64_t bytes, CUstream stream) {
    return Allocate(Target::Device(device), bytes, stream);
  }
  Result<CUdeviceptr> AllocateFrom(PoolHandle pool, uint64_t bytes, CUstream stream) {
    return Allocate(Target::Pool(pool), bytes, stream);
  }
  Status Free(CUdeviceptr address);

  // The first rung: from and to the caches that this thread used lately, without a lock or a call of any function, but
  // for the number of a stream that nobody promised. 0, or false, where they cannot serve, or somebody listens to what
  // is allocated and freed: the calls above do then.
  CUdeviceptr AllocateCached(Target target, uint64_t bytes, CUstream stream);
  bool FreeCached(CUdeviceptr address);
  // Whether a scope catches it. No lock, in user functions and forked children too.
  bool Catches(int device, uint64_t bytes, CUstream stream);

  // A scope of this thread begins, or ends, without a lock. 0, or false, where that cannot be: ScopeTable's calls do.
  ScopeHandle BeginScopeAtOnce(PoolHandle pool, const SizeRange& sizes, Exhaustion exhaustion);
  bool EndScopeAtOnce(ScopeHandle scope);

  Status RecordStream(CUdeviceptr address, CUstream stream);
  // The program will release the stream before it destroys it (rule 11).
  Status PromiseStream(CUstream stream);
  // Waits for the stream, so that no pool needs the handle any more.
  Status ReleaseStream(CUstream stream);
  // Of a stream that the current call passes.
  Result<StreamName> NameOf(CUstream stream) const { return stream_names_.NameOf(stream); }
  // The block as a program is shown it: with its stream's handle.
  commpool_block Shown(commpool_block block) const {
    block.stream = stream_names_.ShownHandle(block.stream);
    return block;
  }

  Result<CaptureHandle> BeginCapture(PoolHandle pool, CUstream stream);
  // kNotFound for one that has ended.
  Status EndCapture(CaptureHandle capture);

  // While a capture is open anywhere, what the library asks the driver for is no part of it: every call holds this.
  std::optional<RelaxedCapture> Relax() const;

  // kFailedPrecondition in a forked child: every call's first question.
  Status RefuseForkedChild() const { return forked_.InChild() ? RefuseChild() : Status(); }

 private:
  static Status RefuseChild();
  static constexpr size_t kMostDevices = 64;

  // By which way this thread finds who serves, as its scopes and those of all stand now. Both counts only rise, so
  // their sum stays the same where both do.
  Route RouteOf(Target target, CUstream stream) const {
    const bool scoped = target.kind() != Target::Kind::kPool;
    return {nullptr, target, reinterpret_cast<uint64_t>(stream),
            scoped ? own_state.scope_changes + scopes_.shared_changes() : 0};
  }
  // Who serves the request: as the thread knows it, else as WhoServes says, and the thread knows from then on. What it
  // cannot keep is put into `unkept`.
  Slot& SlotOf(Target target, uint64_t bytes, CUstream stream, const StreamName& name, Slot& unkept) const;
  // The one decision: the pool that is named; or of the scopes that began before `inner` and catch the request the one
  // begun last; or the device's default pool. No pool where scopes alone are asked, or it is not made yet.
  CaughtBy WhoServes(Target target, uint64_t bytes, StreamKey stream, const ScopePlace& inner) const;
  // The pool that serves, made where it is a default one.
  Result<std::shared_ptr<Pool>> PoolOf(Slot& slot, Target target);
  // Promises the stream where the pool's program did so for all that it passes. `name`: its name, which then changes.
  Status PromiseFor(const BlockOwner& owner, CUstream stream, StreamName& name);
  // What this thread's caches have of the pool, else the pool.
  Result<CUdeviceptr> AllocateFrom(Slot& slot, Pool& pool, uint64_t bytes, StreamKey stream);
  // Whoever has the block there.
  Result<std::shared_ptr<BlockOwner>> OwnerOf(CUdeviceptr address) const;

  const std::shared_ptr<const Driver> driver_;
  const Settings settings_;
  const ForkGuard forked_;  // CUDA does not survive fork()
  DeviceTable devices_;
  RuntimeParts parts_;
  PoolTable pools_;  // goes first: its pools use the rest
  MemorySearch search_{pools_, parts_, devices_.captures()};
  ScopeTable scopes_;
  StreamNames stream_names_;
  StreamDevices stream_devices_;
  Mutex mutex_{LockRank::kRuntime};  // held while a default pool is made: threads that race make one
  CaptureHandle next_capture_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  ReservedMap<CaptureHandle, std::shared_ptr<Pool>> captures_ COMMPOOL_GUARDED_BY(mutex_);
  // 0 where there is none yet.
  std::array<std::atomic<PoolHandle>, kMostDevices> default_pools_ = {};
};

[[gnu::always_inline]] inline CUdeviceptr Runtime::AllocateCached(Target target, uint64_t bytes, CUstream stream) {
  if (forked_.InChild()) return 0;
  const Slot* const slot = parts_.caches.FindSlot(RouteOf(target, stream), bytes);
  const bool serves = slot != nullptr && slot->cache != nullptr && stream_names_.Means(stream, slot->stream);
  return serves ? slot->cache->Take(bytes) : 0;
}

[[gnu::always_inline]] inline bool Runtime::FreeCached(CUdeviceptr address) {
  return !forked_.InChild() && parts_.caches.Give(address);
}

[[gnu::always_inline]] inline ScopeHandle Runtime::BeginScopeAtOnce(PoolHandle pool, const SizeRange& sizes,
                                                                    Exhaustion exhaustion) {
  const std::optional<int> device = pools_.DeviceAtOnce(pool);
  return device && !forked_.InChild() ? scopes_.BeginAtOnce({pool, sizes, *device, exhaustion}) : ScopeHandle{0};
}

inline bool Runtime::EndScopeAtOnce(ScopeHandle scope) { return !forked_.InChild() && scopes_.EndAtOnce(scope); }

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_RUNTIME_H_
