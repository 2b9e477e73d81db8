// GrowingMode: pools that may grow, or wait, inside an allocation: fixed and expandable ones. It serves a request step
// by step, until the device has no more memory. Pool calls it; allocation.cc has the steps.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "src/library/pool/blocks/stranded_memory.h"
#include "src/library/pool/growing/grower.h"
#include "src/library/pool/pool.h"

namespace commpool::internal {

// Pool owns one. It owns the grower. Its methods begin without a lock. Allocations and
// frees come from any thread; calls that register, close or sleep take the collective lock, so they run one at a time.
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
    Status failure = {};  // why the pool did not grow
    std::optional<recording::Span> search = {};
  };
  enum class InCapture { kTaken, kSkipped };
  enum class Repeats { kNo, kWhileItHelps };
  // A step makes memory available, and returns whether to try again. An error ends the request.
  struct Step {
    const char* name;
    InCapture in_capture;
    Repeats repeats;
    Result<bool> (GrowingMode::*run)(Request&);
  };
  static const std::array<Step, 9> kSteps;

  Result<CUdeviceptr> ServeByStep(Request& request);
  Result<CUdeviceptr> Ended(Request& request, Result<CUdeviceptr> result);
  // From free memory.
  Address Try(const Request& request);
  // For a graph's part: takes the part's free memory, or idle memory of the pool. No cache may keep such blocks.
  Address ServeFromFreeMemory(const Request& request, engine::Reuse reuse);
  // Its error has the table of who holds what.
  Status OutOfMemoryFor(const Request& request) const;

  Result<bool> TakeWhatHasPassed(Request& request);
  Result<bool> DrainCaches(Request& request);
  Result<bool> FreeStranded(Request& request);
  Result<bool> GrowAsUsual(Request& request);
  Result<bool> ShareStreams(Request& request);
  Result<bool> WaitOnTheHost(Request& request);
  Result<bool> ReleaseAndGrow(Request& request);
  Result<bool> ReleasePagesAndGrow(Request& request);
  Result<bool> AskHolders(Request& request);
  // Growth that waits for nothing, moves nothing and releases nothing. A registered pool refuses: it was to be reserved
  // before.
  Result<bool> GrowInCapture(Request& request);
  Result<bool> Grow(Request& request, Effort effort);

  // Whether growth uses the pool's own free memory, so that it need not be released first. False for fixed pools, whose
  // free segments may be too small for the request: these go first.
  bool MovesPages() const { return basis_.configuration.mode == Mode::kExpandable; }
  void KeepToHeadroom();
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
