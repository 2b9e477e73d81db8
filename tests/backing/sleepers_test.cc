// Memory goes, and comes back at its addresses: a segment of one handle, and a territory of pages with gaps.
#include <algorithm>
#include <utility>

#include "src/library/backing/territory.h"
#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

enum class Kind { kSegment, kTerritory };

class Sleepers : public BackingTest, public ::testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("it counts driver calls and makes them fail");
    if (GetParam() == Kind::kSegment) {
      segment_ = backing_->Make({.bytes = 2 * page_}).value();
      places_ = {0, 1};
      rows_ = 1;
      return;
    }
    std::unique_ptr<Territory> territory = Territory::Reserve(*backing_, 8 * page_).value();
    places_ = {0, 1, 3};
    rows_ = 2;
    for (const uint64_t place : places_) {
      const CUdeviceptr at = territory->address() + place * page_;
      ASSERT_TRUE(territory->Map(backing_->MakePage(page_).value(), at).ok());
      ASSERT_TRUE(territory->Open(at, page_).ok());
    }
    segment_ = std::move(territory);
  }

  Territory& sleeper() { return *segment_->territory(); }
  CUdeviceptr At(uint64_t place) const { return segment_->address() + place * page_; }
  uint64_t AllBytes() const { return places_.size() * page_; }
  // The number of handles; each is mapped by itself.
  uint64_t handles() const { return GetParam() == Kind::kSegment ? 1 : places_.size(); }
  bool Works(int device = 0) {
    return std::all_of(places_.begin(), places_.end(),
                       [&](uint64_t place) { return Fill(device, At(place), 1, 4096) == CUDA_SUCCESS; });
  }
  bool IsMapped(uint64_t place) {
    unsigned long long flags = 0;
    const CUmemLocation location{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    return cuda().cuMemGetAccess(&flags, &location, At(place)) == CUDA_SUCCESS;
  }
  bool NothingIsMapped() {
    return std::none_of(places_.begin(), places_.end(), [&](uint64_t place) { return IsMapped(place); });
  }
  Status Wake() {
    const Result<CUdeviceptr> rest = sleeper().WakeFrom(segment_->address(), UINT64_MAX, *backing_);
    if (!rest.ok()) return rest.status();
    EXPECT_EQ(*rest, segment_->address() + segment_->bytes());
    return Status();
  }

  void Sleep() {
    ASSERT_TRUE(sleeper().UnmapAll().ok());
    sleeper().ReleaseUnmapped();
  }
  void ExpectAwake() {
    ExpectOk(Wake());
    EXPECT_TRUE(Works());
  }
  // The driver has no memory for a call after `skip` others.
  void ExpectNoMemoryOf(const char* call, uint64_t skip, const std::function<Status()>& act) {
    ExpectFailureOf({.call = call, .result = CUDA_ERROR_OUT_OF_MEMORY, .skip = static_cast<int>(skip)}, act);
  }

  const CurrentContext context_;
  const std::unique_ptr<Backing> backing_ = Make({.kind = BackingKind::kVmm});
  const uint64_t page_ = backing_->granularity();
  std::unique_ptr<Segment> segment_;
  std::vector<uint64_t> places_;  // that have memory
  uint64_t rows_ = 0;             // adjacent pages with memory
};

INSTANTIATE_TEST_SUITE_P(Kinds, Sleepers, ::testing::Values(Kind::kSegment, Kind::kTerritory),
                         [](const auto& kind) { return kind.param == Kind::kSegment ? "Segment" : "Territory"; });

TEST_P(Sleepers, UnmapEachRowInOneCallAndKeepItsContents) {
  const auto contents = [](uint64_t place) { return static_cast<uint8_t>(10 + place); };
  for (const uint64_t place : places_) EXPECT_EQ(Fill(0, At(place), contents(place), page_), CUDA_SUCCESS);
  const uint64_t unmaps = CallCount("cuMemUnmap");
  ASSERT_TRUE(sleeper().UnmapAll().ok());
  ExpectCalls("cuMemUnmap", unmaps, rows_);
  EXPECT_TRUE(NothingIsMapped());
  EXPECT_EQ(sleeper().missing_bytes(), 0u);
  ASSERT_TRUE(sleeper().UnmapAll().ok()) << "what is left to do: nothing";
  ExpectCalls("cuMemUnmap", unmaps, rows_);
  const uint64_t opened = CallCount("cuMemSetAccess");
  ASSERT_TRUE(Wake().ok());
  ExpectCalls("cuMemSetAccess", opened, rows_);
  for (const uint64_t place : places_) {
    EXPECT_EQ(Read(0, At(place), page_), std::vector<uint8_t>(page_, contents(place)));
  }
}

TEST_P(Sleepers, GiveTheMemoryBackThatIsMappedNowhere) {
  sleeper().ReleaseUnmapped();
  EXPECT_EQ(sleeper().missing_bytes(), 0u) << "all is mapped";
  EXPECT_TRUE(Works());
  Sleep();
  EXPECT_EQ(sleeper().missing_bytes(), AllBytes());
  const uint64_t made = CallCount("cuMemCreate");
  ASSERT_TRUE(Wake().ok());
  ExpectCalls("cuMemCreate", made, handles());
  EXPECT_EQ(sleeper().missing_bytes(), 0u);
  EXPECT_TRUE(Works());
  const uint64_t maps = CallCount("cuMemMap");
  ASSERT_TRUE(Wake().ok()) << "what is left to do: nothing";
  ExpectCalls("cuMemCreate", made, handles());
  ExpectCalls("cuMemMap", maps, 0);
}

TEST_P(Sleepers, LetTheirPeersInAgain) {
  const int peer = ReachablePeer();
  if (peer < 0) GTEST_SKIP() << "no other device reaches device 0's memory";
  ASSERT_TRUE(segment_->Grant(peer).ok());
  ASSERT_TRUE(sleeper().UnmapAll().ok());
  ASSERT_TRUE(Wake().ok());
  EXPECT_TRUE(Works(0));
  EXPECT_TRUE(Works(peer));
}

TEST_P(Sleepers, KeepOnlyTheRowThatTheDriverRefusesToUnmap) {
  for (uint64_t row = 0; row < rows_; ++row) {
    const uint64_t opened = CallCount("cuMemSetAccess");
    ExpectFailureOf({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN, .skip = static_cast<int>(row)},
                    [&] { return sleeper().UnmapAll(); });
    EXPECT_TRUE(sleeper().MapAll().ok());
    EXPECT_EQ(CallCount("cuMemSetAccess"), opened + rows_ - 1) << "only what was unmapped is opened again";
    EXPECT_TRUE(Works());
  }
}

// A kernel may run on it.
TEST_P(Sleepers, AreLeftAloneWhereNothingWasUnmapped) {
  const InjectedFault fault({.call = "cuMemSetAccess", .result = CUDA_ERROR_UNKNOWN, .count = 10000});
  EXPECT_TRUE(sleeper().MapAll().ok());
  EXPECT_TRUE(Works());
}

TEST_P(Sleepers, AreMappedByASecondCallWhereTheFirstFails) {
  for (const auto& [call, calls] : {std::pair("cuMemMap", handles()), std::pair("cuMemSetAccess", rows_)}) {
    for (uint64_t skip = 0; skip < calls; ++skip) {
      ASSERT_TRUE(sleeper().UnmapAll().ok());
      ExpectNoMemoryOf(call, skip, [&] { return sleeper().MapAll(); });
      ASSERT_TRUE(sleeper().MapAll().ok());
      EXPECT_TRUE(Works()) << call << ", call " << skip + 1;
    }
  }
}

TEST_P(Sleepers, MayBePutToSleepAgainWhereWakingFails) {
  ASSERT_TRUE(sleeper().UnmapAll().ok());
  for (const auto& [call, calls] :
       {std::pair("cuMemCreate", handles()), std::pair("cuMemMap", handles()), std::pair("cuMemSetAccess", rows_)}) {
    for (uint64_t skip = 0; skip < calls; ++skip) {
      sleeper().ReleaseUnmapped();
      ExpectNoMemoryOf(call, skip, [&] { return Wake(); });
      ASSERT_TRUE(sleeper().UnmapAll().ok());
      EXPECT_TRUE(NothingIsMapped()) << call << ", call " << skip + 1;
    }
  }
  ExpectAwake();
}

TEST_P(Sleepers, MakeOnlyWhatIsStillMissing) {
  Sleep();
  ExpectNoMemoryOf("cuMemCreate", handles() - 1, [&] { return Wake(); });
  EXPECT_EQ(sleeper().missing_bytes(), AllBytes() / handles());
  const uint64_t made = CallCount("cuMemCreate");
  ASSERT_TRUE(Wake().ok());
  ExpectCalls("cuMemCreate", made, 1);
  EXPECT_TRUE(Works());
}

using SleepingTerritory = Sleepers;
INSTANTIATE_TEST_SUITE_P(Kinds, SleepingTerritory, ::testing::Values(Kind::kTerritory));

TEST_P(SleepingTerritory, WakesNoMorePagesThanItIsAskedFor) {
  Sleep();
  EXPECT_EQ(sleeper().WakeFrom(At(0), page_, *backing_).value(), At(1));
  EXPECT_EQ(sleeper().missing_bytes(), AllBytes() - page_);
  ExpectAwake();
}

// After a failure one page may be mapped, and its neighbour not.
TEST_P(SleepingTerritory, GoesOnFromAPageThatIsMapped) {
  ASSERT_TRUE(sleeper().UnmapAll().ok());
  ExpectNoMemoryOf("cuMemMap", 1, [&] { return Wake(); });
  EXPECT_TRUE(IsMapped(0));
  EXPECT_FALSE(IsMapped(1));
  const uint64_t unmaps = CallCount("cuMemUnmap");
  ASSERT_TRUE(sleeper().UnmapAll().ok());
  ExpectCalls("cuMemUnmap", unmaps, 1);
  EXPECT_TRUE(NothingIsMapped());
  ExpectNoMemoryOf("cuMemMap", 1, [&] { return Wake(); });
  sleeper().ReleaseUnmapped();
  EXPECT_EQ(sleeper().missing_bytes(), AllBytes() - page_) << "what is mapped is not given back";
  ExpectAwake();
}

}  // namespace
}  // namespace commpool::internal::testing
