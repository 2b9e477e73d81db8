// A symmetric pool on every rank of a group, for the tests of collective calls.
#pragma once

#include <algorithm>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/pool/runtime.h"
#include "src/library/pool/symmetric/symmetric_mode.h"
#include "tests/registration/rank_group.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {

class SymmetricTest;

// A block on each rank until the end of its scope. Rank 0's comes first.
class [[nodiscard]] HeldBlocks {
 public:
  HeldBlocks(SymmetricTest& test, uint64_t bytes);
  ~HeldBlocks();
  HeldBlocks(const HeldBlocks&) = delete;
  HeldBlocks& operator=(const HeldBlocks&) = delete;

  operator const std::vector<CUdeviceptr>&() const { return blocks_; }  // NOLINT(google-explicit-constructor)
  CUdeviceptr operator[](size_t rank) const { return blocks_[rank]; }
  CUdeviceptr back() const { return blocks_.back(); }
  size_t size() const { return blocks_.size(); }

 private:
  SymmetricTest& test_;
  const std::vector<CUdeviceptr> blocks_;
};

// Uses four ranks, or as many as a test asks for, where there are enough devices; at least two. In the end it closes
// every pool, which must succeed.
class SymmetricTest : public DriverTest {
 protected:
  explicit SymmetricTest(int most_ranks = 4) : most_ranks_(most_ranks) {}

  using Adjust = std::function<void(const Rank&, PoolConfiguration&)>;

  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    if (!driver().nccl.has_windows()) GTEST_SKIP() << driver().nccl.WhyNoWindows();
    COMMPOOL_REQUIRE_DEVICES(2);
    group_.emplace(std::min(most_ranks_, DeviceCountOfTests()));
    runtime_ = std::make_unique<Runtime>(shared_driver());
    Prepare();
  }
  // What a derived fixture does where the test is not skipped.
  virtual void Prepare() {}
  void TearDown() override {
    if (!pools_.empty()) ExpectOk(Close());
    for (std::vector<ncclComm_t>& other : others_) group().Destroy(other);
    DestroyPools();
    End();
  }

  RankGroup& group() { return *group_; }
  Runtime& runtime() { return *runtime_; }
  int last() const { return group_->size() - 1; }
  std::string LastRank() const { return "rank " + std::to_string(last()); }

  static PoolConfiguration Configured(const Rank& rank) {
    PoolConfiguration configuration;
    configuration.name = "gradients";
    configuration.streams = Streams::kOutlive;
    configuration.backing.placement.device = rank.number;
    configuration.home = rank.communicator;
    configuration.deadline_ms = 20000;
    return configuration;
  }
  // An Adjust: the program frees in each stream's order.
  static void Ordered(const Rank&, PoolConfiguration& configuration) {
    configuration.frees = engine::FreeOrder::kOrdered;
  }
  // An Adjust: collective calls end after so long.
  static Adjust Deadline(uint64_t milliseconds) {
    return [=](const Rank&, PoolConfiguration& configuration) { configuration.deadline_ms = milliseconds; };
  }
  // Makes the test's pool on every rank; `adjust` changes what a rank asks for.
  Statuses Create(const Adjust& adjust = nullptr) {
    handles_.assign(static_cast<size_t>(group_->size()), 0);
    Statuses statuses = Run([&](Rank& rank) {
      PoolConfiguration configuration = Configured(rank);
      if (adjust) adjust(rank, configuration);
      Result<PoolHandle> made = runtime_->CreatePool(std::move(configuration));
      if (made.ok()) handles_[rank.index()] = *made;
      return made.status();
    });
    if (std::all_of(statuses.begin(), statuses.end(), [](const Status& status) { return status.ok(); })) {
      for (const PoolHandle handle : handles_) pools_.push_back(runtime_->pools().Find(handle).value());
    }
    return statuses;
  }
  // The same and then its first reserve, which must succeed.
  void CreateAndReserve(uint64_t bytes, const Adjust& adjust = nullptr) {
    ExpectOk(Create(adjust));
    ExpectOk(Reserve(bytes));
  }
  Pool& PoolOf(const Rank& rank) { return *pools_[static_cast<size_t>(rank.number)]; }
  PoolHandle HandleOf(const Rank& rank) const { return handles_[static_cast<size_t>(rank.number)]; }

  Statuses Run(const std::function<Status(Rank&)>& body) { return group_->Run(body); }
  void ForEach(const std::function<void(Rank&)>& body) { group_->ForEach(body); }
  Statuses Reserve(uint64_t bytes) {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().Reserve(bytes); });
  }
  Statuses Reclaim() {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().Reclaim().status(); });
  }
  Statuses Trim(uint64_t keep_bytes) {
    return Run([&](Rank& rank) { return PoolOf(rank).Trim(keep_bytes).status(); });
  }
  Statuses Close() {
    return Run([&](Rank& rank) { return PoolOf(rank).Close(); });
  }
  Statuses Verify() {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().AsSymmetric()->Verify(); });
  }
  Statuses Sleep(const SleepRequest& request = {}) {
    return Run([&](Rank& rank) { return SleepAlone(PoolOf(rank), request); });
  }
  Statuses Wake(const SleepRequest& request = {}) {
    return Run([&](Rank& rank) { return WakeAlone(PoolOf(rank), request); });
  }
  void SleepAndWake(const SleepRequest& request = {}) {
    ExpectOk(Sleep(request));
    ExpectOk(Wake());
  }
  // With the communicators of ranks that have one; null on the others.
  Statuses Register(const std::vector<ncclComm_t>& communicators) {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(communicators[rank.index()]); });
  }
  Statuses Deregister(const std::vector<ncclComm_t>& communicators) {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(communicators[rank.index()]); });
  }
  Statuses Abandon(const std::vector<ncclComm_t>& communicators, CommunicatorLife life) {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().AbandonCommunicator(communicators[rank.index()], life); });
  }
  void Abort(const std::vector<ncclComm_t>& communicators) {
    for (const ncclComm_t communicator : communicators) {
      EXPECT_TRUE(communicator == nullptr || driver().nccl.ncclCommAbort(communicator) == ncclSuccess);
    }
  }
  std::vector<ncclComm_t> SplitFrom(const std::vector<ncclComm_t>& parents) {
    std::vector<ncclComm_t> children(parents.size());
    ForEach([&](Rank& rank) {
      const size_t at = rank.index();
      EXPECT_EQ(driver().nccl.ncclCommSplit(parents[at], 0, rank.number, &children[at], nullptr), ncclSuccess);
    });
    return children;
  }
  // One more communicator over the ranks from `first` on; null on the others. It ends after the pools.
  const std::vector<ncclComm_t>& Another(int first = 0, const ncclConfig_t& config = NCCL_CONFIG_INITIALIZER) {
    return Keep(group().ConnectFrom(first, config));
  }
  const std::vector<ncclComm_t>& Keep(const std::vector<ncclComm_t>& made) { return others_.emplace_back(made); }
  // They have been aborted.
  void ForgetOthers() { others_.clear(); }
  // Of each rank, which its pool is at home with.
  std::vector<ncclComm_t> Homes() {
    std::vector<ncclComm_t> homes;
    for (const Rank& rank : group()) homes.push_back(rank.communicator);
    return homes;
  }
  // A pool of one rank's device alone, which the test destroys.
  std::shared_ptr<Pool> MakeFixed(const char* name = "fixed", int device = 0, uint64_t limit_bytes = UINT64_MAX) {
    PoolConfiguration configuration;
    configuration.name = name;
    configuration.backing.placement.device = device;
    configuration.limit_bytes = limit_bytes;
    return runtime_->pools().Find(runtime_->CreatePool(std::move(configuration)).value()).value();
  }

  // This rank gives up its home as after a loss; no other rank takes part.
  Status LeaveHome(Rank& rank) {
    const ContextGuard current(driver(), rank.context);
    Status status = PoolOf(rank).mode().AbandonCommunicator(rank.communicator, CommunicatorLife::kAlive);
    EXPECT_EQ(driver().nccl.ncclCommAbort(std::exchange(rank.communicator, nullptr)), ncclSuccess);
    return status;
  }
  void LeaveAll() {
    for (Rank& rank : group()) ExpectOk({LeaveHome(rank)});
  }
  // Makes a communicator for the ranks from `first` on, which are then at home there.
  void Connect(int first) {
    const std::vector<ncclComm_t> communicators = group().ConnectFrom(first);
    for (Rank& rank : group()) rank.communicator = communicators[rank.index()];
  }
  Statuses RunFrom(int first, const std::function<Status(Rank&)>& body) {
    return Run([&](Rank& rank) { return rank.number < first ? Status() : body(rank); });
  }
  // The results of all ranks but the last, which does nothing.
  Statuses RunButLast(const std::function<Status(Rank&)>& body) {
    Statuses statuses = Run([&](Rank& rank) { return rank.number == last() ? Status() : body(rank); });
    statuses.pop_back();
    return statuses;
  }
  Statuses RehomeFrom(int first) {
    return RunFrom(first, [&](Rank& rank) { return PoolOf(rank).mode().AsSymmetric()->Rehome(rank.communicator); });
  }
  // All of these; every step must succeed.
  void MoveHome(int first = 0) {
    LeaveAll();
    Connect(first);
    ExpectOk(RehomeFrom(first));
  }

  static Result<CUdeviceptr> AllocateFrom(Pool& pool, const Rank& rank, uint64_t bytes) {
    return pool.Allocate(bytes, KeyOfStream(rank.stream, rank.number));
  }
  Result<CUdeviceptr> AllocateOn(const Rank& rank, uint64_t bytes) { return AllocateFrom(PoolOf(rank), rank, bytes); }
  Status AllocateAndFreeOn(const Rank& rank, uint64_t bytes) {
    const Result<CUdeviceptr> block = AllocateOn(rank, bytes);
    return block.ok() ? PoolOf(rank).Free(*block) : block.status();
  }
  // Allocates one block on each rank, which must succeed. Rank 0's comes first.
  std::vector<CUdeviceptr> Allocate(uint64_t bytes) {
    std::vector<CUdeviceptr> blocks(pools_.size());
    ExpectOk(Run([&](Rank& rank) {
      const Result<CUdeviceptr> block = AllocateOn(rank, bytes);
      if (block.ok()) blocks[rank.index()] = *block;
      return block.status();
    }));
    return blocks;
  }
  void Free(const std::vector<CUdeviceptr>& blocks) {
    ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).Free(blocks[rank.index()]); }));
  }
  std::vector<CUdeviceptr> CreateAndAllocate(uint64_t reserved_bytes, uint64_t bytes, const Adjust& adjust = nullptr) {
    CreateAndReserve(reserved_bytes, adjust);
    return Allocate(bytes);
  }
  HeldBlocks Hold(uint64_t bytes) { return HeldBlocks(*this, bytes); }
  HeldBlocks CreateAndHold(uint64_t reserved_bytes, uint64_t bytes, const Adjust& adjust = nullptr) {
    CreateAndReserve(reserved_bytes, adjust);
    return Hold(bytes);
  }
  void FreeButLast(const std::vector<CUdeviceptr>& blocks) {
    ExpectOk(RunButLast([&](Rank& rank) { return PoolOf(rank).Free(blocks[rank.index()]); }));
  }
  // An all-reduce of this rank over memory without a window, and its end.
  void Reduce(const Rank& rank, ncclComm_t communicator) {
    CUdeviceptr& memory = reduced_[rank.index()];
    EXPECT_EQ(driver().cuda.cuMemAlloc(&memory, kKiB), CUDA_SUCCESS);
    auto* const data = reinterpret_cast<void*>(memory);
    EXPECT_EQ(driver().nccl.ncclAllReduce(data, data, 1, ncclFloat, ncclSum, communicator, rank.stream), ncclSuccess);
  }
  void EndReduce(const Rank& rank) {
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuMemFree(reduced_[rank.index()]), CUDA_SUCCESS);
  }
  // Each rank's number in the first 4 KiB of its block.
  void WriteNumbers(const std::vector<CUdeviceptr>& blocks) {
    ForEach([&](Rank& rank) {
      const std::vector<int> numbers(kKiB, rank.number + 1);
      EXPECT_EQ(driver().cuda.cuMemcpyHtoD(blocks[rank.index()], numbers.data(), 4 * kKiB), CUDA_SUCCESS);
    });
  }
  void ExpectNumbers(const std::vector<CUdeviceptr>& blocks) {
    ForEach([&](Rank& rank) {
      std::vector<int> numbers(kKiB);
      EXPECT_EQ(driver().cuda.cuMemcpyDtoH(numbers.data(), blocks[rank.index()], 4 * kKiB), CUDA_SUCCESS);
      EXPECT_EQ(numbers, std::vector<int>(kKiB, rank.number + 1));
    });
  }
  // Where a block lies in its window of the rank's communicator.
  std::optional<WindowPlace> WindowOf(const Rank& rank, CUdeviceptr block) {
    return runtime().windows().Find(rank.communicator, block);
  }
  // The offset of each rank's block there.
  std::vector<uint64_t> OffsetsOf(const std::vector<CUdeviceptr>& blocks) {
    std::vector<uint64_t> offsets(blocks.size());
    ExpectOk(Run([&](Rank& rank) {
      const std::optional<WindowPlace> place = WindowOf(rank, blocks[rank.index()]);
      if (!place) return NotFound("the block is in no window");
      offsets[rank.index()] = place->offset;
      return Status();
    }));
    return offsets;
  }
  commpool_statistics StatisticsOf(int rank) { return PoolOf((*group_)[rank]).Statistics(); }
  uint64_t ReservedBytes(int rank) { return StatisticsOf(rank).reserved_bytes.current; }
  uint64_t RegisteredSegments(int rank) { return StatisticsOf(rank).registered_segments; }
  MemoryAccount& Account(int device) { return runtime().devices().Get(device).value()->account(); }
  // Expects that every rank's pool has so much memory, and so many registrations of it.
  void ExpectOnAll(uint64_t reserved_bytes, uint64_t registered_segments, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
    const ::testing::ScopedTrace trace(file, line, "on all ranks");
    for (int rank = 0; rank <= last(); ++rank) {
      EXPECT_EQ(ReservedBytes(rank), reserved_bytes) << "rank " << rank;
      EXPECT_EQ(RegisteredSegments(rank), registered_segments) << "rank " << rank;
    }
  }
  void AllowLeaks(const std::vector<const char*>& fragments) {
    for (const char* const fragment : fragments) AllowLeak(fragment);
  }
  // The memory that each rank's device has left.
  std::vector<size_t> FreeMemory() {
    std::vector<size_t> bytes(static_cast<size_t>(group().size()));
    ForEach([&](Rank& rank) {
      size_t total = 0;
      EXPECT_EQ(driver().cuda.cuMemGetInfo(&bytes[rank.index()], &total), CUDA_SUCCESS);
    });
    return bytes;
  }

  // Ends the pools' handles without a call of NCCL.
  void DestroyPools() {
    pools_.clear();
    for (const PoolHandle handle : handles_) {
      if (handle == 0) continue;  // a rank whose create failed
      ExpectOk({runtime_->DestroyPool(handle)});
    }
    handles_.clear();
  }
  void ReleasePoolOf(int rank) {
    const auto number = static_cast<size_t>(rank);
    pools_[number].reset();
    ExpectOk({runtime_->DestroyPool(std::exchange(handles_[number], 0))});
  }
  // Ends runtime and communicators, before the fixture looks for leaks and reports.
  void End() {
    runtime_.reset();
    group_.reset();
  }

 private:
  friend class HeldBlocks;

  const int most_ranks_;
  std::optional<RankGroup> group_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<PoolHandle> handles_;
  std::vector<std::shared_ptr<Pool>> pools_;
  std::list<std::vector<ncclComm_t>> others_;
  std::vector<CUdeviceptr> reduced_ = std::vector<CUdeviceptr>(8);  // by rank
};

inline HeldBlocks::HeldBlocks(SymmetricTest& test, uint64_t bytes) : test_(test), blocks_(test.Allocate(bytes)) {}

inline HeldBlocks::~HeldBlocks() { test_.Free(blocks_); }

}  // namespace commpool::internal::testing
