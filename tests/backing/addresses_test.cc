// A territory's addresses and the pages in them, without a pool; and the addresses of released segments, which serve
// the next segment of the same size.
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "src/library/backing/kept_addresses.h"
#include "src/library/backing/territory.h"
#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

class Territories : public BackingTest {
 protected:
  PhysicalMemory MakePage() { return backing_->MakePage(page_bytes_).value(); }
  CUdeviceptr At(uint64_t page) const { return territory_->address() + page * page_bytes_; }
  // Pages that the territory's devices may use.
  void Put(std::initializer_list<uint64_t> pages) {
    for (const uint64_t page : pages) {
      ASSERT_TRUE(territory_->Map(MakePage(), At(page)).ok());
      ASSERT_TRUE(territory_->Open(At(page), page_bytes_).ok());
    }
  }
  bool Reaches(int device, uint64_t page) { return AccessOf(device, At(page)) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE; }
  bool IsThere(uint64_t page) {
    CUmemGenericAllocationHandle handle = 0;
    if (cuda().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(At(page))) != CUDA_SUCCESS) return false;
    return cuda().cuMemRelease(handle) == CUDA_SUCCESS;
  }

  const CurrentContext context_;
  const std::unique_ptr<Backing> backing_ = Make({.kind = BackingKind::kVmm});
  const uint64_t page_bytes_ = backing_->granularity();
  const std::unique_ptr<Territory> territory_ = Territory::Reserve(*backing_, 8 * page_bytes_).value();
};

TEST_F(Territories, ReleaseEveryPageWithTheirAddresses) {
  Put({0, 3, 5});
  ASSERT_TRUE(territory_->Release().ok());
  // Expects that nothing is left: no page and no reserved addresses.
  for (const uint64_t page : {0, 3, 5}) EXPECT_FALSE(IsThere(page));
  EXPECT_EQ(territory_->missing_bytes(), 0u);
  const uint64_t calls = CallCount("*");
  EXPECT_TRUE(territory_->Release().ok()) << "a second time there is nothing to do";
  EXPECT_EQ(CallCount("*"), calls);
}

TEST_F(Territories, HandAPageOverToAnotherPlace) {
  ASSERT_TRUE(territory_->Map(MakePage(), At(0)).ok());
  std::vector<PhysicalMemory> row = territory_->UnmapRow(At(0), page_bytes_).value();
  ASSERT_TRUE(territory_->Map(std::move(row.front()), At(4)).ok());
  EXPECT_TRUE(territory_->Open(At(4), page_bytes_).ok());
  EXPECT_TRUE(territory_->Drop(At(4), page_bytes_).ok());
  EXPECT_TRUE(territory_->Map(MakePage(), At(0)).ok()) << "the place that it left is free";
}

TEST_F(Territories, TellWhereTheDriverHasNoAddressesOrMapsNothing) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  {
    const InjectedFault fault({.call = "cuMemAddressReserve", .result = CUDA_ERROR_OUT_OF_MEMORY});
    EXPECT_EQ(Territory::Reserve(*backing_, page_bytes_).status().code(), StatusCode::kOutOfMemory);
  }
  ExpectFailureOf("cuMemMap", [&] { return territory_->Map(MakePage(), At(0)); });
  EXPECT_TRUE(territory_->Map(MakePage(), At(0)).ok());
}

TEST_F(Territories, WakePieceByPiece) {
  Put({0, 1, 3, 5});
  ASSERT_TRUE(territory_->UnmapAll().ok());
  territory_->ReleaseUnmapped();
  ASSERT_EQ(territory_->missing_bytes(), 4 * page_bytes_);
  const auto wake = [&](uint64_t from, uint64_t at_least) {
    return territory_->WakeFrom(At(from), at_least, *backing_).value();
  };
  const auto use = [&](uint64_t page) { return cuda().cuMemsetD8Async(At(page), 1, page_bytes_, nullptr); };
  EXPECT_EQ(wake(0, 1), At(1));
  EXPECT_EQ(territory_->missing_bytes(), 3 * page_bytes_);
  EXPECT_EQ(use(0), CUDA_SUCCESS);
  EXPECT_EQ(wake(1, page_bytes_ + 1), At(5)) << "the next page";
  EXPECT_EQ(territory_->missing_bytes(), page_bytes_);
  EXPECT_EQ(wake(5, UINT64_MAX), At(0) + territory_->bytes());
  EXPECT_EQ(territory_->missing_bytes(), 0u);
  for (const uint64_t page : {1, 3, 5}) EXPECT_EQ(use(page), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(Territories, HandARowOfPagesOverInOneCall) {
  for (const uint64_t page : {1, 2, 3}) ASSERT_TRUE(territory_->Map(MakePage(), At(page)).ok());
  const uint64_t calls = CallCount("cuMemUnmap");
  std::vector<PhysicalMemory> row = territory_->UnmapRow(At(1), 2 * page_bytes_).value();
  EXPECT_EQ(CallCount("cuMemUnmap"), calls + 1);
  ASSERT_EQ(row.size(), 2u);
  EXPECT_FALSE(IsThere(1) || IsThere(2));
  EXPECT_TRUE(IsThere(3));
  for (const uint64_t page : {0, 1}) {
    ASSERT_TRUE(territory_->Map(std::move(row[page]), At(6 + page)).ok());
    ASSERT_TRUE(territory_->Open(At(6 + page), page_bytes_).ok());
    EXPECT_TRUE(Reaches(0, 6 + page));
  }
}

TEST_F(Territories, KeepARowThatTheDriverDoesNotUnmap) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  Put({1, 2});
  ExpectFailureOf("cuMemUnmap", [&] { return territory_->UnmapRow(At(1), 2 * page_bytes_).status(); });
  EXPECT_TRUE(IsThere(1) && IsThere(2));
  EXPECT_TRUE(territory_->UnmapRow(At(1), page_bytes_).ok());
  EXPECT_TRUE(territory_->UnmapRow(At(2), page_bytes_).ok());
}

TEST_F(Territories, DropThePagesOfARangeAndNoOther) {
  Put({0, 1, 2, 3});
  ASSERT_TRUE(territory_->Drop(At(1), 2 * page_bytes_).ok());
  EXPECT_TRUE(IsThere(0) && IsThere(3));
  EXPECT_FALSE(IsThere(1) || IsThere(2));
}

TEST_F(Territories, DropAllTheyCanAndReturnTheFirstFailure) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  AllowLeak("");  // the driver kept it
  Put({0, 1, 2});
  {
    const InjectedFault unmap({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
    const InjectedFault release({.call = "cuMemRelease", .result = CUDA_ERROR_INVALID_VALUE});
    ExpectMessage(territory_->Drop(At(0), 3 * page_bytes_), "cuMemUnmap");
  }
  EXPECT_TRUE(IsThere(0));
  EXPECT_FALSE(IsThere(1) || IsThere(2));
}

TEST_F(Territories, AskTheDriverAgainToUnmapWhatIsInTheWay) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  Put({0});
  {
    const InjectedFault unmap({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN, .count = 2});
    EXPECT_FALSE(territory_->Drop(At(0), page_bytes_).ok());
    ExpectMessage(territory_->Map(MakePage(), At(0)), "cuMemUnmap");
  }
  Put({0});
  EXPECT_TRUE(Reaches(0, 0));
}

TEST_F(Territories, LetPeersUsePresentAndFuturePages) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const int peer = ReachablePeer();
  if (peer < 0) GTEST_SKIP() << "no other device reaches device 0's memory";
  Put({0, 1, 3});
  ASSERT_TRUE(territory_->Grant(peer).ok());
  Put({5});
  for (const uint64_t page : {0, 1, 3, 5}) EXPECT_TRUE(Reaches(peer, page) && Reaches(0, page)) << page;
  ASSERT_TRUE(territory_->Revoke(peer).ok());
  Put({6});
  for (const uint64_t page : {0, 1, 3, 5, 6}) EXPECT_TRUE(!Reaches(peer, page) && Reaches(0, page)) << page;
  EXPECT_EQ(territory_->Revoke(0).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Reaches(0, 0)) << "its own device's access is not taken back";
}

TEST_F(Territories, LetNoPeerInWhereTheDriverRefuses) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  const int peer = ReachablePeer();
  Put({0, 2});
  {
    const InjectedFault fault({.call = "cuMemSetAccess", .result = CUDA_ERROR_UNKNOWN});
    EXPECT_EQ(territory_->Grant(peer).code(), StatusCode::kDriverError);
  }
  Put({4});
  EXPECT_FALSE(Reaches(peer, 4)) << "it is no peer of what comes";
  ASSERT_TRUE(territory_->Grant(peer).ok());
  {
    const InjectedFault fault({.call = "cuMemSetAccess", .result = CUDA_ERROR_UNKNOWN});
    EXPECT_EQ(territory_->Revoke(peer).code(), StatusCode::kDriverError);
  }
  Put({6});
  EXPECT_TRUE(Reaches(peer, 6)) << "it is one still";
}

TEST_F(Territories, KeepAllThatIsMappedUntilTheDriverUnmapsIt) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  Put({0, 1});
  ExpectFailureOf("cuMemUnmap", [&] { return territory_->Release(); });
  EXPECT_TRUE(IsThere(0) && IsThere(1));
  EXPECT_TRUE(territory_->Release().ok());
  EXPECT_FALSE(IsThere(0) || IsThere(1));
}

TEST_F(Territories, TellWhereTheirMemoryCannotBeReleased) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  AllowLeak("");  // the driver kept it
  Put({0});
  ExpectFailureOf("cuMemRelease", [&] { return territory_->Release(); });
}

TEST_F(Territories, ThatAreDestroyedLogWhatFailedAndNothingElse) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  AllowLeak("");  // the driver kept it
  for (const bool fails : {false, true}) {
    std::unique_ptr<Territory> territory = Territory::Reserve(*backing_, page_bytes_).value();
    ASSERT_TRUE(territory->Map(MakePage(), territory->address()).ok());
    ::testing::internal::CaptureStderr();
    if (fails) {
      const InjectedFault fault({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
      territory.reset();
    }
    territory.reset();
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("cuMemUnmap") != std::string::npos, fails) << log;
    EXPECT_EQ(log.empty(), !fails) << log;
  }
}

TEST_F(Territories, ThatWereAbandonedCallNothing) {
  COMMPOOL_REQUIRE_EMULATOR("it leaks for good");
  AllowLeak("");  // an abandoned territory leaks on purpose
  std::unique_ptr<Backing> backing = Make({.kind = BackingKind::kVmm});
  std::unique_ptr<Territory> territory = Territory::Reserve(*backing, page_bytes_).value();
  ASSERT_TRUE(territory->Map(MakePage(), territory->address()).ok());
  const uint64_t calls = CallCount("*");
  territory->Abandon();
  EXPECT_TRUE(territory->Release().ok());
  territory.reset();
  backing.reset();
  EXPECT_EQ(CallCount("*"), calls);
}

constexpr uint64_t kUnit = uint64_t{2} << 20;

// How many ranges of addresses the process has reserved.
uint64_t Reserved() {
  const std::vector<std::string> left = EmulatorLeaks();
  return static_cast<uint64_t>(std::count_if(
      left.begin(), left.end(), [](const std::string& line) { return line.starts_with("reserved addresses"); }));
}

class KeptAddressesTest : public BackingTest {
 protected:
  AddressRange Take(uint64_t units) { return kept_->Take(units * kUnit).value(); }
  // The address of a range that was taken and came back.
  CUdeviceptr Keep(uint64_t units) {
    AddressRange range = Take(units);
    const CUdeviceptr address = range.address();
    EXPECT_TRUE(kept_->Keep(std::move(range)).ok());
    return address;
  }

  std::optional<KeptAddresses> kept_{std::in_place, driver(), kUnit};
};

TEST_F(KeptAddressesTest, ServeOnlyTheNextOfTheSameSize) {
  const CUdeviceptr address = Keep(2);
  const AddressRange other = Take(3);
  EXPECT_NE(other.address(), address);
  const uint64_t calls = CallCount("cuMemAddressReserve");
  const AddressRange same = Take(2);
  EXPECT_EQ(same.address(), address);
  EXPECT_EQ(CallCount("cuMemAddressReserve"), calls);
  EXPECT_NE(Take(2).address(), address) << "it is in use";
}

TEST_F(KeptAddressesTest, AreFewAndTheOldestGoFirst) {
  const uint64_t before = Reserved();
  for (uint64_t units = 1; units <= KeptAddresses::kMostRanges + 2; ++units) Keep(units);
  EXPECT_EQ(Reserved() - before, KeptAddresses::kMostRanges);
  const uint64_t calls = CallCount("cuMemAddressReserve");
  const AddressRange third = Take(3);
  EXPECT_EQ(CallCount("cuMemAddressReserve"), calls);
  const AddressRange second = Take(2);
  EXPECT_EQ(CallCount("cuMemAddressReserve"), calls + 1);
}

TEST_F(KeptAddressesTest, AreNoMoreThanABoundOfBytes) {
  const uint64_t before = Reserved();
  constexpr uint64_t kHalf = KeptAddresses::kMostBytes / kUnit / 2;
  Keep(kHalf);
  Keep(kHalf + 1);
  EXPECT_EQ(Reserved() - before, 1u) << "the first went for the second";
  Keep(2 * kHalf + 1);
  EXPECT_EQ(Reserved() - before, 1u) << "too large to be kept";
}

TEST_F(KeptAddressesTest, AreFreedWhereTheDriverHasNoneLeft) {
  Keep(1);
  const uint64_t before = Reserved();
  {
    const InjectedFault fault({.call = "cuMemAddressReserve", .result = CUDA_ERROR_OUT_OF_MEMORY});
    EXPECT_TRUE(Take(2).valid());
  }
  EXPECT_EQ(Reserved(), before - 1) << "what was kept is gone";
  const InjectedFault fault({.call = "cuMemAddressReserve", .result = CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(kept_->Take(2 * kUnit).status().code(), StatusCode::kOutOfMemory) << "nothing was left to give";
}

TEST_F(KeptAddressesTest, EndWithTheLastWhoUsesThem) {
  const uint64_t before = Reserved();
  AddressRange used = Take(1);
  Keep(2);
  kept_.reset();
  EXPECT_EQ(Reserved() - before, 1u) << "what is in use";
}

TEST_F(KeptAddressesTest, AreLeftToTheProcessWhereNothingMayCallTheDriver) {
  AllowLeak("");
  Keep(1);
  kept_->Abandon();
  const uint64_t calls = CallCount("cuMemAddressFree");
  kept_.reset();
  EXPECT_EQ(CallCount("cuMemAddressFree"), calls);
}

TEST_F(KeptAddressesTest, ReportAFailureToFreeTheOldest) {
  AllowLeak("");
  for (uint64_t units = 1; units <= KeptAddresses::kMostRanges; ++units) Keep(units);
  AddressRange more = Take(KeptAddresses::kMostRanges + 1);
  ExpectFailureOf("cuMemAddressFree", [&] { return kept_->Keep(std::move(more)); });
}

class SegmentThatComesAgain : public BackingTest {
 protected:
  void TearDown() override {
    other_.reset();
    backing_.reset();
    BackingTest::TearDown();
  }
  std::unique_ptr<Segment> MakeSegment(std::span<const int> peers = {}) {
    return backing_->Make({.bytes = kUnit, .peers = peers}).value();
  }
  // The address of a segment that was made and released.
  CUdeviceptr MakeAndRelease(std::span<const int> peers = {}) {
    std::unique_ptr<Segment> segment = MakeSegment(peers);
    const CUdeviceptr address = segment->address();
    EXPECT_EQ(Fill(0, address, 0x11, kUnit), CUDA_SUCCESS);
    EXPECT_TRUE(segment->Release().ok());
    return address;
  }

  std::unique_ptr<Backing> backing_ = Make({.kind = BackingKind::kVmm});
  // Another one: the backing's last, where the test's own are gone.
  std::unique_ptr<Segment> other_ = backing_->Make({.bytes = 2 * kUnit}).value();
};

TEST_F(SegmentThatComesAgain, IsElsewhereOnceTheBackingHadNone) {
  const uint64_t before = Reserved();
  MakeAndRelease();
  EXPECT_EQ(Reserved(), before + 1);
  other_.reset();
  EXPECT_EQ(Reserved(), before - 1) << "its own, and what was kept";
}

TEST_F(SegmentThatComesAgain, LeavesNoAddressesThoughItOutlivesItsBacking) {
  const uint64_t before = Reserved();
  std::unique_ptr<Segment> segment = MakeSegment();
  backing_.reset();
  EXPECT_TRUE(segment->Release().ok());
  other_.reset();
  EXPECT_EQ(Reserved(), before - 1) << "its own, and what was kept";
}

TEST_F(SegmentThatComesAgain, HasTheAddressesAndNothingElse) {
  const CUdeviceptr address = MakeAndRelease();
  EXPECT_NE(Fill(0, address, 1, kUnit), CUDA_SUCCESS) << "nothing is there in between";
  const std::unique_ptr<Segment> segment = MakeSegment();
  EXPECT_EQ(segment->address(), address);
  ASSERT_EQ(Fill(0, address, 0x22, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(Read(0, address, kUnit), std::vector<uint8_t>(kUnit, 0x22));
}

TEST_F(SegmentThatComesAgain, IsClosedToThePeersOfTheOneBefore) {
  COMMPOOL_REQUIRE_EMULATOR("on hardware the access would fault");
  const int peer = ReachablePeer();
  ASSERT_GE(peer, 0);
  const CUdeviceptr address = MakeAndRelease(std::span(&peer, 1));
  const std::unique_ptr<Segment> segment = MakeSegment();
  ASSERT_EQ(segment->address(), address);
  EXPECT_NE(Fill(peer, address, 1, kUnit), CUDA_SUCCESS);
}

TEST_F(SegmentThatComesAgain, OfAGrowthThatWasTakenBackLeavesNoAddresses) {
  MakeSegment().reset();
  const uint64_t calls = CallCount("cuMemAddressReserve");
  MakeSegment().reset();
  EXPECT_EQ(CallCount("cuMemAddressReserve"), calls + 1);
}

TEST_F(SegmentThatComesAgain, IsElsewhereWhereTheAddressesStayOutOfUse) {
  AllowLeak("");
  std::unique_ptr<Segment> segment = MakeSegment();
  const CUdeviceptr address = segment->address();
  segment->KeepAddresses();
  ASSERT_TRUE(segment->Release().ok());
  EXPECT_NE(MakeSegment()->address(), address);
}

TEST_F(SegmentThatComesAgain, FailsAsTheFirstDoes) {
  const CUdeviceptr address = MakeAndRelease();
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    const InjectedFault fault({.call = call, .result = CUDA_ERROR_OUT_OF_MEMORY});
    EXPECT_EQ(backing_->Make({.bytes = kUnit}).status().code(), StatusCode::kOutOfMemory) << call;
  }
  EXPECT_EQ(Fill(0, address, 1, kUnit) == CUDA_SUCCESS, false) << "nothing stays mapped";
  EXPECT_TRUE(backing_->Make({.bytes = kUnit}).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
