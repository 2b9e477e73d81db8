// PoolMode: what differs between fixed, expandable and symmetric pools: how they serve a request that free memory
// cannot serve, and how they grow, shrink, register and close.
//
// `Pool` calls it, from any thread; the calls that commpool.h marks COLLECTIVE run one at a time.
#ifndef COMMPOOL_SRC_POOL_POOL_MODE_H_
#define COMMPOOL_SRC_POOL_POOL_MODE_H_

#include <cuda.h>
#include <nccl.h>

#include <cstdint>

#include "commpool/status.h"
#include "src/pool/blocks/block_rules.h"
#include "src/pool/options.h"
#include "src/registration/communicator.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

class SymmetricMode;

// Pool owns one and calls it without a lock. GrowingMode and SymmetricMode are the two kinds.
class PoolMode : public BlockRules {
 public:
  // This object as a symmetric mode, for calls over several pools (group_calls.h); null where the pool is not
  // symmetric.
  virtual SymmetricMode* AsSymmetric() { return nullptr; }

  virtual Result<CUdeviceptr> Allocate(uint64_t bytes, StreamKey stream) = 0;
  virtual void ForgetStream(StreamKey stream) = 0;

  // Space.
  virtual Status Reserve(uint64_t bytes) = 0;
  virtual Result<uint64_t> Reclaim() = 0;
  virtual Result<uint64_t> Trim(uint64_t keep_bytes) = 0;
  // Releases what another pool of the device may take when memory runs out (rule 7). Never collective.
  virtual uint64_t ReleaseUnused() = 0;
  // Whether the ranks have made the same calls. OK where there are no other ranks.
  virtual Status Verify() { return Status(); }
  virtual Status Close() = 0;
  virtual Status Sleep(const SleepRequest& request) = 0;
  virtual Status Wake(const WakeRequest& request) = 0;
  // Called when the pool has just been destroyed or abandoned.
  virtual void AfterDestroy() = 0;
  virtual void BeforeAbandon() {}

  // Captures: whether one may begin, what to do when it has begun, and what to do before it ends.
  virtual Status CheckCapture() const { return Status(); }
  virtual void AfterCaptureBegan() {}
  virtual void BeforeCaptureEnds(engine::Part) {}

  // Registration.
  virtual Status RegisterWith(ncclComm_t communicator) = 0;
  virtual Result<uint64_t> RegisterPending() = 0;
  virtual Status Deregister(ncclComm_t communicator) = 0;
  // Moves the pool to another home communicator. Only symmetric pools have one.
  virtual Status Rehome(ncclComm_t communicator) = 0;
  // The first rank of home that is known to be lost; -1: none.
  virtual int LostRank() const { return -1; }
  virtual Status AbandonCommunicator(ncclComm_t communicator, CommunicatorLife life) = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_POOL_MODE_H_
