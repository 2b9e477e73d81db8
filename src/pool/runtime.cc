#include "src/pool/runtime.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "src/driver/device_info.h"
#include "src/driver/diagnosis.h"
#include "src/pool/block_words.h"
#include "src/pool/pool_factory.h"

namespace commpool::internal {

namespace {

bool IsExhausted(const Status& status) {
  return status.code() == StatusCode::kExhausted || status.code() == StatusCode::kOutOfMemory;
}

// A failure says which scopes' pools handed the request on.
Result<CUdeviceptr> NamePassed(Result<CUdeviceptr> address, const std::string& passed) {
  if (address.ok() || passed.empty()) return address;
  return Status(address.status().code(), address.status().message() + "; exhausted before it, by scopes: " + passed);
}

}  // namespace

Runtime::Runtime(std::shared_ptr<const Driver> driver)
    : driver_(std::move(driver)), devices_(*driver_), shared_(*driver_), stream_devices_(*driver_) {}

Runtime::~Runtime() {
  shared_.caches->CloseAll();
  for (const std::shared_ptr<Pool>& pool : pools().All()) pool->Abandon();
}

Status Runtime::RefuseForkedChild() const {
  if (!forked_.InChild()) return Status();
  return Status(StatusCode::kFailedPrecondition,
                "commpool was opened in process " + std::to_string(getppid()) +
                    " or before and is used in a forked child: CUDA does not survive fork(); start workers by spawn, "
                    "or fork before the first call");
}

Result<PoolHandle> Runtime::CreatePool(PoolConfiguration configuration) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  Result<std::shared_ptr<Pool>> pool = MakePool(*driver_, devices_, shared_, std::move(configuration));
  if (!pool.ok()) return pool.status();
  return shared_.table.Add(std::move(*pool));
}

Status Runtime::RefusePool(const PoolConfiguration& home, const Status& why) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  return internal::RefusePool(*driver_, devices_, home, why);
}

Status Runtime::DestroyPool(PoolHandle handle) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  for (size_t device = 0; device < kMostDevices; ++device) {
    if (handle == 0 || default_pools_[device].load(std::memory_order_acquire) != handle) continue;
    return Status(StatusCode::kInvalidArgument, "the default pool of device " + std::to_string(device) +
                                                    " is the library's; trim() gives its free memory back");
  }
  Result<std::shared_ptr<Pool>> pool = shared_.table.Remove(handle);
  if (!pool.ok()) return pool.status();
  (*pool)->Retire();
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
  configuration.backing.kind = info->virtual_memory ? BackingKind::kVmm : BackingKind::kCuda;
  configuration.backing.placement.device = device;
  Result<PoolHandle> pool = CreatePool(std::move(configuration));
  if (pool.ok()) made.store(*pool, std::memory_order_release);
  return pool;
}

Result<CUdeviceptr> Runtime::Allocate(int device, uint64_t bytes, CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  if (device < 0) {
    Result<int> found = stream_devices_.DeviceOf(stream);
    if (!found.ok()) return found.status();
    device = *found;
  }
  return AllocateRouted({device, KeyOfStream(stream), bytes}, stream);
}

Result<CUdeviceptr> Runtime::AllocateRouted(const RoutedRequest& request, CUstream stream) {
  std::string passed;  // the pools that had no memory
  bool rank_local = false;
  std::optional<CaughtBy> caught = scopes_.Route(request);
  for (; caught; caught = scopes_.Route(request, caught->scope)) {
    Pool& pool = *caught->pool;
    // What memory one rank has left must not decide where a symmetric pool places its blocks (rule 4).
    if (rank_local && pool.symmetric()) continue;
    Result<CUdeviceptr> address(TakeFromCache(pool.handle(), request.bytes, request.stream));
    if (*address == 0) address = pool.Allocate(request.bytes, request.stream);
    if (address.ok() || caught->exhaustion == Exhaustion::kError || !IsExhausted(address.status())) {
      return NamePassed(std::move(address), passed);
    }
    rank_local = rank_local || !pool.symmetric();
    passed += (passed.empty() ? "" : ", ") + pool.name();
  }
  Result<PoolHandle> fallback = DefaultPool(request.device);
  if (!fallback.ok()) return fallback.status();
  return NamePassed(AllocateFrom(*fallback, request.bytes, stream), passed);
}

Result<CUdeviceptr> Runtime::AllocateFrom(PoolHandle handle, uint64_t bytes, CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  const StreamKey key = KeyOfStream(stream);
  if (const CUdeviceptr address = TakeFromCache(handle, bytes, key)) return address;
  Result<std::shared_ptr<Pool>> pool = shared_.table.Find(handle);
  if (!pool.ok()) return pool.status();
  return (*pool)->Allocate(bytes, key);
}

CUdeviceptr Runtime::AllocateCached(int device, uint64_t bytes, CUstream stream) {
  if (device < 0 || static_cast<size_t>(device) >= kMostDevices) return 0;
  const std::optional<PoolHandle> routed = scopes_.RouteAtOnce(device, bytes);
  if (!routed) return 0;
  const PoolHandle pool =
      *routed != 0 ? *routed : default_pools_[static_cast<size_t>(device)].load(std::memory_order_acquire);
  return AllocateCachedFrom(pool, bytes, stream);
}

CUdeviceptr Runtime::TakeFromCache(PoolHandle handle, uint64_t bytes, StreamKey stream) {
  const CUdeviceptr address = TakeCached(handle, bytes, stream);
  if (address == 0 || !shared_.annotations.listening) return address;
  const engine::AtomicWord* const word = shared_.caches->blocks().Find(address);
  const engine::BlockWord block(word->load(std::memory_order_relaxed));
  const Result<std::shared_ptr<Pool>> pool = shared_.table.Find(handle);
  BlockWords(shared_).TellAllocated(address, engine::ClassBytes(block.size_class()), stream,
                                    pool.ok() ? (*pool)->name().c_str() : "");
  return address;
}

bool Runtime::GiveToCache(CUdeviceptr address) {
  // Told before it is true: another thread may serve the block again at once. Where the cache refuses, the pool's own
  // free tells again.
  return GiveCached(address, [&] { BlockWords(shared_).TellFreed(address); });
}

Status Runtime::Free(CUdeviceptr address) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  Result<std::shared_ptr<Pool>> owner = shared_.table.Owner(address);
  if (!owner.ok()) return owner.status();
  if (FreeToOwnCache(address, **owner)) return Status();
  return (*owner)->Free(address);
}

bool Runtime::FreeToOwnCache(CUdeviceptr address, Pool& owner) {
  const engine::AtomicWord* const word = shared_.caches->blocks().Find(address);
  if (word == nullptr) return false;
  const engine::BlockWord block(word->load(std::memory_order_acquire));
  if (block.state() != engine::BlockWord::State::kCacheable) return false;
  // A thread that frees what others allocate gets a cache of their lane; a full one gives half of what it has back.
  shared_.caches->Open(block.lane());
  if (GiveToCache(address)) return true;
  if (engine::ThreadCache* const cache = shared_.caches->Find(block.lane())) owner.TakeBack(cache->TakeHalf());
  return GiveToCache(address);
}

Status Runtime::RecordStream(CUdeviceptr address, CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  Result<std::shared_ptr<Pool>> owner = shared_.table.Owner(address);
  if (!owner.ok()) return owner.status();
  return (*owner)->RecordStream(address, KeyOfStream(stream));
}

Result<CaptureHandle> Runtime::BeginCapture(PoolHandle handle, CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  Result<std::shared_ptr<Pool>> pool = shared_.table.Find(handle);
  if (!pool.ok()) return pool.status();
  CaptureHandle capture = 0;
  {
    MutexLock lock(mutex_);
    capture = next_capture_++;
  }
  status = (*pool)->BeginCapture(capture, stream);
  if (!status.ok()) return status;
  MutexLock lock(mutex_);
  captures_.emplace(capture, std::move(*pool));
  return capture;
}

Status Runtime::EndCapture(CaptureHandle capture) {
  std::shared_ptr<Pool> pool;
  {
    MutexLock lock(mutex_);
    const auto found = captures_.find(capture);
    if (found == captures_.end()) {
      return Status(StatusCode::kNotFound, "capture " + std::to_string(capture) + " has ended, or never began");
    }
    pool = std::move(found->second);
    captures_.erase(found);
  }
  pool->EndCapture(capture);
  return Status();
}

Status Runtime::ReleaseStream(CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
    return Status(StatusCode::kInvalidArgument, "a default stream is never destroyed, so it is never released");
  }
  status = CheckCuda(*driver_, driver_->cuda.cuStreamSynchronize(stream),
                     {.call = "cuStreamSynchronize", .likely_cause = "the stream was destroyed before"});
  if (!status.ok()) return status;
  const StreamKey key = KeyOfStream(stream);
  for (auto& [pool, blocks] : shared_.caches->Forget(key)) pool->TakeBack(blocks);
  for (const std::shared_ptr<Pool>& pool : shared_.table.All()) pool->ForgetStream(key);
  if (shared_.annotations.stream_released != nullptr) shared_.annotations.stream_released(stream);
  stream_devices_.Forget(stream);
  return Status();
}

}  // namespace commpool::internal
