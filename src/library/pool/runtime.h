// Runtime: a driver and everything above it. It owns the pools, scopes, captures and caches of a process. The C ABI
// calls it and holds the process's only one; tests make as many as they like.
//
// Any thread. Its destructor (the end of a test, or of the process) abandons the pools that are left: it calls neither
// NCCL nor a broken context.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/fork_guard.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/graph_handles.h"
#include "src/library/driver/loader.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/communicator_sleep.h"
#include "src/library/pool/memory_search.h"
#include "src/library/pool/options.h"
#include "src/library/pool/pool.h"
#include "src/library/pool/scope_table.h"
#include "src/library/pool/settings/settings.h"
#include "src/library/pool/shared/device_state.h"
#include "src/library/sharing/pool_import.h"
#include "src/library/stream/stream_names.h"

namespace commpool::internal {

// Lock: `runtime`, only to make default pools and for the table of captures. Everything else is locked inside of the
// parts. It shares the driver's table, and owns with its members everything that a process has one of. Each allocation
// and free begins here.
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
  const WindowBook& windows() const { return parts_.windows; }
  DeviceTable& devices() { return devices_; }
  MemorySearch& search() { return search_; }
  ShareServer& shares() { return parts_.shares; }
  recording::Recorder& recorder() { return parts_.recorder; }
  ImportTable& imports() { return imports_; }
  SleepingCommunicators& sleeping_communicators() { return sleeping_communicators_; }

  // The configuration already has the settings of COMMPOOL_CONF (Settings::ApplyTo). Collective for a symmetric
  // configuration.
  Result<PoolHandle> CreatePool(PoolConfiguration configuration);
  // Tells the other ranks of a symmetric pool that this one cannot make it. Returns what all ranks return.
  Status RefusePool(const PoolConfiguration& home, const Status& why);
  // kInvalidArgument for a default pool. Not collective: a symmetric pool that was not closed before keeps its memory
  // mapped.
  Status DestroyPool(PoolHandle handle);
  // Made at its first use: vmm where the device has it, else cuda. One pool for each device of the process; the program
  // can neither close nor destroy it.
  Result<PoolHandle> DefaultPool(int device);

  // Allocates from what the target names: a pool; or the innermost scope that catches the request, else the device's
  // default pool. Scopes of exhausted pools may hand it on to the next scope out. A negative device means the stream's.
  // kNotCaught where only scopes are asked, and none catches it or all hand it on.
  Result<CUdeviceptr> Allocate(Target target, uint64_t bytes, CUstream stream);
  Result<CUdeviceptr> Allocate(int device, uint64_t bytes, CUstream stream) {
    return Allocate(Target::Device(device), bytes, stream);
  }
  Result<CUdeviceptr> AllocateFrom(PoolHandle pool, uint64_t bytes, CUstream stream) {
    return Allocate(Target::Pool(pool), bytes, stream);
  }
  // kNotFound for an address that is none of ours, or was freed before.
  Status Free(CUdeviceptr address);

  // The fast path: takes a block from a cache that this thread used lately, or gives it back, without a lock or a
  // function call (except for the number of a stream without a promise). A large block comes from the free memory of
  // the pool that this thread remembers. 0, or false, where that is not possible now: then call the functions above.
  CUdeviceptr AllocateAtOnce(Target target, uint64_t bytes, CUstream stream);
  bool FreeCached(CUdeviceptr address);
  // Whether a scope catches the request. Works in user functions, and in forked children, where no shared scope
  // catches.
  bool Catches(int device, uint64_t bytes, CUstream stream);

  // Records what there is, and what happens from now on: of one pool, or of all where `only` is 0.
  // kFailedPrecondition where a recording is under way; kNotFound for a handle that is none.
  Status Record(const recording::RecorderOptions& options, PoolHandle only);
  // kFailedPrecondition where none is under way.
  Status EndRecording();

  // The slow way of both: it takes locks, and recordings hear of it.
  Result<ScopeHandle> BeginScope(const ScopeRequest& request);
  Status EndScope(ScopeHandle scope);
  // Begins or ends a scope of this thread without a lock. 0, or false, where that is impossible: then ScopeTable does
  // it.
  ScopeHandle BeginScopeAtOnce(PoolHandle pool, const SizeRange& sizes, Exhaustion exhaustion);
  bool EndScopeAtOnce(ScopeHandle scope);

  // The call passes the stream, so it lives now.
  Status RecordStream(CUdeviceptr address, CUstream stream);
  // The program promises to release the stream before it destroys it (rule 11).
  Status PromiseStream(CUstream stream);
  // Waits for the stream, so that no pool needs the handle any more.
  Status ReleaseStream(CUstream stream);
  // Names a stream that the current call passes. A default stream's handle means the stream at `place`.
  Result<StreamName> NameOf(CUstream stream, int place) const;
  // In a call about the pool: a pool that only its own device uses means its own default streams, and any other pool
  // those of the current device, or its own where none is current.
  Result<StreamName> NameFor(const Pool& pool, CUstream stream);
  // Puts the handle of the block's stream into it, as a program must see it.
  commpool_block Shown(commpool_block block) const {
    block.stream = stream_names_.ShownHandle(block.stream);
    return block;
  }

  // REQUIRES: the stream captures already.
  Result<CaptureHandle> BeginCapture(PoolHandle pool, CUstream stream);
  // kNotFound for a capture that has ended.
  Status EndCapture(CaptureHandle capture);

  // Every call of the library holds the result until its end: while a capture is open anywhere, the library's own
  // driver calls must not become part of it, or break it. One load where nothing captures. A capture in the usual mode
  // forbids some driver calls to every thread, so all calls of the process relax.
  std::optional<RelaxedCapture> Relax() const {
    return devices_.captures().any() ? std::make_optional<RelaxedCapture>(*driver_) : std::nullopt;
  }

  // For a free that a function of the program makes while the library runs it, perhaps under a lock: it takes effect at
  // the end of this thread's call. Not in another thread's: that one may hold what the function waits for, as Python's
  // lock.
  void PostponeFree(CUdeviceptr address);
  void FreePostponed() {
    if (any_postponed_.load(std::memory_order_relaxed)) FreeAllPostponed();
  }
  // kFailedPrecondition in a forked child. The C ABI asks it first.
  Status RefuseForkedChild() const { return forked_.InChild() ? RefuseChild() : Status(); }

 private:
  void FreeAllPostponed();
  static Status RefuseChild();
  // Devices beyond have no default pool.
  static constexpr size_t kMostDevices = 64;

  // The key by which this thread remembers who serves, with its scopes and the shared scopes as they are now. Both
  // counts only rise, so an equal sum means that neither has changed. A named pool needs no scopes, so its route stays
  // when they change.
  Route RouteOf(Target target, CUstream stream) const {
    const bool scoped = target.kind() != Target::Kind::kPool;
    return {nullptr, target, reinterpret_cast<uint64_t>(stream),
            scoped ? own_state.scope_changes + scopes_.shared_changes() : 0};
  }
  // What a handle means in a call, and whether that depends on the device that is current: then a route has the place
  // too, so that the fast path, which asks nobody, does not find it.
  struct NameInCall {
    StreamName name;
    bool by_current_device = false;
  };
  // A target that names a device means that one's default streams. `known`: the named pool, where the thread remembers
  // it.
  Result<NameInCall> NameIn(Target target, CUstream stream, const Pool* known);
  // A default stream's handle means the current device's stream, or that of `otherwise` where none is current;
  // kFailedPrecondition where that is none either (-1).
  Result<StreamName> NameAtCurrentDevice(CUstream stream, int otherwise);
  // Who serves the request: what the thread remembers, else what WhoServes says, which the thread then remembers. Where
  // it cannot remember, the answer is in `unkept`.
  Slot& SlotOf(const Route& route, uint64_t bytes, const StreamName& name, Slot& unkept) const;
  // Decides who serves: the named pool; or, of the scopes that began before `inner` and catch the request, the one that
  // began last; or the device's default pool. No pool where only scopes are asked and none catches, or while the device
  // has no default pool yet.
  CaughtBy WhoServes(Target target, uint64_t bytes, StreamKey stream, const ScopePlace& inner) const;
  // Finds the pool that serves; makes a default pool where needed.
  Status FindPool(Slot& slot, Target target, std::shared_ptr<Pool>& pool);
  // Promises the stream where the program promised all streams of the pool. Changes `name`, the stream's name.
  Status PromiseFor(const BlockOwner& owner, CUstream stream, StreamName& name);
  bool ScopesAreHeard() const { return parts_.recorder.on() || parts_.ranges.any(); }
  // For a large block. 0 while a capture is open, because the library's driver calls must relax then.
  CUdeviceptr ServeAtOnce(const Slot& slot, uint64_t bytes, CUstream stream) const;
  // Takes from this thread's caches of the pool, else from the pool.
  Result<CUdeviceptr> AllocateFrom(Slot& slot, Pool& pool, uint64_t bytes, StreamKey stream);
  // The pool of a route that this thread does not know yet; null where it has lost its handle.
  std::shared_ptr<Pool> FindPoolOf(const Route& route);

  const std::shared_ptr<const Driver> driver_;
  const Settings settings_;
  const ForkGuard forked_;  // CUDA does not survive fork()
  DeviceTable devices_;
  RuntimeParts parts_;
  PoolTable pools_;  // destroyed first: its pools use the other members
  MemorySearch search_;
  SleepingCommunicators sleeping_communicators_;
  ScopeTable scopes_;
  // Which streams were promised, and the numbers of the others (rule 11).
  StreamNames stream_names_;
  ImportTable imports_;
  // Held while a recording begins or ends.
  Mutex recording_{LockRank::kCollective};
  // Held while a default pool is made, so that racing threads make only one, and for the table of open captures.
  Mutex mutex_{LockRank::kRuntime};
  std::atomic<bool> any_postponed_{false};
  Mutex postponed_mutex_{LockRank::kLeaf};
  using PostponedFree = std::pair<std::thread::id, CUdeviceptr>;
  std::vector<PostponedFree> postponed_ COMMPOOL_GUARDED_BY(postponed_mutex_);
  // Never 0: a capture's number is its part of the pool, and 0 is the common part.
  CaptureHandle next_capture_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  // The open ones; each keeps its pool alive until EndCapture.
  std::map<CaptureHandle, std::shared_ptr<Pool>> captures_ COMMPOOL_GUARDED_BY(mutex_);
  // 0: not made yet.
  std::array<std::atomic<PoolHandle>, kMostDevices> default_pools_ = {};
};

// A handle that came back may mean another stream than the slot's, so its number is compared (rule 11). While a capture
// is open the pool looks whether the stream captures: then it serves from the graph's part, or refuses.
[[gnu::always_inline]] inline CUdeviceptr Runtime::AllocateAtOnce(Target target, uint64_t bytes, CUstream stream) {
  if (forked_.InChild() || devices_.captures().any()) return 0;
  const Slot* const slot = parts_.caches.FindSlot(RouteOf(target, stream), bytes);
  if (slot == nullptr) return 0;
  if (bytes > engine::kSmallBytes) return ServeAtOnce(*slot, bytes, stream);
  const bool serves = slot->cache != nullptr && stream_names_.Means(stream, slot->stream);
  return serves ? slot->cache->Take(bytes) : 0;
}

[[gnu::always_inline]] inline bool Runtime::FreeCached(CUdeviceptr address) {
  return !forked_.InChild() && parts_.caches.Give(address);
}

// A recording and a tool must hear of each scope, and a forked child of its error: they take the slow way.
[[gnu::always_inline]] inline ScopeHandle Runtime::BeginScopeAtOnce(PoolHandle pool, const SizeRange& sizes,
                                                                    Exhaustion exhaustion) {
  const std::optional<int> device = pools_.DeviceAtOnce(pool);
  return device && !forked_.InChild() && !ScopesAreHeard() ? scopes_.BeginAtOnce({pool, sizes, *device, exhaustion})
                                                           : ScopeHandle{0};
}

inline bool Runtime::EndScopeAtOnce(ScopeHandle scope) {
  return !forked_.InChild() && !ScopesAreHeard() && scopes_.EndAtOnce(scope);
}

}  // namespace commpool::internal
