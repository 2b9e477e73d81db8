// The addresses of released segments serve the next segment of the same size.
#include "src/library/backing/kept_addresses.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kUnit = uint64_t{2} << 20;

// How many ranges of addresses the process has reserved.
uint64_t Reserved() {
  const std::vector<std::string> left = EmulatorLeaks();
  return static_cast<uint64_t>(std::count_if(
      left.begin(), left.end(), [](const std::string& line) { return line.starts_with("reserved addresses"); }));
}

class KeptAddressesTest : public BackingTest {
 protected:
  KeptAddresses& kept() { return *kept_; }
  AddressRange Take(uint64_t units) { return kept_->Take(units * kUnit).value(); }
  void End() { kept_.reset(); }
  // The address of a range that was taken and came back.
  CUdeviceptr Keep(uint64_t units) {
    AddressRange range = Take(units);
    const CUdeviceptr address = range.address();
    EXPECT_TRUE(kept_->Keep(std::move(range)).ok());
    return address;
  }

 private:
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
  EXPECT_EQ(kept().Take(2 * kUnit).status().code(), StatusCode::kOutOfMemory) << "nothing was left to give";
}

TEST_F(KeptAddressesTest, EndWithTheLastWhoUsesThem) {
  const uint64_t before = Reserved();
  AddressRange used = Take(1);
  Keep(2);
  End();
  EXPECT_EQ(Reserved() - before, 1u) << "what is in use";
}

TEST_F(KeptAddressesTest, AreLeftToTheProcessWhereNothingMayCallTheDriver) {
  AllowLeak("");
  Keep(1);
  kept().Abandon();
  const uint64_t calls = CallCount("cuMemAddressFree");
  End();
  EXPECT_EQ(CallCount("cuMemAddressFree"), calls);
}

TEST_F(KeptAddressesTest, ReportAFailureToFreeTheOldest) {
  AllowLeak("");
  for (uint64_t units = 1; units <= KeptAddresses::kMostRanges; ++units) Keep(units);
  AddressRange more = Take(KeptAddresses::kMostRanges + 1);
  const InjectedFault fault({.call = "cuMemAddressFree", .result = CUDA_ERROR_INVALID_VALUE});
  const Status status = kept().Keep(std::move(more));
  EXPECT_NE(status.message().find("cuMemAddressFree"), std::string::npos) << status.message();
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
  Backing& backing() { return *backing_; }

  void EndBacking() { backing_.reset(); }
  // Releases the backing's last segment; the test's own stay.
  void ReleaseOther() { other_.reset(); }

 private:
  std::unique_ptr<Backing> backing_ = Make({.kind = BackingKind::kVmm});
  std::unique_ptr<Segment> other_ = backing_->Make({.bytes = 2 * kUnit}).value();
};

TEST_F(SegmentThatComesAgain, IsElsewhereOnceTheBackingHadNone) {
  const uint64_t before = Reserved();
  MakeAndRelease();
  EXPECT_EQ(Reserved(), before + 1);
  ReleaseOther();
  EXPECT_EQ(Reserved(), before - 1) << "its own, and what was kept";
}

TEST_F(SegmentThatComesAgain, LeavesNoAddressesThoughItOutlivesItsBacking) {
  const uint64_t before = Reserved();
  std::unique_ptr<Segment> segment = MakeSegment();
  EndBacking();
  EXPECT_TRUE(segment->Release().ok());
  ReleaseOther();
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
    EXPECT_EQ(backing().Make({.bytes = kUnit}).status().code(), StatusCode::kOutOfMemory) << call;
  }
  EXPECT_EQ(Fill(0, address, 1, kUnit) == CUDA_SUCCESS, false) << "nothing stays mapped";
  EXPECT_TRUE(backing().Make({.bytes = kUnit}).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
