#include "src/pool/runtime.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "src/base/host_failure.h"
#include "src/base/host_patience.h"
#include "src/driver/device_info.h"
#include "src/driver/diagnosis.h"
#include "src/driver/graph_handles.h"
#include "src/pool/pool_factory.h"

namespace commpool::internal {

namespace {

// Asks without breaking anything.
Status CheckNotCaptured(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  Status status = CheckCuda(driver, driver.cuda.cuStreamIsCapturing(stream, &capturing),
                            {.call = "cuStreamIsCapturing", .likely_cause = "the stream was destroyed before"});
  if (!status.ok() || capturing == CU_STREAM_CAPTURE_STATUS_NONE) return status;
  return Status(StatusCode::kFailedPrecondition,
                "the stream is being captured, and waiting for its work would break the capture: end it first");
}

// The pool of an open scope serves no more.
Status RefuseScope(const std::string& why, ScopeHandle scope) {
  return Status(StatusCode::kFailedPrecondition,
                why + "; scope " + std::to_string(scope) + " routes allocations to it: end that scope first");
}

// A failure says which scopes' pools handed the request on.
Result<CUdeviceptr> NamePassed(Result<CUdeviceptr> address, const std::string& passed) {
  if (address.ok() || passed.empty()) return address;
  return Status(address.status().code(), address.status().message() + "; exhausted before it, by scopes: " + passed);
}

}  // namespace

Runtime::Runtime(std::shared_ptr<const Driver> driver, Settings settings)
    : driver_(std::move(driver)),
      settings_(std::move(settings)),
      devices_(*driver_, settings_.device_limit()),
      parts_(*driver_, search_),
      stream_devices_(*driver_) {
  static_cast<void>(HostReserve::Fill());
}

Runtime::~Runtime() {
  parts_.caches.CloseAll();
  for (const std::shared_ptr<Pool>& pool : pools().All()) pool->Abandon();
  parts_.links.StopWatching();
}

Status Runtime::RefuseForkedChild() const {
  if (!forked_.InChild()) return Status();
  return Status(StatusCode::kFailedPrecondition,
                "commpool was opened in process " + std::to_string(getppid()) +
                    " or before and is used in a forked child: CUDA does not survive fork(); start workers by spawn, "
                    "or fork before the first call");
}

std::optional<RelaxedCapture> Runtime::Relax() const {
  return devices_.captures().any() ? std::make_optional<RelaxedCapture>(*driver_) : std::nullopt;
}

Result<PoolHandle> Runtime::CreatePool(PoolConfiguration configuration) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  search_.ReleaseDestroyed();
  const std::vector<SettingSource> sources = Insist([&] { return configuration.sources; });  // other ranks may wait
  Result<std::shared_ptr<Pool>> pool = MakePool(*driver_, devices_, parts_, std::move(configuration));
  if (!pool.ok()) return WithSources(pool.status(), sources);
  const PoolHandle handle = pools_.NextHandle();
  (*pool)->SetHandle(handle);
  const int device = (*pool)->device();
  std::string title = (*pool)->title();
  pools_.Add(handle, std::move(*pool), {device, std::move(title)});
  return handle;
}

Status Runtime::RefusePool(const PoolConfiguration& home, const Status& why) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  return internal::RefusePool(*driver_, devices_, parts_, home, why);
}

Status Runtime::DestroyPool(PoolHandle handle) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  search_.ReleaseDestroyed();
  Result<std::shared_ptr<Pool>> pool = pools_.Find(handle);
  if (!pool.ok()) return pool.status();
  status = (*pool)->CheckMayEnd();
  if (!status.ok()) return status;
  pool = pools_.Remove(handle);
  if (!pool.ok()) return pool.status();  // another thread was faster
  BestEffort([&] { (*pool)->Destroy(); });
  return Status();
}

Result<PoolHandle> Runtime::DefaultPool(int device) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  if (device < 0 || static_cast<size_t>(device) >= kMostDevices) {
    return Status(StatusCode::kInvalidArgument, "there is no device " + std::to_string(device));
  }
  std::atomic<PoolHandle>& made = default_pools_[static_cast<size_t>(device)];
  if (const PoolHandle handle = made.load(std::memory_order_acquire)) return handle;
  MutexLock lock(mutex_);
  if (const PoolHandle handle = made.load(std::memory_order_acquire)) return handle;
  Result<DeviceInfo> info = DescribeDevice(*driver_, device);
  if (!info.ok()) return info.status();
  PoolConfiguration configuration;
  configuration.name = "default";
  configuration.keeper = Keeper::kLibrary;
  configuration.backing.kind = info->virtual_memory ? BackingKind::kVmm : BackingKind::kCuda;
  configuration.backing.placement.device = device;
  status = settings_.ApplyTo(configuration);
  if (!status.ok()) return status;
  Result<PoolHandle> pool = CreatePool(std::move(configuration));
  if (pool.ok()) made.store(*pool, std::memory_order_release);
  return pool;
}

CUdeviceptr Runtime::AllocateAtOnce(int device, uint64_t bytes, CUstream stream) {
  if (static_cast<size_t>(device) >= kMostDevices) return 0;
  const RouteKey key = RouteKeyOf(device, stream);
  PoolHandle pool = scopes_.RouteAtOnce(device, bytes, stream);
  if (pool == 0) pool = default_pools_[static_cast<size_t>(device)].load(std::memory_order_acquire);
  if (pool == 0 || pool == kOnlyTheTableKnows) return 0;
  const CUdeviceptr address = AllocateAtOnceFrom(pool, bytes, stream);
  if (address == 0 || bytes > engine::kSmallBytes) return address;
  SizeRange alike{1, engine::kSmallBytes};
  scopes_.Narrow(alike, bytes);
  if (key.shared_changes % 2 == 0 && key.shared_changes == scopes_.shared_changes()) {
    parts_.caches.Remember(key, alike.least, alike.most, pool, KeyOfStream(stream));
  }
  return address;
}

Result<CUdeviceptr> Runtime::Allocate(int device, uint64_t bytes, CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  if (device < 0) {
    Result<int> found = stream_devices_.DeviceOf(stream);
    if (!found.ok()) return found.status();
    device = *found;
  }
  const RoutedRequest request = {device, KeyOfStream(stream), bytes};
  std::string passed;
  if (auto caught = AllocateCaught(request, passed)) return std::move(*caught);
  Result<PoolHandle> fallback = DefaultPool(device);
  if (!fallback.ok()) return fallback.status();
  Result<std::shared_ptr<Pool>> pool = pools_.Find(*fallback);
  if (!pool.ok()) return pool.status();
  return NamePassed(AllocateFrom(**pool, bytes, request.stream), passed);
}

std::optional<Result<CUdeviceptr>> Runtime::AllocateInScope(int device, uint64_t bytes, CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  std::string passed;
  return AllocateCaught({device, KeyOfStream(stream), bytes}, passed);
}

std::optional<Result<CUdeviceptr>> Runtime::AllocateCaught(const RoutedRequest& request, std::string& passed) {
  WayOut way;
  std::optional<CaughtBy> caught = scopes_.Route(request);
  for (; caught; caught = scopes_.Route(request, caught->place)) {
    const Result<std::shared_ptr<Pool>> found = pools_.Find(caught->pool);
    if (!found.ok()) {
      return RefuseScope(pools_.TitleOfRemoved(caught->pool) + " is closed: it was destroyed", caught->scope);
    }
    Pool& pool = **found;
    if (way.PassesBy(pool.symmetric())) continue;
    Result<CUdeviceptr> address = AllocateFrom(pool, request.bytes, request.stream);
    if (address.status().code() == StatusCode::kFailedPrecondition && !pool.open()) {
      return RefuseScope(address.status().message(), caught->scope);
    }
    const auto failure = static_cast<commpool_status>(address.status().code());
    if (address.ok() || !way.HandsOn(caught->exhaustion, pool.symmetric(), failure)) {
      return NamePassed(std::move(address), passed);
    }
    passed += (passed.empty() ? "" : ", ") + pool.name();
  }
  return std::nullopt;
}

Result<CUdeviceptr> Runtime::AllocateFrom(PoolHandle handle, uint64_t bytes, CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  Result<std::shared_ptr<Pool>> pool = pools_.Find(handle);
  if (!pool.ok()) return pool.status();
  return AllocateFrom(**pool, bytes, KeyOfStream(stream));
}

Result<CUdeviceptr> Runtime::AllocateFrom(Pool& pool, uint64_t bytes, StreamKey stream) {
  const CUdeviceptr cached = parts_.caches.Take(pool.handle(), pool.name(), bytes, stream);
  return cached != 0 ? Result<CUdeviceptr>(cached) : pool.Allocate(bytes, stream);
}

Status Runtime::Free(CUdeviceptr address) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  Result<std::shared_ptr<BlockOwner>> owner = parts_.addresses.OwnerOf(address);
  if (!owner.ok()) return owner.status();
  return parts_.caches.Give(address, **owner) ? Status() : (*owner)->Free(address);
}

Status Runtime::RecordStream(CUdeviceptr address, CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  Result<std::shared_ptr<BlockOwner>> owner = parts_.addresses.OwnerOf(address);
  if (!owner.ok()) return owner.status();
  return (*owner)->RecordStream(address, KeyOfStream(stream));
}

Result<CaptureHandle> Runtime::BeginCapture(PoolHandle handle, CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  Result<std::shared_ptr<Pool>> pool = pools_.Find(handle);
  if (!pool.ok()) return pool.status();
  Result<int> stream_device = stream_devices_.DeviceOf(stream);
  if (!stream_device.ok()) return stream_device.status();
  CaptureHandle capture = 0;
  {
    MutexLock lock(mutex_);
    capture = next_capture_++;
  }
  status = (*pool)->BeginCapture(capture, stream, *stream_device);
  if (!status.ok()) return status;
  MutexLock lock(mutex_);
  captures_.emplace(capture, OpenCapture{std::move(*pool), stream});
  return capture;
}

Status Runtime::EndCapture(CaptureHandle capture) {
  OpenCapture ended;
  {
    MutexLock lock(mutex_);
    const auto found = captures_.find(capture);
    if (found == captures_.end()) {
      return Status(StatusCode::kNotFound, "capture " + std::to_string(capture) + " has ended, or never began");
    }
    ended = std::move(found->second);
    captures_.erase(found);
  }
  ended.pool->EndCapture(capture);
  AnnouncedCaptures& announced = devices_.captures();
  if (!announced.TakePostponed()) return Status();
  announced.Postpone();
  // The program may end the stream's own capture later: then a later call sees to it.
  BestEffort([&] {
    if (CheckNotCaptured(*driver_, ended.stream).ok()) search_.ReleaseDestroyed();
  });
  return Status();
}

Status Runtime::ReleaseStream(CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
    return Status(StatusCode::kInvalidArgument, "a default stream is never destroyed, so it is never released");
  }
  status = CheckNotCaptured(*driver_, stream);
  if (!status.ok()) return status;
  const std::optional<RelaxedCapture> relaxed = Relax();
  status = CheckCuda(*driver_, driver_->cuda.cuStreamSynchronize(stream),
                     {.call = "cuStreamSynchronize", .likely_cause = "the stream was destroyed before"});
  if (!status.ok()) return status;
  const StreamKey key = KeyOfStream(stream);
  for (const ReturnedBlocks& returned : parts_.caches.ForgetStream(key)) returned.owner->TakeBack(returned.blocks);
  for (const std::shared_ptr<Pool>& pool : pools_.All()) pool->ForgetStream(key);
  parts_.observers.Tell(&MemoryObserver::StreamReleased, stream);
  stream_devices_.Forget(stream);
  return Status();
}

}  // namespace commpool::internal
