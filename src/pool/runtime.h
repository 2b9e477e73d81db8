// Runtime: a driver and everything that stands on it. The C ABI holds the process's one; tests make as many as they
// like.
//
// Any thread. Destroying a runtime abandons what is left: it is a test's end, or an exit, and calls neither NCCL nor a
// context that is broken.
#ifndef COMMPOOL_SRC_POOL_RUNTIME_H_
#define COMMPOOL_SRC_POOL_RUNTIME_H_

#include <map>
#include <memory>

#include "commpool/status.h"
#include "src/base/mutex.h"
#include "src/driver/loader.h"
#include "src/pool/device_state.h"
#include "src/pool/options.h"
#include "src/pool/pool_table.h"
#include "src/pool/scope_table.h"
#include "src/stream/stream_devices.h"

namespace commpool {

class Runtime {
 public:
  explicit Runtime(std::shared_ptr<const Driver> driver);
  ~Runtime();

  const Driver& driver() const { return *driver_; }
  PoolTable& pools() { return pools_; }
  ScopeTable& scopes() { return scopes_; }
  DeviceTable& devices() { return devices_; }

  Result<PoolHandle> CreatePool(PoolConfiguration configuration);
  // kInvalidArgument for a default pool.
  Status DestroyPool(PoolHandle handle);
  // Made at its first use: vmm where the device has it, else cuda.
  Result<PoolHandle> DefaultPool(int device);

  // Routed: the innermost scope that catches it, else the device's default pool. A negative device is the stream's.
  Result<CUdeviceptr> Allocate(int device, uint64_t bytes, CUstream stream);
  Result<CUdeviceptr> AllocateFrom(PoolHandle pool, uint64_t bytes, CUstream stream);
  Status Free(CUdeviceptr address);
  Status RecordStream(CUdeviceptr address, CUstream stream);
  // Waits for the stream, so that no pool needs the handle any more (rule 11).
  Status ReleaseStream(CUstream stream);

 private:
  Status RefuseForkedChild() const;

  const std::shared_ptr<const Driver> driver_;
  const int process_;  // CUDA does not survive fork()
  DeviceTable devices_;
  PoolTable pools_;
  ScopeTable scopes_;
  StreamDevices stream_devices_;
  Mutex mutex_{LockRank::kRuntime};  // held while a default pool is made: threads that race make one
  std::map<int, PoolHandle> default_pools_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool

#endif  // COMMPOOL_SRC_POOL_RUNTIME_H_
