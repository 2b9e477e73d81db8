#include "tools/stress/registration/rank.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "src/emulator/extension.h"
#include "src/library/driver/diagnosis.h"
#include "tools/common/sleep_alone.h"
#include "tools/stress/captured_block.h"

namespace commpool::cli {

namespace {

// Thrown where a rank's schedule ends early.
struct RankEnds {};

// The rank of a thread, for the pools' driver: tables of functions carry no state.
struct ThisRank {
  CUresult (*create)(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long) = nullptr;
  std::function<void()> at_growth = nullptr;
};
thread_local ThisRank this_rank;

CUresult CreateOrEnd(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  if (this_rank.at_growth) std::exchange(this_rank.at_growth, nullptr)();
  return this_rank.create(handle, bytes, properties, flags);
}

// Small whole numbers: their sums are exact in float, in any order.
float ValueOf(int rank, size_t step, size_t index) {
  return static_cast<float>((index * 7 + static_cast<size_t>(rank) * 3 + step) % 17);
}

class RankLife {
 public:
  RankLife(ScheduleRun& run, const internal::Driver& driver, StressRank& rank)
      : run_(run),
        schedule_(run.schedule),
        driver_(driver),
        rank_(rank),
        random_(run.schedule.seed * 31 + static_cast<uint64_t>(rank.number)) {}

  RankOutcome Live() {
    this_rank = {.create = driver_.cuda.cuMemCreate};
    try {
      Create();
      for (const Step& step : schedule_.StepsOf(rank_.number)) {
        step_ = step;
        Do();
        at_ = ++run_.steps[static_cast<size_t>(rank_.number)];
        if (!late_.empty() && Random(2) == 0) FreeLate();
      }
      Close();
    } catch (const RankEnds&) {
      EndAtOnce();
    }
    if (rank_.number != schedule_.victim) run_.survivors.count_down();
    return std::move(outcome_);
  }

 private:
  struct Block {
    CUdeviceptr address = 0;  // 0: the pool was exhausted
    uint64_t bytes = 0;
  };

  uint64_t Random(uint64_t bound) { return random_() % bound; }

  [[noreturn]] void Violate(const std::string& what) {
    outcome_.violations.push_back("step " + std::to_string(at_) + " (" + (closing_ ? "close" : Describe(step_)) +
                                  "): " + what);
    throw RankEnds();
  }
  void Expect(const Status& status) {
    if (!status.ok()) Violate(status.message());
  }
  // A failure that the step may have, if it names its cause.
  void ExpectOr(const Status& status, StatusCode code, const std::string& cause) {
    Share(std::to_string(static_cast<int>(status.code())));
    const bool named = status.code() == code && status.message().find(cause) != std::string::npos;
    if (!named) Expect(status);
  }
  void Share(const std::string& text) { outcome_.shared.push_back(Describe(step_) + ": " + text); }

  internal::WindowPlace WindowOf(ncclComm_t communicator, CUdeviceptr address) {
    const std::optional<internal::WindowPlace> place = run_.runtime.windows().Find(communicator, address);
    if (!place) Violate("its block is in no window");
    return *place;
  }

  internal::PoolHandle CreateAcross(ncclComm_t home, const char* name) {
    internal::PoolConfiguration configuration;
    configuration.name = name;
    configuration.streams = internal::Streams::kOutlive;
    configuration.backing.placement.device = rank_.number;
    configuration.home = home;
    configuration.limit_bytes = kStressLimitBytes;
    configuration.deadline_ms = run_.deadline_ms;
    if (schedule_.ordered) configuration.frees = internal::engine::FreeOrder::kOrdered;
    Result<internal::PoolHandle> handle = run_.runtime.CreatePool(std::move(configuration));
    Expect(handle.status());
    return *handle;
  }
  void Create() {
    handle_ = CreateAcross(rank_.home, "stress");
    pool_ = run_.runtime.pools().Find(handle_).value();
  }

  // A pool over another home, beside the first one; only its members know it.
  void OpenOther() {
    if (rank_.second == nullptr) return;
    other_handle_ = CreateAcross(rank_.second, "other");
    other_ = run_.runtime.pools().Find(other_handle_).value();
    GrowOther();
  }
  void GrowOther() {
    if (other_ == nullptr) return;
    Expect(other_->mode().Reserve(step_.bytes));
    Result<CUdeviceptr> block = run_.runtime.AllocateFrom(other_handle_, 1, rank_.stream);
    Expect(block.status());
    WindowOf(rank_.second, *block);
    Expect(run_.runtime.Free(*block));
  }
  void CloseOther() {
    if (other_ == nullptr) return;
    Expect(other_->Close());
    other_.reset();
    Expect(run_.runtime.DestroyPool(std::exchange(other_handle_, 0)));
  }

  // The driver may give the old stream's handle to the new one.
  void ReplaceStream() {
    Expect(run_.runtime.ReleaseStream(rank_.stream));
    const internal::CallSite call{.call = "a stream in the place of another", .device = rank_.number};
    Expect(internal::CheckCuda(driver_, driver_.cuda.cuStreamDestroy(rank_.stream), call));
    Expect(internal::CheckCuda(driver_, driver_.cuda.cuStreamCreate(&rank_.stream, CU_STREAM_NON_BLOCKING), call));
  }

  void Do() {
    switch (step_.kind) {
      case StepKind::kReserve: {
        const bool over_limit = step_.bytes > kStressLimitBytes;
        const Status status = pool_->mode().Reserve(step_.bytes);
        if (over_limit && status.ok()) Violate("it succeeds beyond the pool's limit");
        return ExpectOr(status, over_limit ? StatusCode::kOutOfMemory : StatusCode::kOk, "exceed its limit of ");
      }
      case StepKind::kReserveShort:
        return ReserveShort();
      case StepKind::kAllocate:
        return Allocate();
      case StepKind::kFree:
        return Free();
      case StepKind::kReduce:
        return Reduce();
      case StepKind::kReclaim:
        return ShareCount(pool_->mode().Reclaim(), "");
      case StepKind::kTrim:
        return ShareCount(pool_->Trim(step_.bytes), "of segments");
      case StepKind::kSleep:
        return SleepAndWake();
      case StepKind::kRegister:
        return Expect(pool_->mode().RegisterWith(rank_.second));
      case StepKind::kDeregister:
        return Expect(pool_->mode().Deregister(rank_.second));
      case StepKind::kCapture:
        return Expect(CaptureAndReplay(driver_, run_.runtime, handle_, rank_.stream, step_.bytes));
      case StepKind::kReplaceStream:
        return ReplaceStream();
      case StepKind::kOpenOther:
        return OpenOther();
      case StepKind::kGrowOther:
        return GrowOther();
      case StepKind::kCloseOther:
        return CloseOther();
      case StepKind::kAbandon:
        return AbortSecond();
      case StepKind::kDestroy:
        return DestroySecond();
      case StepKind::kDie:
        return Die();
    }
  }

  void SleepAndWake() {
    // No graph is left to be replayed.
    Expect(SleepAlone(*pool_, {.keep = step_.bytes == 0 ? internal::Keep::kDiscard : internal::Keep::kHost,
                               .graphs = internal::LiveGraphs::kDiscarded}));
    const Status asleep = run_.runtime.AllocateFrom(handle_, 1, rank_.stream).status();
    if (asleep.code() != StatusCode::kFailedPrecondition) Violate("a pool that sleeps serves");
    Expect(WakeAlone(*pool_));
  }

  // A reclaim's bytes depend on the rank's own frees, a trim's bytes do not.
  void ShareCount(const Result<uint64_t>& bytes, const std::string& unit) {
    Expect(bytes.status());
    if (!unit.empty()) Share(std::to_string(*bytes) + " bytes " + unit);
  }

  void ReserveShort() {
    const auto inject =
        reinterpret_cast<decltype(&commpoolEmulatorInjectFault)>(driver_.extension("commpoolEmulatorInjectFault"));
    const auto clear =
        reinterpret_cast<decltype(&commpoolEmulatorClearFaults)>(driver_.extension("commpoolEmulatorClearFaults"));
    // No rank makes its segment before all have agreed, and none continues before all have made theirs.
    const int skip = static_cast<int>(step_.bytes % static_cast<uint64_t>(schedule_.ranks));
    if (rank_.number == 0) inject("cuMemCreate", skip, 1, CUDA_ERROR_OUT_OF_MEMORY);
    const Status status = pool_->mode().Reserve(step_.bytes);
    if (rank_.number == 0) clear();
    ExpectOr(status, StatusCode::kOutOfMemory, "failed on rank ");
  }

  void Allocate() {
    Result<CUdeviceptr> address = run_.runtime.AllocateFrom(handle_, step_.bytes, rank_.stream);
    ExpectOr(address.status(), StatusCode::kExhausted, "reserve");
    Block block;
    if (address.ok()) {
      block = {*address, step_.bytes};
      Share("offset " + std::to_string(WindowOf(rank_.home, block.address).offset));
    }
    blocks_.push_back(block);
  }

  void Free() {
    const Block block = std::exchange(blocks_[step_.block], Block());
    if (block.address == 0) return;
    late_.push_back(block.address);
    if (schedule_.ordered || Random(3) != 0) FreeLate();
  }
  void FreeLate() {
    Expect(run_.runtime.Free(late_.back()));
    late_.pop_back();
  }

  void Reduce() {
    const Block from = blocks_[step_.block];
    const Block to = blocks_[step_.target];
    const ncclComm_t communicator = step_.over == Over::kHome ? rank_.home : rank_.second;
    const size_t count = std::min(from.bytes, to.bytes) / sizeof(float);
    if (from.address == 0 || to.address == 0 || count == 0 || communicator == nullptr) return;
    std::vector<float> values(count);
    for (size_t index = 0; index < count; ++index) values[index] = ValueOf(rank_.number, step_.block, index);
    const size_t bytes = count * sizeof(float);
    const internal::CallSite call{.call = "all-reduce", .device = rank_.number, .bytes = bytes};
    Expect(internal::CheckCuda(driver_,
                               driver_.cuda.cuMemcpyHtoDAsync(from.address, values.data(), bytes, rank_.stream), call));
    Expect(internal::CheckNccl(
        driver_,
        driver_.nccl.ncclAllReduce(reinterpret_cast<void*>(from.address), reinterpret_cast<void*>(to.address), count,
                                   ncclFloat, ncclSum, communicator, rank_.stream),
        call, communicator));
    std::vector<float> sums(count, -1.0f);
    Expect(internal::CheckCuda(driver_, driver_.cuda.cuMemcpyDtoHAsync(sums.data(), to.address, bytes, rank_.stream),
                               call));
    Expect(internal::CheckCuda(driver_, driver_.cuda.cuStreamSynchronize(rank_.stream), call));
    for (size_t index = 0; index < count; ++index) {
      float expected = 0;
      for (int rank = step_.over == Over::kHome ? 0 : schedule_.second_from; rank < schedule_.ranks; ++rank) {
        expected += ValueOf(rank, step_.block, index);
      }
      if (sums[index] != expected) {
        Violate("element " + std::to_string(index) + " of " + std::to_string(count) + " is " +
                std::to_string(sums[index]) + ", not " + std::to_string(expected));
      }
    }
  }

  void AbortSecond() {
    if (rank_.second == nullptr) return;
    Expect(pool_->mode().AbandonCommunicator(rank_.second, internal::CommunicatorLife::kAlive));
    driver_.nccl.ncclCommAbort(std::exchange(rank_.second, nullptr));
  }
  void DestroySecond() {
    if (rank_.second == nullptr) return;
    const ncclComm_t second = std::exchange(rank_.second, nullptr);
    driver_.nccl.ncclCommDestroy(second);
    Expect(pool_->mode().AbandonCommunicator(second, internal::CommunicatorLife::kEnded));
  }

  void Die() {
    const bool mine = rank_.number == schedule_.victim;
    if (mine && schedule_.death == Death::kBeforeReserve) throw RankEnds();
    if (mine) {
      this_rank.at_growth = [this] {
        if (schedule_.death == Death::kSilent) run_.survivors.wait();
        throw RankEnds();
      };
    }
    const Status status = pool_->mode().Reserve(step_.bytes);
    const StatusCode code =
        schedule_.death == Death::kSilent ? StatusCode::kDeadlineExceeded : StatusCode::kRemoteFailure;
    const bool named = status.message().find("rank " + std::to_string(schedule_.victim) + ": ") != std::string::npos;
    if (status.ok()) Violate("it succeeds though rank " + std::to_string(schedule_.victim) + " is gone");
    const bool planted = schedule_.plant == RegistrationPlant::kDropRank;
    if (status.code() != code || !named || planted) Violate(status.message());
    throw RankEnds();
  }

  void Close() {
    closing_ = true;
    while (!late_.empty()) FreeLate();
    Expect(pool_->Close());
    const commpool_statistics statistics = pool_->Statistics();
    if (statistics.registered_segments != 0) Violate("windows are left");
    if (statistics.reserved_bytes.current != 0) Violate("segments are left");
    pool_.reset();
    Expect(run_.runtime.DestroyPool(handle_));
    handle_ = 0;
  }

  // As when the process dies, or after an error: the memory stays, but NCCL holds none of it.
  void EndAtOnce() {
    for (ncclComm_t* communicator : {&rank_.second, &rank_.home}) {
      if (*communicator == nullptr) continue;
      for (const std::shared_ptr<internal::Pool>& pool : {pool_, other_}) {
        if (pool == nullptr) continue;
        static_cast<void>(pool->mode().AbandonCommunicator(*communicator, internal::CommunicatorLife::kAlive));
      }
      driver_.nccl.ncclCommAbort(std::exchange(*communicator, nullptr));
    }
    for (const auto& [pool, handle] : {std::pair{&pool_, handle_}, std::pair{&other_, other_handle_}}) {
      if (*pool == nullptr) continue;
      outcome_.left_bytes += (*pool)->Statistics().reserved_bytes.current;
      (*pool)->Abandon();
      pool->reset();
      static_cast<void>(run_.runtime.DestroyPool(handle));
    }
  }

  ScheduleRun& run_;
  const Schedule& schedule_;
  const internal::Driver& driver_;
  StressRank& rank_;
  std::mt19937_64 random_;
  internal::PoolHandle handle_ = 0;
  std::shared_ptr<internal::Pool> pool_;
  internal::PoolHandle other_handle_ = 0;
  std::shared_ptr<internal::Pool> other_;  // across the second communicator
  Step step_;
  size_t at_ = 0;
  bool closing_ = false;
  std::vector<Block> blocks_;      // in the order of the allocations
  std::vector<CUdeviceptr> late_;  // freed in the schedule, and on this rank later
  RankOutcome outcome_;
};

}  // namespace

std::shared_ptr<const internal::Driver> MortalDriver(const std::shared_ptr<const internal::Driver>& driver) {
  auto ending = std::make_shared<internal::Driver>(*driver);
  ending->cuda.cuMemCreate = CreateOrEnd;
  return ending;
}

RankOutcome RunRank(ScheduleRun& run, const internal::Driver& driver, StressRank& rank) {
  return RankLife(run, driver, rank).Live();
}

}  // namespace commpool::cli
