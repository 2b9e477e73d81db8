// Pool: what the C ABI, scopes and the process table know of a pool, whatever its mode.
//
// Any thread may call any method, except that the calls which commpool.h marks COLLECTIVE run one at a time for each
// pool. The lock order is in src/README.md: `collective` and `growth` serialise effects and may be held across driver
// and NCCL calls; the pool's own lock guards data and is never held across one.
#ifndef COMMPOOL_SRC_POOL_POOL_H_
#define COMMPOOL_SRC_POOL_POOL_H_

#include <cuda.h>
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/engine/thread_cache.h"
#include "src/engine/types.h"
#include "src/pool/company.h"
#include "src/registration/registration_set.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

struct PoolFigures {
  engine::Counters counters;
  uint64_t registered_segments = 0;
  uint64_t pending_segments = 0;
  uint64_t failed_allocations = 0;
  uint64_t cached_bytes = 0;
  uint64_t moved_bytes = 0;
  uint64_t host_waits = 0;
};

using PoolHandle = uint64_t;

class Pool {
 public:
  virtual ~Pool() = default;

  // Given by the process table; 0 before.
  PoolHandle handle() const { return handle_; }
  void SetHandle(PoolHandle handle) { handle_ = handle; }

  virtual const std::string& name() const = 0;
  virtual int device() const = 0;
  virtual bool symmetric() const = 0;

  // A number that the ranks of one home share, this home alone; 0 where the pool is not symmetric.
  virtual uint64_t home_id() const { return 0; }
  // The pools that the same thread made with it; null where there are none. Joined once, at creation.
  const Company* company() const { return company_.get(); }
  void Join(std::shared_ptr<const Company> company) { company_ = std::move(company); }

  // Blocks.
  virtual Result<CUdeviceptr> Allocate(uint64_t bytes, StreamKey stream) = 0;
  virtual Status Free(CUdeviceptr address) = 0;
  virtual Status RecordStream(CUdeviceptr address, StreamKey stream) = 0;
  // Blocks that threads' caches held.
  virtual void TakeBack(const std::vector<engine::CachedBlock>& blocks) = 0;
  // What a cache must know of the pool: its alignment, and whether its device is lost.
  virtual uint64_t alignment() const = 0;
  virtual const std::atomic<bool>& broken() const = 0;
  // Waits on the host for everything submitted to the device, and forgets the uses of blocks freed before.
  virtual Status WaitForDevice() = 0;
  // The stream's work is done and its handle will be recycled: no block, live or free, waits for it any more.
  virtual void ForgetStream(StreamKey stream) = 0;

  // Captures. `stream` is being captured; kNotSupported where the pool cannot serve one.
  virtual Status BeginCapture(uint64_t, CUstream) {
    return Status(StatusCode::kNotSupported, "pool " + name() + " serves no captures");
  }
  virtual void EndCapture(uint64_t) {}

  // Space.
  virtual Status Reserve(uint64_t bytes) = 0;
  virtual Result<uint64_t> Reclaim() = 0;
  virtual Result<uint64_t> Trim(uint64_t keep_bytes) = 0;
  // Gives back what another pool of the device may take when memory runs out (rule 7): nothing of a pool that is
  // symmetric or registered. Never collective.
  virtual uint64_t ReleaseUnused() = 0;
  // Whether the ranks have made the same calls. OK where there are no other ranks.
  virtual Status Verify() { return Status(); }
  virtual Status Close() = 0;
  // The handle has ended: no allocation any more, and segments go as their last block is freed.
  virtual void Retire() = 0;
  // The runtime ends: nothing may be waited for and no NCCL called.
  virtual void Abandon() = 0;

  // Peers.
  virtual Status Grant(const std::vector<int>& peers) = 0;
  virtual Status Revoke(const std::vector<int>& peers) = 0;

  // Registration.
  virtual Status RegisterWith(ncclComm_t communicator) = 0;
  virtual Result<uint64_t> RegisterPending() = 0;
  virtual Status Deregister(ncclComm_t communicator) = 0;
  virtual Status AbandonCommunicator(ncclComm_t communicator) = 0;
  virtual Result<WindowPlace> WindowOf(CUdeviceptr address, ncclComm_t communicator) const = 0;

  // Figures.
  virtual PoolFigures Figures() const = 0;
  virtual void ResetPeaks() = 0;
  virtual void CheckInvariants() const = 0;

 private:
  PoolHandle handle_ = 0;
  std::shared_ptr<const Company> company_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_POOL_H_
