#include "tools/cli/bench/registration_steps.h"

#include <array>
#include <functional>
#include <utility>

#include "commpool/pool.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/median.h"

namespace commpool::cli {

namespace {

// Memory from ncclMemAlloc and its windows. Drop, or after a failure the process's end, releases them.
class ByHand {
 public:
  ByHand(const RankDevice& device, uint64_t bytes) : device_(device), bytes_(bytes) {}

  Status Allocate() { return Check(nccl().ncclMemAlloc(&memory_, bytes_), "ncclMemAlloc"); }
  // The window exists when the call returns, or at the end of its group.
  Status Register(ncclComm_t communicator) {
    communicator_ = communicator;
    return Check(nccl().ncclCommWindowRegister(communicator, memory_, bytes_, &window_, NCCL_WIN_COLL_SYMMETRIC),
                 "ncclCommWindowRegister");
  }
  Status Deregister() {
    const ncclWindow_t window = std::exchange(window_, nullptr);
    if (window == nullptr) return Status();
    return Check(nccl().ncclCommWindowDeregister(communicator_, window), "ncclCommWindowDeregister");
  }
  Status Drop() {
    COMMPOOL_TRY(Deregister());
    return Check(nccl().ncclMemFree(std::exchange(memory_, nullptr)), "ncclMemFree");
  }

 private:
  const internal::NcclLibrary& nccl() const { return device_.driver->nccl; }
  Status Check(ncclResult_t result, const char* call) const {
    return internal::CheckNccl(*device_.driver, result, {.call = call, .device = device_.device, .bytes = bytes_});
  }

  const RankDevice& device_;
  const uint64_t bytes_;
  void* memory_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

// The ratios of two ways that took turns, round by round.
Spread SpreadOfRatios(const std::vector<double>& ours, const std::vector<double>& others) {
  std::vector<double> ratios;
  for (size_t round = 0; round < ours.size(); ++round) ratios.push_back(ours[round] / others[round]);
  return SpreadOf(std::move(ratios));
}

class Steps {
 public:
  Steps(const Ranks& ranks, const RankDevice& device, uint64_t bytes)
      : ranks_(ranks), device_(device), bytes_(bytes), meter_(*device.driver) {}
  ~Steps() {
    for (const ncclComm_t communicator : communicators_) nccl().ncclCommDestroy(communicator);
  }

  Result<RegistrationSteps> Run(int rounds) {
    for (const auto part : {&Steps::OfNccl, &Steps::OfPools}) {
      COMMPOOL_TRY((this->*part)());
    }
    for (const auto part : {&Steps::InGroups, &Steps::Beside}) {
      COMMPOOL_TRY((this->*part)(rounds));
    }
    return std::move(found_);
  }

 private:
  using Phase = std::function<Status()>;
  const internal::NcclLibrary& nccl() const { return device_.driver->nccl; }

  Status Note(const char* key, const char* what, const Phase& phase) {
    Result<Cost> cost = Measure(ranks_, meter_, phase);
    if (!cost.ok()) return cost.status().under(what);
    found_.steps.push_back({key, what, *cost});
    return Status();
  }

  Result<ncclComm_t> NewCommunicator() {
    Result<ncclComm_t> made = MakeCommunicator(ranks_, *device_.driver, device_.device);
    if (made.ok()) communicators_.push_back(*made);
    return made;
  }

  Status AllGather(ncclComm_t communicator, CUdeviceptr memory) {
    const auto data = reinterpret_cast<char*>(memory);
    COMMPOOL_TRY(internal::CheckNccl(
        *device_.driver,
        nccl().ncclAllGather(data + 64 * ranks_.count(), data, 64, ncclInt8, communicator, device_.stream),
        {.call = "ncclAllGather", .device = device_.device}));
    return internal::CheckCuda(*device_.driver, device_.driver->cuda.cuStreamSynchronize(device_.stream),
                               {.call = "cuStreamSynchronize", .device = device_.device});
  }

  // What NCCL itself does at a communicator's first calls. A pool sends its agreement's address over an all-gather.
  Status OfNccl() {
    Result<ncclComm_t> communicator = NewCommunicator();
    if (!communicator.ok()) return communicator.status();
    warm_ = *communicator;
    CUdeviceptr memory = 0;
    COMMPOOL_TRY(internal::CheckCuda(
        *device_.driver, device_.driver->cuda.cuMemAlloc(&memory, 64 * static_cast<size_t>(ranks_.count() + 1)),
        {.call = "cuMemAlloc"}));
    const Phase gather = [&] { return AllGather(warm_, memory); };
    Status status = Note("first_all_gather", "NCCL: a communicator's first all-gather", gather);
    if (status.ok()) status = Note("all_gather", "NCCL: the next", gather);
    device_.driver->cuda.cuMemFree(memory);
    ByHand first(device_, bytes_);
    ByHand next(device_, bytes_);
    if (status.ok()) status = Note("nccl_memory", "NCCL: ncclMemAlloc", [&] { return first.Allocate(); });
    if (status.ok()) status = next.Allocate();
    if (status.ok())
      status = Note("first_window", "NCCL: a communicator's first window", [&] { return first.Register(warm_); });
    if (status.ok()) status = Note("window", "NCCL: the next", [&] { return next.Register(warm_); });
    for (ByHand* one : {&first, &next}) {
      if (status.ok()) status = one->Drop();
    }
    return status;
  }

  // A pool's own steps, on a new communicator.
  Status OfPools() {
    Result<ncclComm_t> communicator = NewCommunicator();
    if (!communicator.ok()) return communicator.status();
    Result<Pool> pool = Status(StatusCode::kNotFound, "not made yet");
    Result<Pool> other = Status(StatusCode::kNotFound, "not made yet");
    const auto create = [&](Result<Pool>& made) {
      made = Pool::create({.device = device_.device, .symmetric_across = *communicator});
      return made.status();
    };
    Status status = Note("create", "pool: create, on a new communicator", [&] { return create(pool); });
    if (status.ok())
      status = Note("create_again", "pool: create another of the same home", [&] { return create(other); });
    if (status.ok()) status = Note("agree", "pool: one agreement", [&] { return pool->reclaim().status(); });
    if (status.ok())
      status = Note("first_reserve", "pool: reserve, with the communicator's first window",
                    [&] { return pool->reserve(bytes_); });
    if (status.ok()) status = Note("reserve", "pool: reserve, another window", [&] { return other->reserve(bytes_); });
    Result<Pool> plain = Pool::create({.device = device_.device});
    if (status.ok()) status = plain.status();
    if (status.ok())
      status = Note("memory", "pool: as much memory, without ranks or window", [&] { return plain->reserve(bytes_); });
    for (Result<Pool>* one : {&pool, &other, &plain}) {
      if (status.ok()) status = (*one)->close();
    }
    return status;
  }

  // Windows in an NCCL group beside windows one after another, in turn: on one communicator, and on two.
  Status InGroups(int rounds) {
    const ncclComm_t second = COMMPOOL_TRY(NewCommunicator());
    std::vector<ByHand> buffers(5, ByHand(device_, bytes_));
    Status status;
    for (ByHand& buffer : buffers) {
      if (status.ok()) status = buffer.Allocate();
    }
    if (status.ok()) status = buffers[4].Register(second);  // its first window must not count
    struct Comparison {
      const char* key;
      const char* what;
      std::array<ncclComm_t, 4> communicators;
      bool grouped;
    };
    const Comparison comparisons[] = {
        {"windows_in_turn", "NCCL: 4 windows on one communicator, in turn", {warm_, warm_, warm_, warm_}, false},
        {"windows_in_group", "NCCL: the same in one group", {warm_, warm_, warm_, warm_}, true},
        {"communicators_in_turn",
         "NCCL: 4 windows on two communicators, in turn",
         {warm_, second, warm_, second},
         false},
        {"communicators_in_group", "NCCL: the same in one group", {warm_, second, warm_, second}, true}};
    const auto register_all = [&](const Comparison& one) {
      const Phase windows = [&] {
        if (one.grouped) nccl().ncclGroupStart();
        Status registered;
        for (size_t place = 0; place < 4 && registered.ok(); ++place) {
          registered = buffers[place].Register(one.communicators[place]);
        }
        const ncclResult_t ended = one.grouped ? nccl().ncclGroupEnd() : ncclSuccess;
        if (!registered.ok()) return registered;
        return internal::CheckNccl(*device_.driver, ended, {.call = "ncclGroupEnd", .device = device_.device});
      };
      return Measure(ranks_, meter_, windows);
    };
    std::array<std::vector<double>, 4> times;
    std::array<Cost, 4> costs;
    for (int turn = 0; turn < 4 * rounds && status.ok(); ++turn) {  // A B C D, D C B A
      const auto which = static_cast<size_t>(turn / 4 % 2 == 0 ? turn % 4 : 3 - turn % 4);
      const Result<Cost> cost = register_all(comparisons[which]);
      if (!cost.ok()) return cost.status().under(comparisons[which].what);
      costs[which] = *cost;
      times[which].push_back(cost->microseconds);
      for (size_t place = 0; place < 4 && status.ok(); ++place) status = buffers[place].Deregister();
    }
    for (size_t which = 0; which < 4 && status.ok(); ++which) {
      costs[which].microseconds = Median(times[which]);
      found_.steps.push_back({comparisons[which].key, comparisons[which].what, costs[which]});
    }
    if (status.ok()) {
      found_.group_to_turn = SpreadOfRatios(times[1], times[0]);
      found_.group_to_turn_of_two = SpreadOfRatios(times[3], times[2]);
    }
    for (ByHand& buffer : buffers) {
      if (status.ok()) status = buffer.Drop();
    }
    return status;
  }

  Status Beside(int rounds) {
    std::vector<double> by_hand_us;
    std::vector<double> pool_us;
    for (int round = 0; round < rounds; ++round) {
      ByHand buffer(device_, bytes_);
      const auto make_by_hand = [&] {
        COMMPOOL_TRY(buffer.Allocate());
        return buffer.Register(warm_);
      };
      const Cost by_hand = COMMPOOL_TRY(Measure(ranks_, meter_, make_by_hand));
      if (Status status = buffer.Drop(); !status.ok()) return status;
      Result<Pool> pool = Status(StatusCode::kNotFound, "not made yet");
      const Cost of_pool = COMMPOOL_TRY(Measure(ranks_, meter_, [&] {
        pool = Pool::create({.device = device_.device, .symmetric_across = warm_});
        return pool.ok() ? pool->reserve(bytes_) : pool.status();
      }));
      if (Status status = pool->close(); !status.ok()) return status;
      by_hand_us.push_back(by_hand.microseconds);
      pool_us.push_back(of_pool.microseconds);
    }
    found_.steps.push_back(
        {"by_hand", "by hand: memory and window, on a communicator in use", {Median(by_hand_us), {}}});
    found_.steps.push_back({"pool", "pool: create and reserve, on the same one", {Median(pool_us), {}}});
    found_.pool_to_by_hand = SpreadOfRatios(pool_us, by_hand_us);
    return Status();
  }

  const Ranks& ranks_;
  const RankDevice& device_;
  const uint64_t bytes_;
  const NcclMeter meter_;
  std::vector<ncclComm_t> communicators_;
  ncclComm_t warm_ = nullptr;  // has had an all-gather and windows before
  RegistrationSteps found_;
};

}  // namespace

Result<RegistrationSteps> MeasureRegistrationSteps(const Ranks& ranks, const RankDevice& device, uint64_t bytes,
                                                   int rounds) {
  return Steps(ranks, device, bytes).Run(rounds);
}

}  // namespace commpool::cli
