// GrowingMode: pools that may grow, or wait, inside an allocation: fixed and expandable ones. It serves a request step
// by step, until the device has no more memory. Pool calls it; allocation.cc has the steps. Its Grower makes memory.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/library/engine/caching_engine.h"
#include "src/library/pool/blocks/stranded_memory.h"
#include "src/library/pool/pool.h"
#include "src/library/pool/segments/segment_store.h"

namespace commpool::internal {

using engine::Effort;

// Makes room in a pool that may grow inside an allocation, and gives memory back. It carries out the engine's plan
// (engine/expansion.h): fixed pools with whole segments, expandable pools with pages that move.
//
// GrowingMode owns one: a fixed or an expandable grower. Lock: `growth` for a whole growth; the pool's lock only while
// the engine plans, claims and completes. The thread of the program whose request lacks memory runs it; others that
// lack memory wait for the lock, and then often find theirs. Frees and cached pairs go on beside it.
//
// Before it plans with free memory, and before it releases any, it learns which streams are done with that memory. It
// asks each stream. If the stream has not finished, it records an event behind its work (a checkpoint), and asks the
// event later. It owns the fences of its checkpoints, and retires each once it has passed.
class Grower : protected PoolParts {
 public:
  explicit Grower(const PoolParts& parts) : PoolParts(parts) {}
  virtual ~Grower() = default;

  // Makes room for the request, unless another thread's growth does so first. kOutOfMemory where there is none. Memory
  // for a graph's part belongs to the graph; then nothing moves and nothing is released.
  //
  // The engine plans under the pool's lock. The steps run outside of it, under the growth lock. Then the engine serves
  // the new memory. Where a step fails the earlier ones are undone. OK means that the engine could serve the request at
  // that moment: the caller asks again.
  Status Grow(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part = engine::kCommonPart);
  // Releases free memory until at most `keep_bytes` are reserved; returns the released bytes. Takes the growth lock.
  // After a failure what was released stays released. For trim, close, the release threshold, and other pools that need
  // memory. Pages or segments that streams still use stay.
  Result<uint64_t> Release(uint64_t keep_bytes, Wait wait);
  // All free memory that is known to be idle, without a wait for anything, also for the growth lock: where another
  // thread has it nothing is released. REQUIRES: the caller keeps the pool alive.
  Result<uint64_t> ReleaseAtOnce();
  // Waits for the device, so that free memory becomes idle memory. kOutOfMemory beside a capture, which the wait would
  // break: to a request that is a lack of memory.
  Status AwaitDevice();
  // For a stream whose handle will be recycled, as BlockStore::ForgetStream. Takes the growth lock.
  void ForgetStream(StreamKey stream);

 protected:
  virtual Result<uint64_t> ReleaseHeld(uint64_t keep_bytes, Wait wait) COMMPOOL_REQUIRES(kGrowthLock) = 0;

  // A growth in progress. Lives in Grow's frame, so an interrupted growth leaves its pages here, and their destructors
  // release them. One thread's, under the growth lock.
  struct Growth {
    engine::GrowthRequest request;
    engine::GrowthPlan plan = {};
    std::deque<PhysicalMemory> in_hand = {};  // pages without an address
    size_t unmapped = 0;                      // how many pages lost their address
  };

  // Carries out a step of the plan. The context of the pool's device is current. Steps that only wait never come here.
  virtual Status Do(const engine::GrowthStep& step, Growth& growth) COMMPOOL_REQUIRES(kGrowthLock) = 0;
  // After a failed step: undoes the earlier steps, and the claim. A segment needs no undoing: it is adopted as a whole,
  // or goes with its object. Has no result: what it cannot put back it tells the log.
  virtual void Undo(Growth&) COMMPOOL_REQUIRES(kGrowthLock) {}

  // Asks about every stream that may still use free memory, so that free memory becomes idle memory. Never waits. Call
  // it without the pool's lock; it calls the driver.
  Status Poll() COMMPOOL_REQUIRES(kGrowthLock);

  // Both kinds of growing pools have an engine of this class, or of one derived from it.
  engine::CachingEngine& engine() COMMPOOL_REQUIRES(blocks_.mutex()) { return blocks_.engine<engine::CachingEngine>(); }

 private:
  using Clock = std::chrono::steady_clock;
  // An event behind a stream's work: tells whether the blocks that were freed before `moment` are idle. It owns the
  // fence.
  struct Checkpoint {
    StreamKey stream = 0;
    engine::Moment moment = 0;
    FenceId fence = 0;
  };

  // Plans, and carries the plan out. Returns whether the growth is complete. False: plan again, because the plan only
  // waited or another thread was faster. After a failure the plan is undone.
  Result<bool> GrowOnce(Growth& growth) COMMPOOL_REQUIRES(kGrowthLock);
  // Stops at the first step that fails.
  Status CarryOut(Growth& growth) COMMPOOL_REQUIRES(kGrowthLock);
  // Polls until no stream uses free memory any more, or `limit` has passed.
  Status Await(std::chrono::microseconds limit) COMMPOOL_REQUIRES(kGrowthLock);
  // Asks the stream. Where it still works, adds a checkpoint, unless there is one of this moment. Does nothing for
  // streams that nobody may ask.
  Status PollStream(StreamKey stream, engine::Moment now) COMMPOOL_REQUIRES(kGrowthLock);
  // Reports the passed checkpoints to the engine and keeps the others.
  void PollCheckpoints() COMMPOOL_REQUIRES(kGrowthLock);

  // Those that have not passed.
  std::vector<Checkpoint> checkpoints_ COMMPOOL_GUARDED_BY(kGrowthLock);
};

// Fixed pools grow by whole segments, expandable ones by pages that move.
std::unique_ptr<Grower> MakeFixedGrower(const PoolParts& parts);
std::unique_ptr<Grower> MakeExpandableGrower(const PoolParts& parts);

// The options of a growing pool's engine. Segments and pages are multiples of `granularity`. The factory makes the
// engine with them, and tests do.
engine::EngineOptions GrowingEngineOptions(const PoolConfiguration& configuration, uint64_t granularity);

// Pool owns one. It owns the grower. Its methods begin without a lock. Allocations and frees come from any thread;
// calls that register, close or sleep take the collective lock, so they run one at a time.
class GrowingMode final : public PoolMode {
 public:
  using PoolMode::PoolMode;

  // On the thread of the program, once its caches have none. It may wait for the device, grow, and call functions of
  // the program.
  Result<CUdeviceptr> Allocate(uint64_t bytes, StreamKey stream) override;
  // One hold of the pool's lock and no driver call. It does nothing while a chore comes before allocations, and when it
  // is time to look which fences have passed, because they may free better memory.
  CUdeviceptr ServeAtOnce(uint64_t bytes, StreamKey stream) override;
  // Without a lock. It may release memory, which calls the driver.
  void AfterFree() override;
  void ForgetStream(StreamKey stream) override { grower_->ForgetStream(stream); }

  Status Reserve(uint64_t bytes) override;
  Result<uint64_t> Reclaim() override;
  Result<uint64_t> Trim(uint64_t keep_bytes) override;
  uint64_t ReleaseUnused(Wait wait) override;
  uint64_t ReleaseIdle(DeviceWork work) override;
  Status Close() override;
  Status Sleep(const SleepRequest& request, OtherPoolsOfCall others) override;
  Status Wake(const SleepRequest& request, OtherPoolsOfCall others) override;
  void AfterDestroy() override;

  Status RegisterWith(ncclComm_t communicator) override;
  Result<uint64_t> RegisterPending() override;
  Status Deregister(ncclComm_t communicator) override;
  Status AddRegistrar(const RegistrarRequest& request) override;
  Status RemoveRegistrar(const std::string& name) override;

 private:
  // kNotSupported for expandable pools: their pages move. `who`: for the message, such as "NCCL".
  Status CheckRegistrable(const char* who) const;
  // Lists the segments that a call is about to register, and keeps them from going meanwhile.
  RegistrarBook::Claim ClaimSegments(std::vector<SegmentToRegister>* segments);
  using Address = Result<std::optional<CUdeviceptr>>;  // nothing where there is no memory

  // A request on its way through the steps.
  struct Request {
    uint64_t bytes = 0;
    StreamKey stream = 0;
    engine::Part part = engine::kCommonPart;  // of the capture that the stream belongs to
    uint64_t times_freed = 0;                 // StrandedMemory's, at the beginning
    bool shares_streams = false;              // it may take other streams' memory, and wait for it on the device
    bool others_help = false;                 // its own limit is not in the way
    int holders_asked = 0;
    int host_waits = 0;
    Status failure = {};  // why the pool did not grow
    std::optional<recording::Span> search = {};
  };
  enum class InCapture { kTaken, kSkipped };
  enum class Repeats { kNo, kWhileItHelps };
  // A step makes memory available, and returns whether to try again. An error ends the request.
  struct Step {
    InCapture in_capture;
    Repeats repeats;
    Result<bool> (GrowingMode::*run)(Request&);
  };
  static const std::array<Step, 9> kSteps;

  Result<CUdeviceptr> Ended(Request& request, Result<CUdeviceptr> result);
  // From free memory.
  Address Try(const Request& request);
  // For a graph's part: takes the part's free memory, or idle memory of the pool. No cache may keep such blocks.
  Address ServeFromFreeMemory(const Request& request, engine::Reuse reuse);
  // Its error has the table of who holds what.
  const char* WhyNotFree(uint64_t bytes) const;
  Status OutOfMemoryFor(const Request& request) const;

  Result<bool> TakeWhatHasPassed(Request& request);
  Result<bool> DrainCaches(Request& request);
  Result<bool> FreeStranded(Request& request);
  // In a capture growth waits for nothing, moves nothing and releases nothing.
  Result<bool> GrowAsUsual(Request& request);
  Result<bool> ShareStreams(Request& request);
  Result<bool> WaitOnTheHost(Request& request);
  Result<bool> ReleaseAndGrow(Request& request);
  Result<bool> ReleasePagesAndGrow(Request& request);
  Result<bool> AskHolders(Request& request);
  Result<bool> Grow(Request& request, Effort effort);

  // Whether growth uses the pool's own free memory, so that it need not be released first. False for fixed pools, whose
  // free segments may be too small for the request: these go first.
  bool MovesPages() const { return basis_.configuration.mode == Mode::kExpandable; }
  // What was released; 0 after a failure, which the log alone tells: no caller asked for the release.
  uint64_t OrLogged(const Result<uint64_t>& released) const;
  // Trim without the wait for the driver's news of graphs that were destroyed just now.
  Result<uint64_t> TrimNow(uint64_t keep_bytes, Wait wait);
  // Whether threads' caches may ever keep blocks of this stream: where it takes back at once what it freed, or where
  // there is none. Where a tool has heaps bytes of nobody lie behind blocks, and a cache knows nothing of them.
  Caching CachingOf(StreamKey stream) const {
    const bool reuses = basis_.own_reuse == engine::OwnReuse::kAtOnce || stream == kNoStream;
    return reuses && !segments_.maker.tells_heaps() ? Caching::kYes : Caching::kNo;
  }
  // Releases free memory beyond the release threshold, if the device is done with it. Waits for no stream, and reports
  // a failure in the log alone: no caller asked for it.
  void KeepToThreshold();

  engine::CachingEngine& engine() COMMPOOL_REQUIRES(blocks_.mutex()) { return blocks_.engine<engine::CachingEngine>(); }

  // Takes the growth lock for its waits, so that the pool does not grow meanwhile.
  StrandedMemory stranded_{basis_, blocks_};
  // Fixed or expandable; never null.
  const std::unique_ptr<Grower> grower_ = MovesPages() ? MakeExpandableGrower(*this) : MakeFixedGrower(*this);
  const bool has_threshold_ = basis_.configuration.release_threshold_bytes != UINT64_MAX;
  uint32_t since_poll_ COMMPOOL_GUARDED_BY(blocks_.mutex()) = 0;  // allocations since the last poll
};

}  // namespace commpool::internal
