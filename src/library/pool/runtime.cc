// Runtime: what the inline functions of runtime.h cannot answer from this thread's caches.
#include "src/library/pool/runtime.h"

#include <unistd.h>

#include <algorithm>

#include "src/library/base/log.h"
#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/pool/pool_factory.h"

namespace commpool::internal {

namespace {

// A wait for a capturing stream breaks its capture. So a call that will wait for a stream asks this first. Only for a
// handle that the present call passes, or that is promised (rule 11).
Status CheckNotCaptured(const Driver& driver, CUstream stream) {
  const auto capturing = COMMPOOL_TRY(CaptureStatusOf(driver, stream, "the stream was destroyed before"));
  if (capturing == CU_STREAM_CAPTURE_STATUS_NONE) return Status();
  return FailedPrecondition(
      "the stream is being captured, and waiting for its work would break the capture: end it first");
}

// The error for an open scope whose pool serves no more.
Status RefuseScope(const std::string& why, ScopeHandle scope) {
  return FailedPrecondition(why, "; scope ", scope, " routes allocations to it: end that scope first");
}

}  // namespace

Runtime::Runtime(std::shared_ptr<const Driver> driver, Settings settings)
    : driver_(std::move(driver)),
      settings_(std::move(settings)),
      devices_(*driver_, settings_.device_limit()),
      parts_{*driver_, devices_, search_},
      search_(pools_, parts_),
      sleeping_communicators_(parts_, pools_),
      stream_names_(*driver_, devices_.places()) {}

// The order matters. Caches close before their pools end, so no thread gets a block of a pool that is gone. The threads
// that watch connections end last: pools hear of lost ranks from them.
Runtime::~Runtime() {
  parts_.recorder.Stop();
  parts_.shares.Stop();
  parts_.caches.CloseAll();
  for (const std::shared_ptr<Pool>& pool : pools().All()) pool->Abandon();
  parts_.links.StopWatching();
}

// The recorder is on before the pools tell what they have: a change in between is told twice, and not lost.
Status Runtime::Record(const recording::RecorderOptions& options, PoolHandle only) {
  recording::RecorderOptions asked = options;
  if (only != 0) {
    const std::shared_ptr<Pool> pool = COMMPOOL_TRY(pools_.Find(only));
    asked.only = pool->basis().record.number();
  }
  MutexLock lock(recording_);
  COMMPOOL_TRY(parts_.recorder.Start(asked, [this] {
    for (const std::shared_ptr<Pool>& pool : pools_.All()) pool->RecordSlice();
  }));
  for (const std::shared_ptr<Pool>& pool : pools_.All()) pool->RecordPresent();
  return Status();
}

Status Runtime::EndRecording() {
  MutexLock lock(recording_);
  if (!parts_.recorder.on()) return FailedPrecondition("no recording is under way");
  parts_.recorder.Stop();
  return Status();
}

// A recording shows a scope as a span from its begin to its end, of whichever thread.
Result<ScopeHandle> Runtime::BeginScope(const ScopeRequest& request) {
  Result<ScopeHandle> scope = scopes_.Begin(request);
  if (scope.ok()) request.pool->basis().record.BeganHandle(recording::SpanKind::kScope, *scope, "scope");
  return scope;
}

// The span ends first: EndScope may find that the scope was not the innermost, and ends it all the same.
Status Runtime::EndScope(ScopeHandle scope) {
  parts_.EndHandle(recording::SpanKind::kScope, scope);
  return scopes_.End(scope);
}

Status Runtime::RefuseChild() {
  return FailedPrecondition(
      "commpool was opened in process ", getppid(),
      " or before and is used in a forked child: CUDA does not survive fork(); start workers by spawn, "
      "or fork before the first call");
}

// The pool knows its handle before the table has it: whoever finds the pool there may use the handle at once.
Result<PoolHandle> Runtime::CreatePool(PoolConfiguration configuration) {
  search_.ReleaseDestroyed();
  const std::vector<SettingSource> sources = configuration.sources;
  Result<std::shared_ptr<Pool>> pool = MakePool(parts_, std::move(configuration));
  if (!pool.ok()) return WithSources(pool.status(), sources);
  // Only now, so that a pool that could not be made uses no handle.
  const PoolHandle handle = pools_.NextHandle();
  (*pool)->basis().handle = handle;  // before another thread can find the pool
  pools_.Add(handle, *pool, (*pool)->device());
  // After that, so that a recording that begins meanwhile knows the pool by one of the two.
  (*pool)->basis().RecordMade();
  return handle;
}

// For CreatePools, whose other requests may be fine: this one's ranks hear the reason.
Status Runtime::RefusePool(const PoolConfiguration& home, const Status& why) {
  return internal::RefusePool(parts_, home, why);
}

// Whoever takes the handle out of the table ends the pool, so two threads cannot end it twice.
Status Runtime::DestroyPool(PoolHandle handle) {
  search_.ReleaseDestroyed();
  std::shared_ptr<Pool> pool = COMMPOOL_TRY(pools_.Find(handle));
  COMMPOOL_TRY(pool->basis().CheckMayEnd());
  COMMPOOL_TRY(pools_.Remove(handle, pool->basis().title));  // unless another thread was faster
  // The handle has ended in any case. Without host memory the pool keeps what it could not release.
  pool->Destroy();
  return Status();
}

// All calls but the first are one load. The lock is held across the driver's calls, so that threads that race make only
// one pool.
Result<PoolHandle> Runtime::DefaultPool(int device) {
  if (device < 0 || static_cast<size_t>(device) >= kMostDevices) return InvalidArgument("there is no device ", device);
  std::atomic<PoolHandle>& made = default_pools_[static_cast<size_t>(device)];
  if (const PoolHandle handle = made.load(std::memory_order_acquire)) return handle;
  MutexLock lock(mutex_);
  if (const PoolHandle handle = made.load(std::memory_order_acquire)) return handle;
  DeviceInfo info = COMMPOOL_TRY(DescribeDevice(*driver_, device));
  PoolConfiguration configuration;
  configuration.name = "default";
  configuration.keeper = Keeper::kLibrary;
  configuration.backing.kind = info.virtual_memory ? BackingKind::kVmm : BackingKind::kCuda;
  configuration.backing.placement.device = device;
  COMMPOOL_TRY(settings_.ApplyTo(configuration));
  Result<PoolHandle> pool = CreatePool(std::move(configuration));
  if (pool.ok()) made.store(*pool, std::memory_order_release);
  return pool;
}

// Takes no lock in the usual case. It makes no default pool: FindPool does, where the allocation needs it.
CaughtBy Runtime::WhoServes(Target target, uint64_t bytes, StreamKey stream, const ScopePlace& inner) const {
  CaughtBy server;
  if (target.kind() == Target::Kind::kPool) {
    server.pool = target.pool();
  } else if (const std::optional<CaughtBy> caught = scopes_.Route({target.device(), stream, bytes}, inner)) {
    server = *caught;
  } else if (target.kind() == Target::Kind::kDevice && static_cast<size_t>(target.device()) < kMostDevices) {
    server.pool = default_pools_[static_cast<size_t>(target.device())].load(std::memory_order_acquire);
  }
  return server;
}

// Scopes may change while this thread asks who serves. So it remembers the answer only if nothing has changed since the
// route was made. `alike` are the sizes that get the same answer.
Slot& Runtime::SlotOf(const Route& route, uint64_t bytes, const StreamName& name, Slot& unkept) const {
  const Target target = route.target;
  Slot* const known = parts_.caches.FindSlot(route, bytes);
  if (known != nullptr && known->stream == name.key) return *known;
  unkept.server = WhoServes(target, bytes, name.identity, kInnermost).pool;
  SizeRange alike{1, UINT64_MAX};
  if (target.kind() != Target::Kind::kPool) scopes_.Narrow(alike, bytes);
  const bool unchanged = RouteOf(target, nullptr).scopes == route.scopes;
  // 0 bytes are an error, which the pool tells: `alike` begins at 1.
  const bool keeps = unchanged && bytes != 0;
  Slot* const kept = keeps ? parts_.caches.Remember(route, name.key, alike.least, alike.most, unkept.server) : nullptr;
  return kept == nullptr ? unkept : *kept;
}

// The slot has a weak pointer, which saves the table's lock and keeps no destroyed pool alive. A pool that has lost its
// handle is looked up again, so that the caller gets the table's error.
Status Runtime::FindPool(Slot& slot, Target target, std::shared_ptr<Pool>& pool) {
  pool = slot.pool.lock();
  if (pool != nullptr && !pool->basis().life.destroyed()) return Status();
  if (slot.server == 0 && target.kind() != Target::Kind::kPool) {
    if (target.kind() == Target::Kind::kScopes) return Status(StatusCode::kNotCaught, "no scope catches it");
    slot.server = COMMPOOL_TRY(DefaultPool(target.device()));
  }
  pool = COMMPOOL_TRY(pools_.Find(slot.server));
  slot.pool = pool;
  return Status();
}

// A handle may mean another stream than when the slot was made, also one that was promised then.
CUdeviceptr Runtime::ServeAtOnce(const Slot& slot, uint64_t bytes, CUstream stream) const {
  if (slot.stream == kNoStream) return 0;
  if (!IsDefault(stream)) {
    const Result<StreamName> name = stream_names_.NameOf(stream);
    if (!name.ok() || name->key != slot.stream) return 0;
  }
  const std::shared_ptr<Pool> pool = slot.pool.lock();
  if (pool == nullptr) return 0;
  const PassedStream passes(slot.stream, stream);
  return pool->ServeAtOnce(bytes, stream, slot.stream);
}

// A cache first: its pair needs no lock. The fast path has looked only at the cache that the slot remembers.
Result<CUdeviceptr> Runtime::AllocateFrom(Slot& slot, Pool& pool, uint64_t bytes, StreamKey stream) {
  const bool may_take = !devices_.captures().any();
  const CUdeviceptr cached = may_take ? parts_.caches.TakeFor(slot, pool.name(), bytes, stream) : 0;
  return cached != 0 ? Result<CUdeviceptr>(cached) : pool.Allocate(bytes, stream);
}

// A promise changes the stream's key, so `name` is asked for again. Once for each stream and pool with that option:
// afterwards the key is a promised one.
Status Runtime::PromiseFor(const BlockOwner& owner, CUstream stream, StreamName& name) {
  if (IsDefault(stream) || !owner.streams_outlive()) return Status();
  COMMPOOL_TRY(PromiseStream(stream));
  name = COMMPOOL_TRY(stream_names_.NameOf(stream));
  return Status();
}

Result<StreamName> Runtime::NameOf(CUstream stream, int place) const {
  if (!IsDefault(stream)) return stream_names_.NameOf(stream);
  const StreamKey key = KeyOfStream(stream, place);
  return StreamName{key, key};
}

Result<StreamName> Runtime::NameAtCurrentDevice(CUstream stream, int otherwise) {
  if (!IsDefault(stream)) return stream_names_.NameOf(stream);
  const std::optional<int> current = COMMPOOL_TRY(devices_.places().Current());
  const int place = current.value_or(otherwise);
  if (place >= 0) return NameOf(stream, place);
  return FailedPrecondition(
      "no CUDA context is current on this thread, so a default stream names no device: call cudaSetDevice "
      "first, or name the device");
}

// The pool is asked each time, for it may get peers later.
Result<Runtime::NameInCall> Runtime::NameIn(Target target, CUstream stream, const Pool* known) {
  const bool of_pool = target.kind() == Target::Kind::kPool;
  // Only a pool can tell whether it has blocks without a stream.
  if (of_pool && reinterpret_cast<StreamKey>(stream) == kNoStream) return NameInCall{{kNoStream, kNoStream}};
  if (!IsDefault(stream)) return NameInCall{COMMPOOL_TRY(stream_names_.NameOf(stream))};
  if (!of_pool && target.device() < 0) return NameInCall{COMMPOOL_TRY(NameAtCurrentDevice(stream, -1))};
  if (!of_pool) return NameInCall{COMMPOOL_TRY(NameOf(stream, target.device()))};
  std::shared_ptr<Pool> found;
  if (known == nullptr) found = COMMPOOL_TRY(pools_.Find(target.pool()));
  const Pool& pool = known == nullptr ? *found : *known;
  return NameInCall{COMMPOOL_TRY(NameFor(pool, stream)), !pool.PlaceOfDefaultStreams()};
}

Result<StreamName> Runtime::NameFor(const Pool& pool, CUstream stream) {
  const std::optional<int> place = pool.PlaceOfDefaultStreams();
  return place ? NameOf(stream, *place) : NameAtCurrentDevice(stream, pool.device());
}

// In a forked child nobody may call the driver: there the handle alone names the stream.
bool Runtime::Catches(int device, uint64_t bytes, CUstream stream) {
  Slot unkept;
  StreamName name{KeyOfStream(stream, device), KeyOfStream(stream, device)};
  if (!forked_.InChild()) {
    const Result<StreamName> told = NameOf(stream, device);
    if (told.ok()) name = *told;  // else the allocation fails
  }
  const bool caught = SlotOf(RouteOf(Target::ScopesOf(device), stream), bytes, name, unkept).server != 0;
  if (!caught) scopes_.NoteUncaught();
  return caught;
}

// Asks one pool a round, from the innermost scope outwards, and goes on only where a scope hands an exhausted request
// on. The first round uses what this thread remembers. Later rounds are rare: nothing is remembered of them.
Result<CUdeviceptr> Runtime::Allocate(Target target, uint64_t bytes, CUstream stream) {
  Route route = RouteOf(target, stream);
  Slot* slot = parts_.caches.FindSlot(route, bytes);
  std::shared_ptr<Pool> pool = slot == nullptr ? nullptr : slot->pool.lock();
  auto [name, by_current_device] = COMMPOOL_TRY(NameIn(target, stream, pool.get()));
  const PassedStream passes(name.key, stream);
  std::optional<Slot> unkept;
  if (slot == nullptr || slot->stream != name.key || by_current_device) {
    // kNotSupported for the default stream of a context that is no primary one. Asked before anything is remembered.
    if (IsDefault(stream)) COMMPOOL_TRY(devices_.places().Current());
    if (target == Target::Device(-1)) target = Target::Device(PlaceOf(name.key));
    route = RouteOf(target, stream);
    if (by_current_device) route.stream |= AtPlace(PlaceOf(name.key) + 1, 0);
    slot = &SlotOf(route, bytes, name, unkept.emplace());
    pool = nullptr;
  }
  std::string passed;  // the pools that handed the request on
  WayOut way;
  for (ScopePlace inner = kInnermost;;) {
    const bool known = pool != nullptr && !pool->basis().life.destroyed();
    const Status found = known ? Status() : FindPool(*slot, target, pool);
    if (found.ok()) {
      if (IsUnpromised(name.key)) COMMPOOL_TRY(PromiseFor(*pool, stream, name));
      slot->stream = name.key;
    }
    // Rule 4: where a pool of this rank was short of memory, symmetric ones are passed by, for other ranks would not
    // follow.
    const bool asks = found.ok() && !way.PassesBy(pool->symmetric());
    Result<CUdeviceptr> address = asks ? AllocateFrom(*slot, *pool, bytes, name.key) : Result<CUdeviceptr>(found);
    if (address.ok() && by_current_device) {
      const Status added = pool->AddOwnDefaultStream(*address, stream, name.key);
      if (!added.ok()) static_cast<void>(pool->Free(*address));
      if (!added.ok()) return added;
    }
    if (address.ok()) return address;
    const CaughtBy caught = WhoServes(target, bytes, name.identity, inner);  // only failures need the scope
    // The scope that led here may have ended meanwhile, and its pool after it: then the request is another one's.
    const bool gone = !found.ok() || !pool->basis().life.open();
    const bool led_elsewhere = gone && caught.pool != slot->server;
    if (!found.ok() && !led_elsewhere) {
      if (caught.scope == 0) return address;
      return RefuseScope(pools_.TitleOfRemoved(caught.pool) + " is closed: it was destroyed", caught.scope);
    }
    if (asks && !led_elsewhere) {
      const StatusCode code = address.status().code();
      if (caught.scope != 0 && code == StatusCode::kFailedPrecondition && !pool->basis().life.open()) {
        return RefuseScope(address.status().message(), caught.scope);
      }
      const auto failure = static_cast<commpool_status>(code);
      if (caught.scope == 0 || !way.HandsOn(caught.exhaustion, pool->symmetric(), failure)) {
        // So the user sees why a pool further out was asked at all.
        return passed.empty() ? address
                              : Failure(code, address.status().message(), "; exhausted before it, by scopes: ", passed);
      }
      passed += (passed.empty() ? "" : ", ") + pool->name();
    }
    // The next round looks only at scopes that began before this one.
    if (!led_elsewhere) inner = caught.place;
    // Not the remembered slot: it keeps the answer for the first round.
    slot = &unkept.emplace();
    pool = nullptr;
    slot->server = WhoServes(target, bytes, name.identity, inner).pool;
  }
}

std::shared_ptr<Pool> Runtime::FindPoolOf(const Route& route) {
  Slot unkept;
  std::shared_ptr<Pool> pool;  // stays null where the pool has lost its handle
  static_cast<void>(FindPool(SlotOf(route, 1, {kNoStream, kNoStream}, unkept), route.target, pool));
  return pool;
}

// The steps of a free that FreeCached refused: another cache of this thread, room in a full one, the pool. The word of
// a live block that no cache may take names its pool. The address table, which has a lock, knows every other block.
Status Runtime::Free(CUdeviceptr address) {
  const engine::BlockWord word = parts_.caches.WordOf(address);
  if (word.state() == engine::BlockWord::State::kLive && word.owner() != 0) {
    // This thread mostly remembers the pool: then no lock is taken.
    const Route route = RouteOf(Target::Pool(word.owner()), reinterpret_cast<CUstream>(kNoStream));
    const Slot* const slot = parts_.caches.FindSlot(route, 1);
    std::shared_ptr<Pool> pool = slot == nullptr ? nullptr : slot->pool.lock();
    if (pool == nullptr) pool = FindPoolOf(route);
    if (pool != nullptr) return pool->Free(address);
  }
  std::shared_ptr<BlockOwner> owner = COMMPOOL_TRY(parts_.addresses.OwnerOf(address));
  return parts_.caches.GiveOrMakeRoom(address, *owner) ? Status() : owner->Free(address);
}

void Runtime::PostponeFree(CUdeviceptr address) {
  MutexLock lock(postponed_mutex_);
  postponed_.emplace_back(std::this_thread::get_id(), address);
  any_postponed_.store(true, std::memory_order_relaxed);
}

void Runtime::FreeAllPostponed() {
  const std::optional<RelaxedCapture> relaxed = Relax();
  // The first address that this thread postponed; 0 where none is left.
  const auto take = [this]() -> CUdeviceptr {
    MutexLock lock(postponed_mutex_);
    const auto own = std::ranges::find(postponed_, std::this_thread::get_id(), &PostponedFree::first);
    if (own == postponed_.end()) return 0;
    const CUdeviceptr address = own->second;
    postponed_.erase(own);
    any_postponed_.store(!postponed_.empty(), std::memory_order_relaxed);
    return address;
  };
  // A free may run a function of the program that frees more.
  while (const CUdeviceptr address = take()) {
    const Status freed = Free(address);
    if (!freed.ok()) Log(LogLevel::kWarning, "a free that a function of the program made: " + freed.message());
  }
}

Status Runtime::RecordStream(CUdeviceptr address, CUstream stream) {
  std::shared_ptr<BlockOwner> owner = COMMPOOL_TRY(parts_.addresses.OwnerOf(address));
  StreamName name = COMMPOOL_TRY(NameAtCurrentDevice(stream, owner->device()));
  const PassedStream passes(name.key, stream);
  if (IsUnpromised(name.key)) COMMPOOL_TRY(PromiseFor(*owner, stream, name));
  return owner->RecordStream(address, name.key);
}

// The handle is also the number of the graph's part of the pool, so it exists before the pool begins the capture.
Result<CaptureHandle> Runtime::BeginCapture(PoolHandle handle, CUstream stream) {
  std::shared_ptr<Pool> pool = COMMPOOL_TRY(pools_.Find(handle));
  StreamName name = COMMPOOL_TRY(NameAtCurrentDevice(stream, pool->device()));
  const PassedStream passes(name.key, stream);
  if (IsUnpromised(name.key)) COMMPOOL_TRY(PromiseFor(*pool, stream, name));
  CaptureHandle capture = 0;
  {
    MutexLock lock(mutex_);
    capture = next_capture_++;
  }
  COMMPOOL_TRY(pool->BeginCapture(capture, stream, name.key));
  MutexLock lock(mutex_);
  // A promise that another thread made meanwhile has not found the capture in the table.
  if (!IsDefault(stream) && stream_names_.IsPromised(stream))
    pool->captures().NoteKey(stream, KeyOfStream(stream, PlaceOf(name.key)));
  captures_.emplace(capture, std::move(pool));
  return capture;
}

// Destroyed pools may have postponed a release until no capture is open.
Status Runtime::EndCapture(CaptureHandle capture) {
  std::shared_ptr<Pool> pool;
  {
    MutexLock lock(mutex_);
    const auto found = captures_.find(capture);
    if (found == captures_.end()) return NotFound("capture ", capture, " has ended, or never began");
    pool = std::move(found->second);
    // Out of the table first: of two threads that end one capture, one gets kNotFound.
    captures_.erase(found);
  }
  const CUstream stream = pool->EndCapture(capture);
  if (!devices_.captures().postponed()) return Status();
  // The program may end the stream's capture later, or have destroyed the stream: then a later call does this.
  if (!stream_names_.IsPromised(stream)) return Status();
  if (CheckNotCaptured(*driver_, stream).ok()) search_.ReleaseDestroyed();
  return Status();
}

// Waits first, then forgets: only work that is done may be forgotten. All pools forget the stream before its name goes,
// because a new stream may get the same handle.
Status Runtime::ReleaseStream(CUstream stream) {
  if (IsDefault(stream)) return InvalidArgument("a default stream is never destroyed, so it is never released");
  COMMPOOL_TRY(CheckNotCaptured(*driver_, stream));
  const RelaxedCapture relaxed(*driver_);  // another thread may capture, unannounced
  COMMPOOL_TRY(CheckCuda(*driver_, driver_->cuda.cuStreamSynchronize(stream),
                         {.call = "cuStreamSynchronize", .likely_cause = "the stream was destroyed before"}));
  const StreamName name = COMMPOOL_TRY(stream_names_.NameOf(stream));
  const PassedStream passes(name.key, stream);
  // Where its promise was made in a capture, the identity may be that of a stream which had the handle before.
  const bool known_before = name.identity != name.key && COMMPOOL_TRY(stream_names_.HasNameOf(stream, name.identity));
  for (const std::shared_ptr<Pool>& pool : pools_.All()) {
    pool->captures().ForgetStream(name.key);
    pool->mode().ForgetStream(name.key);
    if (known_before) pool->mode().ForgetStream(name.identity);  // blocks from before the promise
  }
  stream_names_.Release(stream);
  return Status();
}

// A promise is for the process: every pool may record on the stream from now on.
// An open capture that began on the stream knows it by the key that it had until now.
Status Runtime::PromiseStream(CUstream stream) {
  COMMPOOL_TRY(stream_names_.Promise(stream));
  if (IsDefault(stream) || !devices_.captures().any()) return Status();
  const StreamName name = COMMPOOL_TRY(stream_names_.NameOf(stream));
  MutexLock lock(mutex_);
  for (const auto& [handle, pool] : captures_) pool->captures().NoteKey(stream, name.key);
  return Status();
}

}  // namespace commpool::internal
