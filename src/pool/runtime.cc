#include "src/pool/runtime.h"

#include <unistd.h>

#include <utility>

#include "src/driver/device_info.h"
#include "src/driver/diagnosis.h"
#include "src/pool/pool_factory.h"

namespace commpool {

Runtime::Runtime(std::shared_ptr<const Driver> driver)
    : driver_(std::move(driver)), process_(getpid()), devices_(*driver_), stream_devices_(*driver_) {}

Runtime::~Runtime() {
  for (const std::shared_ptr<Pool>& pool : pools_.All()) pool->Abandon();
}

Status Runtime::RefuseForkedChild() const {
  if (getpid() == process_) return Status();
  return Status(StatusCode::kFailedPrecondition,
                "commpool was opened in process " + std::to_string(process_) +
                    " and is used in a forked child: CUDA does "
                    "not survive fork(); start workers by spawn, or fork before the first call");
}

Result<PoolHandle> Runtime::CreatePool(PoolConfiguration configuration) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  Result<std::shared_ptr<Pool>> pool = MakePool(*driver_, devices_, pools_, std::move(configuration));
  if (!pool.ok()) return pool.status();
  return pools_.Add(std::move(*pool));
}

Status Runtime::DestroyPool(PoolHandle handle) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  {
    MutexLock lock(mutex_);
    for (const auto& [device, default_pool] : default_pools_) {
      if (default_pool == handle) {
        return Status(StatusCode::kInvalidArgument, "the default pool of device " + std::to_string(device) +
                                                        " is the library's; trim() gives its free memory back");
      }
    }
  }
  Result<std::shared_ptr<Pool>> pool = pools_.Remove(handle);
  if (!pool.ok()) return pool.status();
  (*pool)->Retire();
  return Status();
}

Result<PoolHandle> Runtime::DefaultPool(int device) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  MutexLock lock(mutex_);
  const auto found = default_pools_.find(device);
  if (found != default_pools_.end()) return found->second;
  Result<DeviceInfo> info = DescribeDevice(*driver_, device);
  if (!info.ok()) return info.status();
  PoolConfiguration configuration;
  configuration.name = "default";
  configuration.backing.kind = info->virtual_memory ? BackingKind::kVmm : BackingKind::kCuda;
  configuration.backing.placement.device = device;
  Result<PoolHandle> pool = CreatePool(std::move(configuration));
  if (pool.ok()) default_pools_.emplace(device, *pool);
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
  const StreamKey key = KeyOfStream(stream);
  if (const std::shared_ptr<Pool> pool = scopes_.Route(device, key)) return pool->Allocate(bytes, key);
  Result<PoolHandle> fallback = DefaultPool(device);
  if (!fallback.ok()) return fallback.status();
  return AllocateFrom(*fallback, bytes, stream);
}

Result<CUdeviceptr> Runtime::AllocateFrom(PoolHandle handle, uint64_t bytes, CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  Result<std::shared_ptr<Pool>> pool = pools_.Find(handle);
  if (!pool.ok()) return pool.status();
  return (*pool)->Allocate(bytes, KeyOfStream(stream));
}

Status Runtime::Free(CUdeviceptr address) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  Result<std::shared_ptr<Pool>> owner = pools_.Owner(address);
  if (!owner.ok()) return owner.status();
  return (*owner)->Free(address);
}

Status Runtime::RecordStream(CUdeviceptr address, CUstream stream) {
  Status status = RefuseForkedChild();
  if (!status.ok()) return status;
  Result<std::shared_ptr<Pool>> owner = pools_.Owner(address);
  if (!owner.ok()) return owner.status();
  return (*owner)->RecordStream(address, KeyOfStream(stream));
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
  for (const std::shared_ptr<Pool>& pool : pools_.All()) pool->ForgetStream(KeyOfStream(stream));
  stream_devices_.Forget(stream);
  return Status();
}

}  // namespace commpool
