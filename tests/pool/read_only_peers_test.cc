// Peers that are granted to read alone: of every page and segment, whenever it comes, moves or comes back.
#include <vector>

#include "tests/pool/pool_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

struct Kind {
  const char* name;
  Mode mode;
  Placement::Kind location;
};

class ReadOnlyPeers : public PoolTest, public ::testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_DEVICES(2);
    PoolConfiguration configuration = Configured("weights");
    configuration.backing.grants = Grants::kRead;
    configuration.backing.placement.kind = GetParam().location;
    configuration.mode = GetParam().mode;
    configuration.peers = {1};
    Result<PoolHandle> made = runtime().CreatePool(std::move(configuration));
    if (made.status().code() == StatusCode::kNotSupported) GTEST_SKIP() << made.status().message();
    pool_ = made.value();
  }

  // The end of an expandable pool releases its addresses.
  ~ReadOnlyPeers() override {
    if (pool_ != 0) static_cast<void>(runtime().DestroyPool(pool_));
  }

  Pool& pool() { return Get(pool_); }
  CUdeviceptr Allocate(uint64_t bytes) { return runtime().AllocateFrom(pool_, bytes, nullptr).value(); }
  void Free(CUdeviceptr block) { EXPECT_TRUE(runtime().Free(block).ok()); }

  unsigned long long AccessOf(int device, CUdeviceptr address) {
    const CUmemLocation location{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    unsigned long long flags = ~0ull;
    EXPECT_EQ(cuda().cuMemGetAccess(&flags, &location, address), CUDA_SUCCESS);
    return flags;
  }
  uint64_t WrongBytes(CUdeviceptr address, uint64_t bytes, uint8_t value) {
    uint64_t wrong = bytes;
    Compare(nullptr, address, bytes, value, &wrong);
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    return wrong;
  }
  // Expects that the pool's device writes to the first and the last page, and that device 1 reads both and writes none.
  void ExpectReadByThePeer(CUdeviceptr block, uint64_t bytes, uint8_t value) {
    for (const CUdeviceptr part : {block, block + bytes - kPart}) {
      Fill(nullptr, part, kPart, value);
      ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
      ExpectReadAs(part, value);
    }
  }
  void ExpectReadAs(CUdeviceptr part, uint8_t value) {
    EXPECT_EQ(AccessOf(0, part), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_EQ(AccessOf(1, part), CU_MEM_ACCESS_FLAGS_PROT_READ);
    {
      const ContextGuard guard(driver(), peer_);
      EXPECT_EQ(WrongBytes(part, kPart, value), 0u);
      if (OnEmulator()) {  // on hardware a write costs the peer its context: peer_write_test.cc
        EXPECT_NE(cuda().cuMemsetD8Async(part, 1, kPart, nullptr), CUDA_SUCCESS);
      }
    }
    EXPECT_EQ(WrongBytes(part, kPart, value), 0u);
  }

  static constexpr uint64_t kPart = 4096;
  PrimaryContext peer_ = DeviceCountOfTests() > 1 ? PrimaryContext::Retain(driver(), 1).value() : PrimaryContext();
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
  for (const CUdeviceptr block : {small, again}) Free(block);
}

TEST_P(ReadOnlyPeers, ReadWhatASleepKept) {
  const CUdeviceptr block = Allocate(4 * kMiB);
  Fill(nullptr, block, 4 * kMiB, 7);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_TRUE(SleepAlone(pool(), {.keep = Keep::kHost}).ok());
  ASSERT_TRUE(WakeAlone(pool()).ok());
  for (const CUdeviceptr part : {block, block + 4 * kMiB - kPart}) ExpectReadAs(part, 7);
  ExpectReadByThePeer(block, 4 * kMiB, 8);
  Free(block);
}

TEST_P(ReadOnlyPeers, ReadAloneAfterALaterGrantToo) {
  const CUdeviceptr block = Allocate(2 * kMiB);
  ASSERT_TRUE(pool().segments().peers.Revoke({1}).ok());
  EXPECT_EQ(AccessOf(1, block), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ASSERT_TRUE(pool().segments().peers.Grant({1}).ok());
  ExpectReadByThePeer(block, 2 * kMiB, 4);
  EXPECT_NE(pool().segments().peers.Access().what.find("0 1:read"), std::string::npos)
      << pool().segments().peers.Access().what;
  Free(block);
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
  for (const CUdeviceptr block : {blocks[0], blocks[2], blocks[4], blocks[6], large}) Free(block);
}

}  // namespace
}  // namespace commpool::internal::testing
