// What every backing must do. A row for each backing names the few things in which backings differ.
// It runs on the emulator and on hardware; tests that would fault are skipped there.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "src/library/base/bytes.h"
#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {

// When other devices get access.
enum class Sharing {
  kByGrant,    // by a grant
  kFromStart,  // from the start, all devices that reach it
  kNever,      // never: the backing cannot give it
};

inline constexpr uint64_t kGranularity = 0;

struct BackingUnderTest {
  const char* name;
  BackingRequest request;
  Sharing sharing = Sharing::kByGrant;
  uint64_t alignment = 512;  // of a segment's address, or kGranularity
};

inline void PrintTo(const BackingUnderTest& backing, std::ostream* stream) { *stream << backing.name; }

class BackingConformance : public BackingTest, public ::testing::WithParamInterface<BackingUnderTest> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Backing>> made = MakeBacking(driver(), GetParam().request);
    if (made.status().code() == StatusCode::kNotSupported) GTEST_SKIP() << made.status().message();
    backing_ = std::move(made).value();
  }

  Backing& backing() { return *backing_; }
  std::unique_ptr<Segment> MakeSegment(uint64_t bytes = 1) { return backing_->Make({.bytes = bytes}).value(); }
  CUcontext Current() const {
    CUcontext current = nullptr;
    EXPECT_EQ(cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
    return current;
  }
  int device() const { return GetParam().request.placement.device; }

  std::unique_ptr<Backing> backing_;
};

#define COMMPOOL_REQUIRE_REACHABLE_PEER() \
  if (ReachablePeer() < 0) GTEST_SKIP() << "no other device reaches device 0's memory"

TEST_P(BackingConformance, AgreesWithItsRow) {
  const BackingRow& row = *FindBacking(GetParam().request.kind);
  EXPECT_STREQ(backing().name(), row.name);
  EXPECT_EQ(MakeSegment()->territory() != nullptr, backing().row().movement == Movement::kInPages);
  EXPECT_EQ(GetParam().request.user.allocate != nullptr, row.maker == Maker::kProgram);
}

TEST_P(BackingConformance, MakesNothingOfZeroBytes) {
  EXPECT_EQ(backing().Make({.bytes = 0}).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(BackingConformance, RefusesASizeThatOverflowsWhenRounded) {
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - 4094}) {
    ExpectFailure(backing().Make({.bytes = bytes}).status(), StatusCode::kInvalidArgument, std::to_string(bytes));
  }
}

TEST_P(BackingConformance, RunsOutOfMemoryAndGoesOn) {
  if (GetParam().request.placement.kind == Placement::Kind::kHostNuma) {
    COMMPOOL_REQUIRE_EMULATOR("a driver may take all of the host's memory before it gives up");
  }
  ExpectFailure(backing().Make({.bytes = kGiB * kMiB}).status(), StatusCode::kOutOfMemory, FormatBytes(kGiB * kMiB));
  EXPECT_TRUE(backing().Make({.bytes = 1}).ok());
}

TEST_P(BackingConformance, RoundsUpToItsGranularity) {
  const uint64_t unit = backing().granularity();
  EXPECT_TRUE(IsPowerOfTwo(unit)) << unit;
  EXPECT_EQ(MakeSegment(1)->bytes(), unit);
  EXPECT_EQ(MakeSegment(unit)->bytes(), unit);
  EXPECT_EQ(MakeSegment(unit + 1)->bytes(), 2 * unit);
}

TEST_P(BackingConformance, AlignsItsSegments) {
  const uint64_t alignment = GetParam().alignment == kGranularity ? backing().granularity() : GetParam().alignment;
  std::unique_ptr<Segment> first = MakeSegment(1);
  std::unique_ptr<Segment> second = MakeSegment(3 * backing().granularity());
  EXPECT_EQ(first->address() % alignment, 0u);
  EXPECT_EQ(second->address() % alignment, 0u);
}

TEST_P(BackingConformance, MemoryServesItsDeviceFromTheFirstByteToTheLast) {
  std::unique_ptr<Segment> one = MakeSegment(backing().granularity() + 1);
  std::unique_ptr<Segment> other = MakeSegment(backing().granularity() + 1);
  ASSERT_EQ(Fill(device(), one->address(), 0x5a, one->bytes()), CUDA_SUCCESS);
  ASSERT_EQ(Fill(device(), other->address(), 0xc3, other->bytes()), CUDA_SUCCESS);
  EXPECT_EQ(Read(device(), one->address(), one->bytes()), std::vector<uint8_t>(one->bytes(), 0x5a));
  EXPECT_EQ(Read(device(), other->address(), other->bytes()), std::vector<uint8_t>(other->bytes(), 0xc3));
}

TEST_P(BackingConformance, IsClosedToPeersUntilTheyAreGranted) {
  COMMPOOL_REQUIRE_EMULATOR("on hardware the access would fault");
  COMMPOOL_REQUIRE_REACHABLE_PEER();
  const bool reached = Fill(ReachablePeer(), MakeSegment()->address(), 1, 4096) == CUDA_SUCCESS;
  EXPECT_EQ(reached, GetParam().sharing == Sharing::kFromStart);
}

TEST_P(BackingConformance, GrantedPeersReadAndWrite) {
  COMMPOOL_REQUIRE_REACHABLE_PEER();
  const int peer = ReachablePeer();
  std::unique_ptr<Segment> segment = MakeSegment();
  const Status may = backing().CanGrant(peer);
  ASSERT_EQ(may.ok(), GetParam().sharing != Sharing::kNever) << may.message();
  if (!may.ok()) return ExpectFailure(may, StatusCode::kNotSupported, "");
  ExpectOk(segment->Grant(peer));
  EXPECT_TRUE(segment->Grant(peer).ok()) << "a second time";
  EXPECT_EQ(Fill(peer, segment->address(), 0x77, 4096), CUDA_SUCCESS);
  EXPECT_EQ(Read(device(), segment->address(), 4096), std::vector<uint8_t>(4096, 0x77));
  EXPECT_EQ(Read(peer, segment->address(), 4096), std::vector<uint8_t>(4096, 0x77));
}

TEST_P(BackingConformance, PeersThatAreGrantedToReadReadAndDoNotWrite) {
  BackingRequest request = GetParam().request;
  request.grants = Grants::kRead;
  Result<std::unique_ptr<Backing>> made = MakeBacking(driver(), request);
  if (!backing().CanRevoke().ok()) {
    // Others may write to such memory already.
    return ExpectFailure(made.status(), StatusCode::kNotSupported, backing().CanRevoke().message());
  }
  COMMPOOL_REQUIRE_REACHABLE_PEER();
  const int peer = ReachablePeer();
  const std::unique_ptr<Segment> early = (*made)->Make({.bytes = 1, .peers = std::span(&peer, 1)}).value();
  const std::unique_ptr<Segment> late = (*made)->Make({.bytes = 1}).value();
  ASSERT_TRUE(late->Grant(peer).ok());
  for (const Segment* const segment : {early.get(), late.get()}) {
    ASSERT_EQ(Fill(device(), segment->address(), 0x77, 4096), CUDA_SUCCESS) << "its own device writes";
    EXPECT_EQ(Read(peer, segment->address(), 4096), std::vector<uint8_t>(4096, 0x77));
    EXPECT_EQ(AccessOf(peer, segment->address()), CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_EQ(AccessOf(device(), segment->address()), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (!OnEmulator()) continue;  // there the write would cost the peer its context
    EXPECT_NE(Fill(peer, segment->address(), 1, 4096), CUDA_SUCCESS);
    EXPECT_EQ(Read(device(), segment->address(), 4096), std::vector<uint8_t>(4096, 0x77));
  }
}

TEST_P(BackingConformance, ItsOwnDeviceNeedsNoGrant) {
  EXPECT_TRUE(backing().CanGrant(device()).ok());
  EXPECT_TRUE(MakeSegment()->Grant(device()).ok());
}

TEST_P(BackingConformance, GrantsNoMissingDevice) {
  for (const int missing : {-1, DeviceCountOfTests()}) {
    EXPECT_EQ(backing().CanGrant(missing).code(), StatusCode::kNotSupported);
  }
}

TEST_P(BackingConformance, RevokesWhereItSaysSo) {
  COMMPOOL_REQUIRE_REACHABLE_PEER();
  const int peer = ReachablePeer();
  std::unique_ptr<Segment> segment = MakeSegment();
  if (!backing().CanRevoke().ok()) {
    return ExpectFailure(segment->Revoke(peer), StatusCode::kFailedPrecondition, backing().CanRevoke().message());
  }
  ASSERT_TRUE(segment->Grant(peer).ok());
  ASSERT_TRUE(segment->Revoke(peer).ok());
  EXPECT_TRUE(segment->Revoke(peer).ok()) << "a second time";
  EXPECT_EQ(Fill(device(), segment->address(), 2, 4096), CUDA_SUCCESS) << "its own device keeps its access";
  if (OnEmulator()) {
    EXPECT_NE(Fill(peer, segment->address(), 3, 4096), CUDA_SUCCESS);
  }
  EXPECT_TRUE(segment->Grant(peer).ok());
  EXPECT_EQ(Fill(peer, segment->address(), 4, 4096), CUDA_SUCCESS);
}

TEST_P(BackingConformance, TheAccessOfItsOwnDeviceIsNotTakenBack) {
  std::unique_ptr<Segment> segment = MakeSegment();
  EXPECT_FALSE(segment->Revoke(device()).ok());
  EXPECT_EQ(Fill(device(), segment->address(), 2, 4096), CUDA_SUCCESS);
}

TEST_P(BackingConformance, GivesAReasonForEachRefusal) {
  const std::unique_ptr<Segment> segment = MakeSegment();
  for (const Status& capability : {backing().CanGrant(0), backing().CanGrant(-1), backing().CanRevoke(),
                                   backing().CanRegisterLocal(), backing().CanRegisterWindow()}) {
    EXPECT_EQ(capability.ok(), capability.message().empty()) << capability.message();
  }
}

TEST_P(BackingConformance, MakesSegmentsForAStream) {
  const CurrentContext context(device());
  const TestStream stream;
  const std::unique_ptr<Segment> segment = backing().Make({.bytes = 1, .stream = stream}).value();
  EXPECT_EQ(cuda().cuMemsetD8Async(segment->address(), 0x21, 4096, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(device(), segment->address(), 4096), std::vector<uint8_t>(4096, 0x21));
}

TEST_P(BackingConformance, FreesWhenItIsDestroyed) {
  const std::vector<std::string> before = EmulatorLeaks();
  MakeSegment().reset();
  EXPECT_EQ(EmulatorLeaks(), before);
}

TEST_P(BackingConformance, FreesOnce) {
  std::unique_ptr<Segment> segment = MakeSegment();
  EXPECT_TRUE(segment->Release().ok());
  const uint64_t calls = CallCount("*");
  EXPECT_TRUE(segment->Release().ok());
  segment.reset();
  EXPECT_EQ(CallCount("*"), calls);
}

TEST_P(BackingConformance, AFreedSegmentChangesNoAccess) {
  std::unique_ptr<Segment> segment = MakeSegment();
  ASSERT_TRUE(segment->Release().ok());
  for (const Status& status : {segment->Grant(1), segment->Revoke(1)}) {
    ExpectFailure(status, StatusCode::kFailedPrecondition, "the segment was freed");
  }
}

TEST_P(BackingConformance, SegmentsOutliveTheirBacking) {
  std::unique_ptr<Segment> segment = MakeSegment();
  backing_.reset();
  EXPECT_EQ(Fill(device(), segment->address(), 9, 4096), CUDA_SUCCESS);
  EXPECT_TRUE(segment->Release().ok());
}

TEST_P(BackingConformance, AnAbandonedSegmentCallsNothingNorDoesItsBacking) {
  COMMPOOL_REQUIRE_EMULATOR("it leaks for good");
  AllowLeak("");  // an abandoned segment leaks on purpose
  std::unique_ptr<Segment> segment = MakeSegment();
  std::unique_ptr<Backing> owner = std::move(backing_);
  if (ReachablePeer() > 0 && owner->CanGrant(ReachablePeer()).ok()) {
    ASSERT_TRUE(segment->Grant(ReachablePeer()).ok());
  }
  const uint64_t calls = CallCount("*");
  segment->Abandon();
  EXPECT_TRUE(segment->Release().ok());
  owner.reset();
  segment.reset();
  EXPECT_EQ(CallCount("*"), calls);
}

TEST_P(BackingConformance, LeavesTheCallersContextCurrent) {
  PrimaryContext callers = PrimaryContext::Retain(driver(), DeviceCountOfTests() - 1).value();
  for (const CUcontext current : {CUcontext{nullptr}, callers.get()}) {
    ContextGuard guard(driver(), current);
    std::unique_ptr<Backing> made = Make(GetParam().request);
    std::unique_ptr<Segment> segment = made->Make({.bytes = 1}).value();
    (void)segment->Grant(ReachablePeer());
    (void)segment->Revoke(ReachablePeer());
    EXPECT_EQ(Current(), current);
    segment.reset();
    made.reset();
    EXPECT_EQ(Current(), current);
  }
}

}  // namespace commpool::internal::testing
