#include "tests/registration/symmetric_fixture.h"

#include <algorithm>

namespace commpool::internal::testing {

void SymmetricTest::SetUp() {
  COMMPOOL_REQUIRE_NCCL();
  if (!driver().nccl.has_windows()) GTEST_SKIP() << driver().nccl.WhyNoWindows();
  COMMPOOL_REQUIRE_DEVICES(2);
  group_.emplace(std::min(most_ranks_, DeviceCountOfTests()));
  runtime_ = std::make_unique<Runtime>(shared_driver());
}

void SymmetricTest::TearDown() {
  if (!pools_.empty()) ExpectOk(Close());
  DestroyPools();
  End();
}

void SymmetricTest::End() {
  runtime_.reset();
  group_.reset();
}

PoolConfiguration SymmetricTest::Configured(const Rank& rank) {
  PoolConfiguration configuration;
  configuration.name = "gradients";
  configuration.streams = Streams::kOutlive;
  configuration.backing.placement.device = rank.number;
  configuration.home = rank.communicator;
  configuration.deadline_ms = 20000;
  return configuration;
}

Statuses SymmetricTest::Create(const Adjust& adjust) {
  handles_.assign(static_cast<size_t>(group_->size()), 0);
  Statuses statuses = Run([&](Rank& rank) {
    PoolConfiguration configuration = Configured(rank);
    if (adjust) adjust(rank, configuration);
    Result<PoolHandle> made = runtime_->CreatePool(std::move(configuration));
    if (made.ok()) handles_[static_cast<size_t>(rank.number)] = *made;
    return made.status();
  });
  const bool made = std::all_of(statuses.begin(), statuses.end(), [](const Status& status) { return status.ok(); });
  if (made) {
    for (const PoolHandle handle : handles_) pools_.push_back(runtime_->pools().Find(handle).value());
  }
  return statuses;
}

void SymmetricTest::CreateAndReserve(uint64_t bytes, const Adjust& adjust) {
  ExpectOk(Create(adjust));
  ExpectOk(Reserve(bytes));
}

Statuses SymmetricTest::Reserve(uint64_t bytes) {
  return Run([&](Rank& rank) { return PoolOf(rank).mode().Reserve(bytes); });
}

Statuses SymmetricTest::Reclaim() {
  return Run([&](Rank& rank) { return PoolOf(rank).mode().Reclaim().status(); });
}

Statuses SymmetricTest::Trim(uint64_t keep_bytes) {
  return Run([&](Rank& rank) { return PoolOf(rank).Trim(keep_bytes).status(); });
}

Statuses SymmetricTest::Close() {
  return Run([&](Rank& rank) { return PoolOf(rank).Close(); });
}

Status SymmetricTest::LeaveHome(Rank& rank) {
  const ContextGuard current(driver(), rank.context);
  Status status = PoolOf(rank).mode().AbandonCommunicator(rank.communicator, CommunicatorLife::kAlive);
  EXPECT_EQ(driver().nccl.ncclCommAbort(std::exchange(rank.communicator, nullptr)), ncclSuccess);
  return status;
}

void SymmetricTest::LeaveAll() {
  for (int number = 0; number <= last(); ++number) ExpectOk({LeaveHome(group()[number])});
}

void SymmetricTest::Connect(int first) {
  const std::vector<ncclComm_t> communicators = group().ConnectFrom(first);
  for (int number = 0; number <= last(); ++number) {
    group()[number].communicator = communicators[static_cast<size_t>(number)];
  }
}

Statuses SymmetricTest::RunFrom(int first, const std::function<Status(Rank&)>& body) {
  return Run([&](Rank& rank) { return rank.number < first ? Status() : body(rank); });
}

Statuses SymmetricTest::RehomeFrom(int first) {
  return RunFrom(first, [&](Rank& rank) { return PoolOf(rank).mode().AsSymmetric()->Rehome(rank.communicator); });
}

std::vector<CUdeviceptr> SymmetricTest::Allocate(uint64_t bytes) {
  std::vector<CUdeviceptr> blocks(pools_.size());
  ExpectOk(Run([&](Rank& rank) {
    Result<CUdeviceptr> block = PoolOf(rank).Allocate(bytes, KeyOfStream(rank.stream, rank.number));
    if (block.ok()) blocks[static_cast<size_t>(rank.number)] = *block;
    return block.status();
  }));
  return blocks;
}

void SymmetricTest::Free(const std::vector<CUdeviceptr>& blocks) {
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).Free(blocks[static_cast<size_t>(rank.number)]); }));
}

std::vector<uint64_t> SymmetricTest::OffsetsOf(const std::vector<CUdeviceptr>& blocks) {
  std::vector<uint64_t> offsets(blocks.size());
  ExpectOk(Run([&](Rank& rank) {
    const auto number = static_cast<size_t>(rank.number);
    const std::optional<WindowPlace> place = runtime().windows().Find(rank.communicator, blocks[number]);
    if (!place) return NotFound("the block is in no window");
    offsets[number] = place->offset;
    return Status();
  }));
  return offsets;
}

uint64_t SymmetricTest::ReservedBytes(int rank) { return PoolOf((*group_)[rank]).Statistics().reserved_bytes.current; }

uint64_t SymmetricTest::RegisteredSegments(int rank) {
  return PoolOf((*group_)[rank]).Statistics().registered_segments;
}

void SymmetricTest::DestroyPools() {
  pools_.clear();
  for (const PoolHandle handle : handles_) {
    if (handle == 0) continue;  // a rank whose create failed
    const Status status = runtime_->DestroyPool(handle);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  handles_.clear();
}

void SymmetricTest::ReleasePoolOf(int rank) {
  const auto number = static_cast<size_t>(rank);
  pools_[number].reset();
  ExpectOk({runtime_->DestroyPool(std::exchange(handles_[number], 0))});
}

}  // namespace commpool::internal::testing
