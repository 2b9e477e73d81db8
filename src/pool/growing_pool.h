// Pools that may grow, or wait, inside an allocation: fixed and expandable ones. How a request is served, step by step,
// until the device has no more memory; and the threads' caches before it.
#ifndef COMMPOOL_SRC_POOL_GROWING_POOL_H_
#define COMMPOOL_SRC_POOL_GROWING_POOL_H_

#include <optional>
#include <string>
#include <vector>

#include "src/engine/expandable_engine.h"
#include "src/pool/graph_captures.h"
#include "src/pool/pool_base.h"

namespace commpool::internal {

template <typename Engine>
class GrowingPool : public PoolBase<Engine> {
 public:
  Result<CUdeviceptr> Allocate(uint64_t bytes, StreamKey stream) final;
  Status Reserve(uint64_t bytes) final;
  Result<uint64_t> Reclaim() final;
  Result<uint64_t> Trim(uint64_t keep_bytes) final;
  uint64_t ReleaseUnused() final;
  void Retire() final;
  void ForgetStream(StreamKey stream) final;
  Status BeginCapture(CaptureHandle capture, CUstream stream) final;
  void EndCapture(CaptureHandle capture) final;

 protected:
  // How hard growth tries.
  enum class Effort {
    kUsual,     // what is cheap
    kReserve,   // the same, for reserve(): what it makes stays until somebody trims
    kPressure,  // free pages move whatever it costs, after a wait where one is needed
  };

  using PoolBase<Engine>::PoolBase;

  // Makes room for the request, unless another thread's growth has meanwhile. kOutOfMemory where there is none.
  virtual Status Grow(uint64_t bytes, StreamKey stream, Effort effort) = 0;
  // Whether growth under pressure takes the pool's own free memory along: then it is not given back first.
  virtual bool MovesPages() const { return false; }
  // Gives free memory back to the driver until at most `keep_bytes` are reserved. Memory that streams may still use
  // stays, after a wait for them where `wait` says so.
  enum class Wait { kNo, kYes };
  virtual Result<uint64_t> GiveBack(uint64_t keep_bytes, Wait wait) = 0;

  // Lets the engine know of streams whose work is done, asking the driver for them or for events behind it. Never
  // waits.
  Status PollStreams();
  // The same until no stream uses free memory any more, but no longer than making `bytes` anew would take.
  Status PollFor(uint64_t bytes);

  // OK where the pool may reserve that much more; takes it from the device's account then.
  Status TakeRoom(uint64_t bytes);

  bool FitsOwnLimit(uint64_t bytes) const;

  // What graphs that are gone had returns to the pool.
  void CollectGraphs();

  void AfterFree() override;
  Caching CachingNow() const override;

  GraphCaptures captures_{this->driver_};

 private:
  // An event behind a stream's work, to learn whether the blocks freed before `moment` are idle.
  struct Checkpoint {
    StreamKey stream = 0;
    engine::Moment moment = 0;
    FenceId fence = 0;
  };

  // The free memory's answer; nothing where it has none. Errors are the request's.
  Result<std::optional<CUdeviceptr>> TryServe(uint64_t bytes, StreamKey stream, engine::Reuse reuse);
  Result<std::optional<CUdeviceptr>> ServeFromAnyStream(uint64_t bytes, StreamKey stream);
  Result<CUdeviceptr> ServeAfterGrowth(uint64_t bytes, StreamKey stream, Effort effort);
  // The request where neither free memory nor the driver has room: rule 7, in its order.
  Result<CUdeviceptr> Search(uint64_t bytes, StreamKey stream, const Status& growth_failure);
  // What is free beyond the release threshold goes, as far as the device is done with it.
  void KeepToThreshold();
  // A request on a stream that is captured: from the graph's part or idle memory, nothing else. Nothing where the
  // stream is not.
  Result<std::optional<CUdeviceptr>> ServeCapture(uint64_t bytes, StreamKey stream);
  bool IsToldOfFrees(CUdeviceptr address) const final;
  Result<engine::Freed> FreeInEngine(CUdeviceptr address) final COMMPOOL_REQUIRES(this->mutex_);
  bool DrainCaches();

  std::vector<Checkpoint> checkpoints_ COMMPOOL_GUARDED_BY(this->mutex_);
};

extern template class GrowingPool<engine::CachingEngine>;
extern template class GrowingPool<engine::ExpandableEngine>;

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_POOL_H_
