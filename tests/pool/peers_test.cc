// Peers are granted for one pool: for its segments now and later, until they are revoked.
#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

class WithAPeer : public PoolTest {
 protected:
  const PrimaryContext peer_ = DeviceCountOfTests() > 1 ? PrimaryContext::Retain(driver(), 1).value()
                                                        : PrimaryContext();
};

class Peers : public WithAPeer {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_DEVICES(2);
    if (!Grant({1}).ok()) GTEST_SKIP() << "needs a link between devices 0 and 1";
    ASSERT_TRUE(Revoke({1}).ok());
  }

  CUdeviceptr Allocate(uint64_t bytes) { return PoolTest::Allocate(pool_, bytes); }
  // Whether device 1 can read the memory, by a copy.
  bool PeerReads(CUdeviceptr address) {
    ContextGuard guard(driver(), peer_);
    CUdeviceptr own = 0;
    EXPECT_EQ(cuda().cuMemAlloc(&own, 4096), CUDA_SUCCESS);
    CUresult result = cuda().cuMemcpyDtoDAsync(own, address, 4096, nullptr);
    if (result == CUDA_SUCCESS) result = cuda().cuCtxSynchronize();
    EXPECT_EQ(cuda().cuMemFree(own), CUDA_SUCCESS);
    return result == CUDA_SUCCESS;
  }

  // Whether the driver lets the device read and write the memory.
  bool HasAccess(int device, CUdeviceptr address) {
    return AccessOf(device, address) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  Status Grant(const std::vector<int>& devices) { return Get(pool_).segments().peers.Grant(devices); }
  Status Revoke(const std::vector<int>& devices) { return Get(pool_).segments().peers.Revoke(devices); }
  // The driver refuses an access: the first, or a later one.
  void ExpectTheGrantToFail(int skip = 0) {
    const InjectedFault fault({.call = "cuMemSetAccess", .result = CUDA_ERROR_UNKNOWN, .skip = skip});
    EXPECT_EQ(Grant({1, 2}).code(), StatusCode::kDriverError);
  }

  PoolHandle pool_ = Create(Configured("shared"));
};

TEST_F(Peers, OfAnOldSegmentDoNotReachTheNewOneAtItsAddresses) {
  Allocate(2 * kMiB);
  ASSERT_TRUE(Grant({1}).ok());
  const CUdeviceptr before = Allocate(30 * kMiB);
  EXPECT_TRUE(HasAccess(1, before));
  Free(before);
  ASSERT_TRUE(Revoke({1}).ok());
  ASSERT_EQ(Get(pool_).Trim(0).value(), 30 * kMiB);
  const CUdeviceptr after = Allocate(30 * kMiB);
  EXPECT_EQ(after, before);
  EXPECT_TRUE(HasAccess(0, after));
  EXPECT_FALSE(HasAccess(1, after));
}

// A block that was just served waits for the fences of its last users, which no block names any more.
TEST_F(Peers, KeepTheirFencesThroughAWaitForThePoolsDevice) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  pool_ = CreateWith({.name = "limited", .peers = {1}, .limit_bytes = 30 * kMiB});
  const CUdeviceptr block = Allocate(30 * kMiB);
  std::optional<HeldWork> work;
  {
    ContextGuard guard(driver(), peer_);
    work.emplace(driver(), nullptr, block);
    ASSERT_TRUE(runtime().RecordStream(block, nullptr).ok());
  }
  Free(block);
  EXPECT_EQ(Allocate(30 * kMiB), block);
  const BlockStore::Uses uses = Get(pool_).blocks().NoteUses();
  EXPECT_FALSE(uses.places.contains(1)) << "no block names the peer any more";
  for (const engine::Fence fence : uses.fences) EXPECT_TRUE(uses.places.contains(PlaceOf(fence)));
  {
    BlockStore& blocks = Get(pool_).blocks();
    MutexLock lock(blocks.mutex());
    EXPECT_EQ(blocks.engine().PendingFences().size(), 1u) << "and it has not passed";
  }
  work->End();
}

// The peer needs no grant: its context has peer access to all memory of cudaMalloc.
TEST_F(Peers, OwnTheirDefaultStreamInMemoryOfCudaMalloc) {
  pool_ = CreateWith({.name = "linear", .kind = BackingKind::kCuda});
  ContextGuard guard(driver(), peer_);
  const CUdeviceptr block = Allocate(2 * kMiB);
  BlockStore& blocks = Get(pool_).blocks();
  MutexLock lock(blocks.mutex());
  EXPECT_EQ(PlaceOf(blocks.engine().heap().FindStart(block)->stream), 1);
}

TEST_F(Peers, ReadSegmentsFromBeforeAndAfterTheGrant) {
  const CUdeviceptr before = Allocate(2 * kMiB);
  ASSERT_TRUE(Grant({1}).ok());
  EXPECT_TRUE(PeerReads(before));
  EXPECT_TRUE(PeerReads(Allocate(30 * kMiB)));
}

TEST_F(Peers, OfTheOptionsAreGrantedEverySegment) {
  std::vector<int> named = {0, 1};
  if (DeviceCountOfTests() > 2) named.push_back(1);  // at most one entry for each device
  pool_ = CreateWith({.name = "with peers", .peers = named});
  EXPECT_TRUE(PeerReads(Allocate(kMiB)));
}

TEST_F(Peers, AGrantAgainMakesNoCall) {
  Allocate(kMiB);
  ASSERT_TRUE(Grant({1}).ok());
  const uint64_t calls = CallCount("cuMemSetAccess");
  EXPECT_TRUE(Grant({1}).ok());
  EXPECT_TRUE(Grant({0}).ok()) << "its own device has access anyway";
  EXPECT_EQ(CallCount("cuMemSetAccess"), calls);
}

TEST_F(Peers, AreGrantedASegmentInOneCall) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  COMMPOOL_REQUIRE_DEVICES(3);
  const CUdeviceptr before = Allocate(30 * kMiB);
  uint64_t calls = CallCount("cuMemSetAccess");
  ASSERT_TRUE(Grant({1, 2}).ok());
  EXPECT_EQ(CallCount("cuMemSetAccess"), calls + 1);
  calls = CallCount("cuMemSetAccess");
  const CUdeviceptr after = Allocate(30 * kMiB);
  EXPECT_EQ(CallCount("cuMemSetAccess"), calls + 1) << "its own device and both peers";
  for (const CUdeviceptr address : {before, after}) {
    for (const int device : {0, 1, 2}) EXPECT_TRUE(HasAccess(device, address)) << device;
  }
}

TEST_F(Peers, MayBeNobody) {
  EXPECT_TRUE(Grant({}).ok());
  EXPECT_TRUE(Revoke({}).ok());
}

TEST_F(Peers, ThatWereRevokedGetNoLaterSegment) {
  COMMPOOL_REQUIRE_EMULATOR("a refused access would cost the device its context");
  Allocate(kMiB);
  ASSERT_TRUE(Grant({1}).ok());
  ASSERT_TRUE(Revoke({1}).ok());
  const uint64_t calls = CallCount("cuMemSetAccess");
  Allocate(30 * kMiB);
  EXPECT_EQ(CallCount("cuMemSetAccess"), calls + 1) << "the pool's own device alone";
}

TEST_F(Peers, KeepTheirAccessToAllSegmentsWhereARevokeFails) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  const std::vector<CUdeviceptr> blocks = {Allocate(kMiB), Allocate(30 * kMiB)};
  ASSERT_TRUE(Grant({1}).ok());
  {
    InjectedFault fault({.call = "cuMemSetAccess", .result = CUDA_ERROR_UNKNOWN, .skip = 1});
    ExpectFailure(Revoke({1}), StatusCode::kDriverError, "cuMemSetAccess");
  }
  for (const CUdeviceptr block : blocks) EXPECT_TRUE(HasAccess(1, block));
}

TEST_F(Peers, ThatWereNeverGrantedAreNotRevoked) {
  ExpectFailure(Revoke({1}), StatusCode::kNotFound, "never granted to device 1");
}

TEST_F(Peers, ThatDoNotExistAreRefusedAndNoneIsGranted) {
  for (const int nobody : {-1, DeviceCountOfTests(), 1000}) {
    EXPECT_FALSE(Grant({1, nobody}).ok()) << nobody;
    EXPECT_EQ(Revoke({1}).code(), StatusCode::kNotFound);
    EXPECT_FALSE(runtime().CreatePool(ConfiguredWith({.name = "bad peer", .peers = {nobody}})).ok()) << nobody;
  }
}

TEST_F(Peers, AreAllRefusedWhereOneGrantFails) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  COMMPOOL_REQUIRE_DEVICES(3);
  Allocate(kMiB);
  ExpectTheGrantToFail();
  EXPECT_EQ(Revoke({1}).code(), StatusCode::kNotFound);
  EXPECT_TRUE(Grant({1, 2}).ok());
}

TEST_F(Peers, LoseWhatAFailedGrantGaveThem) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  COMMPOOL_REQUIRE_DEVICES(3);
  const std::vector<CUdeviceptr> addresses = {Allocate(30 * kMiB), Allocate(30 * kMiB)};  // one segment each
  for (int granted_before = 0; granted_before < 2; ++granted_before) {
    ExpectTheGrantToFail(granted_before);
    for (const CUdeviceptr address : addresses) {
      EXPECT_TRUE(HasAccess(0, address));
      EXPECT_FALSE(HasAccess(1, address)) << granted_before;
      EXPECT_FALSE(HasAccess(2, address)) << granted_before;
    }
  }
  ASSERT_TRUE(Grant({1, 2}).ok());
  for (const CUdeviceptr address : addresses) EXPECT_TRUE(HasAccess(1, address) && HasAccess(2, address));
}

TEST_F(Peers, KeepWhatAnEarlierGrantGaveThem) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  COMMPOOL_REQUIRE_DEVICES(3);
  const CUdeviceptr address = Allocate(kMiB);
  ASSERT_TRUE(Grant({1}).ok());
  ExpectTheGrantToFail();
  EXPECT_TRUE(HasAccess(1, address));
  EXPECT_FALSE(HasAccess(2, address));
  EXPECT_TRUE(Revoke({1}).ok());
  EXPECT_FALSE(HasAccess(1, address));
}

TEST_F(Peers, OfCudaMemoryAreNotThePoolsToRevoke) {
  ExpectFailure(Get(CreateWith({.name = "cuda", .kind = BackingKind::kCuda})).segments().peers.Revoke({1}),
                StatusCode::kFailedPrecondition, "pool cuda");
}

// A stream of the peer uses the memory.
class PeerStream : public Peers {
 protected:
  void SetUp() override {
    Peers::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_TRUE(Grant({1}).ok());
    ContextGuard guard(driver(), peer_);
    stream_ = std::make_unique<TestStream>();
  }
  void Work(CUdeviceptr address, uint64_t bytes) {
    ContextGuard guard(driver(), peer_);
    for (int round = 0; round < 20; ++round) Fill(stream_->get(), address, bytes, 1);
  }

  std::unique_ptr<TestStream> stream_;
};

TEST_F(PeerStream, KeepsABlockUntilItsWorkIsDone) {
  COMMPOOL_REQUIRE_EMULATOR("an H200 destroys the fence with the last release of the peer's context");
  const CUdeviceptr address = Allocate(kMiB);
  Work(address, kMiB);
  ASSERT_TRUE(runtime().RecordStream(address, stream_->get()).ok());
  Free(address);
  const CUdeviceptr next = Allocate(kMiB);
  Fill(nullptr, next, kMiB, 2);
  ExpectBytes(nullptr, next, kMiB, 2);
}

TEST_F(PeerStream, IsWaitedForBeforeASegmentGoes) {
  const CUdeviceptr address = Allocate(30 * kMiB);
  Work(address, 30 * kMiB);
  ASSERT_TRUE(runtime().RecordStream(address, stream_->get()).ok());
  Free(address);
  EXPECT_EQ(Get(pool_).Trim(0).value(), 30 * kMiB);
  EXPECT_EQ(cuda().cuStreamQuery(stream_->get()), CUDA_SUCCESS);
}

TEST_F(PeerStream, IsWaitedForBeforeItsAccessEnds) {
  const CUdeviceptr address = Allocate(30 * kMiB);
  Work(address, 30 * kMiB);
  EXPECT_TRUE(Revoke({1}).ok());
  EXPECT_EQ(cuda().cuStreamQuery(stream_->get()), CUDA_SUCCESS);
}

// Once a thread destroyed an event while another thread asked for it.
TEST_F(PeerStream, ServesFourThreadsThatFreeWhileThePoolIsTrimmed) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 500;
  std::atomic<int> failed_frees{0};
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      const ContextGuard guard(driver(), context());
      for (int round = 0; round < kRounds; ++round) {
        const CUdeviceptr address = Allocate(kMiB);
        Status status = runtime().RecordStream(address, stream_->get());
        if (status.ok()) status = runtime().Free(address);
        failed_frees += status.ok() ? 0 : 1;
      }
      --running;
    });
  }
  Status trimmed;
  while (running > 0 && trimmed.ok()) trimmed = Get(pool_).Trim(0).status();
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(trimmed.ok()) << trimmed.message();
  EXPECT_EQ(failed_frees, 0);
  EXPECT_EQ(CountersOf(pool_).allocated_blocks.current, 0u);
  EXPECT_TRUE(Get(pool_).Trim(0).ok()) << "while the peer's context lives: an H200 destroys fences with it";
}

TEST_F(PeerStream, ThatIsGoneIsAnErrorOfTheFree) {
  COMMPOOL_REQUIRE_EMULATOR("a driver may do anything with a destroyed stream");
  AllowLeak("");  // the block is never reused
  const CUdeviceptr address = Allocate(kMiB);
  ASSERT_TRUE(runtime().RecordStream(address, stream_->get()).ok());
  stream_->DestroyUnreleased();
  EXPECT_FALSE(runtime().Free(address).ok()) << "it was promised to outlive its use";
  EndRuntime();
  for (const std::string& report : TakeReports()) EXPECT_NE(report.find("dead stream"), std::string::npos) << report;
}

// Peers that are granted to read alone: of every page and segment, whenever it comes, moves or comes back.

struct Kind {
  const char* name;
  Mode mode;
  Placement::Kind location;
};

class ReadOnlyPeers : public WithAPeer, public ::testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_DEVICES(2);
    PoolConfiguration configuration = ConfiguredWith({.name = "weights", .mode = GetParam().mode, .peers = {1}});
    configuration.backing.grants = Grants::kRead;
    configuration.backing.placement.kind = GetParam().location;
    Result<PoolHandle> made = runtime().CreatePool(std::move(configuration));
    if (made.status().code() == StatusCode::kNotSupported) GTEST_SKIP() << made.status().message();
    pool_ = made.value();
  }

  Pool& pool() { return Get(pool_); }
  CUdeviceptr Allocate(uint64_t bytes) { return PoolTest::Allocate(pool_, bytes); }

  // Expects that the pool's device writes to the first and the last page, and that device 1 reads both and writes none.
  void ExpectReadByThePeer(CUdeviceptr block, uint64_t bytes, uint8_t value) {
    for (const CUdeviceptr part : {block, block + bytes - kPart}) {
      Fill(nullptr, part, kPart, value);
      Synchronize();
      ExpectReadAs(part, value);
    }
  }
  void ExpectReadAs(CUdeviceptr part, uint8_t value) {
    EXPECT_EQ(AccessOf(0, part), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_EQ(AccessOf(1, part), CU_MEM_ACCESS_FLAGS_PROT_READ);
    {
      const ContextGuard guard(driver(), peer_);
      ExpectBytes(nullptr, part, kPart, value);
      if (OnEmulator()) {  // on hardware a write costs the peer its context: peer_write_test.cc
        EXPECT_NE(cuda().cuMemsetD8Async(part, 1, kPart, nullptr), CUDA_SUCCESS);
      }
    }
    ExpectBytes(nullptr, part, kPart, value);
  }

  static constexpr uint64_t kPart = 4096;
  PoolHandle pool_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Kinds, ReadOnlyPeers,
                         ::testing::Values(Kind{"Fixed", Mode::kFixed, Placement::Kind::kDevice},
                                           Kind{"Expandable", Mode::kExpandable, Placement::Kind::kDevice},
                                           Kind{"OnHost", Mode::kFixed, Placement::Kind::kHostNuma},
                                           Kind{"ExpandableOnHost", Mode::kExpandable, Placement::Kind::kHostNuma}),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(ReadOnlyPeers, ReadWhatGrewBeforeAndAfterATrim) {
  const CUdeviceptr small = Allocate(2 * kMiB);
  const CUdeviceptr large = Allocate(30 * kMiB);
  ExpectReadByThePeer(small, 2 * kMiB, 1);
  ExpectReadByThePeer(large, 30 * kMiB, 2);
  Free(large);
  ASSERT_GT(pool().Trim(0).value(), 0u);
  const CUdeviceptr again = Allocate(30 * kMiB);
  ExpectReadByThePeer(again, 30 * kMiB, 3);
}

TEST_P(ReadOnlyPeers, ReadWhatASleepKept) {
  const CUdeviceptr block = Allocate(4 * kMiB);
  Fill(nullptr, block, 4 * kMiB, 7);
  Synchronize();
  ASSERT_TRUE(SleepAlone(pool(), {.keep = Keep::kHost}).ok());
  ASSERT_TRUE(WakeAlone(pool()).ok());
  for (const CUdeviceptr part : {block, block + 4 * kMiB - kPart}) ExpectReadAs(part, 7);
  ExpectReadByThePeer(block, 4 * kMiB, 8);
}

TEST_P(ReadOnlyPeers, ReadAloneAfterALaterGrantToo) {
  const CUdeviceptr block = Allocate(2 * kMiB);
  ASSERT_TRUE(pool().segments().peers.Revoke({1}).ok());
  EXPECT_EQ(AccessOf(1, block), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ASSERT_TRUE(pool().segments().peers.Grant({1}).ok());
  ExpectReadByThePeer(block, 2 * kMiB, 4);
  const std::string access = pool().segments().peers.Access().what;
  EXPECT_NE(access.find("0 1:read"), std::string::npos) << access;
}

TEST_P(ReadOnlyPeers, ReadPagesThatMoved) {
  if (GetParam().mode != Mode::kExpandable) GTEST_SKIP() << "its pages stay where they are";
  std::vector<CUdeviceptr> blocks;
  for (int block = 0; block < 8; ++block) blocks.push_back(Allocate(4 * kMiB));
  for (const size_t freed : {1, 3, 5, 7}) Free(blocks[freed]);
  ASSERT_TRUE(pool().blocks().WaitForDevice().ok());
  const CUdeviceptr large = Allocate(16 * kMiB);
  EXPECT_GT(pool().Statistics().moved_bytes, 0u);
  ExpectReadByThePeer(large, 16 * kMiB, 5);
  for (const size_t kept : {0, 2, 4, 6}) ExpectReadByThePeer(blocks[kept], 4 * kMiB, 6);
}

}  // namespace
}  // namespace commpool::internal::testing
