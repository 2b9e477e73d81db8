// What fixed and symmetric pools have in common, over the engine that sets them apart: blocks, fences, peers, figures.
//
// `Engine` is engine::CachingEngine, engine::ExpandableEngine or engine::SymmetricEngine. The subclasses add growth,
// registration and teardown.
#ifndef COMMPOOL_SRC_POOL_POOL_BASE_H_
#define COMMPOOL_SRC_POOL_POOL_BASE_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/base/mutex.h"
#include "src/engine/expandable_engine.h"
#include "src/engine/symmetric_engine.h"
#include "src/pool/block_words.h"
#include "src/pool/device_state.h"
#include "src/pool/options.h"
#include "src/pool/pool.h"
#include "src/pool/recordings.h"
#include "src/pool/segment_store.h"
#include "src/pool/shared_state.h"

namespace commpool::internal {

// What a pool is made of: found by the factory, so that a pool cannot be half made.
struct PoolParts {
  const Driver& driver;
  SharedState& shared;
  std::shared_ptr<DeviceState> device;
  std::unique_ptr<Backing> backing;
  PoolConfiguration configuration;

  // Segments are multiples of it.
  uint64_t granularity() const { return std::max(configuration.granularity_bytes, backing->granularity()); }
  // Of pools that are not symmetric.
  engine::EngineOptions engine_options() const;
};

template <typename Engine>
class PoolBase : public Pool, public std::enable_shared_from_this<PoolBase<Engine>> {
 public:
  const std::string& name() const override { return configuration_.name; }
  int device() const override { return device_->device(); }
  bool symmetric() const override { return configuration_.symmetric(); }

  uint64_t alignment() const override { return configuration_.alignment_bytes; }
  const std::atomic<bool>& broken() const override { return device_->health().broken_flag(); }

  Status Free(CUdeviceptr address) override;
  void TakeBack(const std::vector<engine::CachedBlock>& blocks) override;
  Status RecordStream(CUdeviceptr address, StreamKey stream) override;
  Status WaitForDevice() override;
  void ForgetStream(StreamKey stream) override;

  Status Grant(const std::vector<int>& peers) override;
  Status Revoke(const std::vector<int>& peers) override;

  Result<WindowPlace> WindowOf(CUdeviceptr address, ncclComm_t communicator) const override;

  PoolFigures Figures() const override;
  void ResetPeaks() override;
  void CheckInvariants() const override;
  void Abandon() override;

 protected:
  PoolBase(PoolParts&& parts, Engine engine, RegistrationKind registration_kind);
  ~PoolBase() override;

  // OK where the pool takes allocations and its device works.
  Status CheckOpen() const;
  // Makes the stream wait for the uses that a served block still has, and publishes the block; quarantines the
  // block where that fails. No stream of another's whose work it must wait for is forgotten meanwhile: `served` came
  // with its Recordings, or growth_ is held.
  Result<CUdeviceptr> FinishServing(const engine::Served& served, uint64_t requested, StreamKey stream);
  // Lets the engine know of fences that have passed. Never waits.
  void PollFences();
  // Puts a made segment into the engine, the store and the process table.
  engine::SegmentIndex Adopt(std::unique_ptr<Segment> segment, engine::Space space = engine::Space::kLarge)
      COMMPOOL_EXCLUDES(mutex_);
  // Takes a segment out of the books if it is wholly free and no stream uses it any more; else null. Deregistered
  // before.
  std::unique_ptr<Segment> TakeIfIdle(engine::SegmentIndex index) COMMPOOL_EXCLUDES(mutex_);
  std::vector<SegmentToRegister> Segments() const COMMPOOL_EXCLUDES(mutex_);
  uint64_t ReservedBytes() const COMMPOOL_EXCLUDES(mutex_);
  uint64_t granularity() const { return granularity_; }
  bool on_device() const { return segments_.backing().placement().kind == Placement::Kind::kDevice; }
  // Memory of the device that is to be reserved counts against the limit on all of its pools, until it is given back.
  Status TakeDeviceRoom(uint64_t bytes);
  void GiveRoomBack(uint64_t bytes);
  void CountHostWait() { host_waits_.fetch_add(1, std::memory_order_relaxed); }
  Status Failed(Status status);  // counts a failed allocation
  std::string Title() const;     // "pool gradients (vmm, device 1)"

  const Driver& driver_;
  SharedState& shared_;
  BlockWords words_;
  const std::shared_ptr<DeviceState> device_;
  const PoolConfiguration configuration_;
  const uint64_t granularity_;
  std::atomic<bool> open_{true};
  std::atomic<bool> retired_{false};
  std::atomic<uint64_t> failed_allocations_{0};
  std::atomic<uint64_t> host_waits_{0};
  std::atomic<uint64_t> moved_bytes_{0};
  RegistrationSet registrations_;

  Recordings recordings_;                    // of streams, outside mutex_
  Mutex collective_{LockRank::kCollective};  // one collective or registering call at a time
  Mutex growth_{LockRank::kGrowth};          // one change of the set of segments or peers at a time
  mutable Mutex mutex_{LockRank::kPool};
  Engine engine_ COMMPOOL_GUARDED_BY(mutex_);
  SegmentStore segments_;  // its books: mutex_; its effects: growth_
  std::set<int> peers_ COMMPOOL_GUARDED_BY(growth_);

 private:
  // Whether threads' caches may keep the blocks that are served now.
  virtual Caching CachingNow() const { return Caching::kNo; }
  // Whether the block's end is its end for the emulator: a graph that is replayed goes on to use its blocks.
  virtual bool IsToldOfFrees(CUdeviceptr) const { return true; }
  // A free inside the engine, with its lock held.
  virtual Result<engine::Freed> FreeInEngine(CUdeviceptr address) COMMPOOL_REQUIRES(mutex_) {
    return engine_.Free(address);
  }
  // A free that leaves a retired pool without live blocks in some segments gives those back.
  virtual void AfterFree() {}
  // What a peer has submitted may use the pool: access ends behind it.
  Status WaitForPeer(int peer) const;

  // What was asked for and what the engine knows of it differ for blocks that went through a cache.
  int64_t requested_correction_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

extern template class PoolBase<engine::CachingEngine>;
extern template class PoolBase<engine::ExpandableEngine>;
extern template class PoolBase<engine::SymmetricEngine>;

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_POOL_BASE_H_
