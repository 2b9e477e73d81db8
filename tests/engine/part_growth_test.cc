// An expandable engine grows for a graph's part: with new pages that only the part uses.
#include <gtest/gtest.h>

#include "src/library/base/bytes.h"
#include "src/library/engine/expandable_engine.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = 0x7f0000000000;
constexpr uint64_t kPage = 2 * kMiB;
constexpr StreamKey kStream = 1;
constexpr StreamKey kOther = 2;
constexpr Part kGraph = 11;

class PartGrowth : public ::testing::Test {
 protected:
  PartGrowth() { engine_.AddTerritory({kBase, 64 * kPage}, Space::kLarge); }
  ~PartGrowth() override { CheckInvariants(engine_); }

  Address Allocate(uint64_t bytes, StreamKey stream, Part part = kCommonPart) {
    const Result<Outcome> outcome = engine_.Allocate(bytes, stream, Reuse::kSameStream, part);
    EXPECT_TRUE(outcome.ok());
    return std::holds_alternative<Served>(*outcome) ? std::get<Served>(*outcome).address : 0;
  }
  Expansion Grow(uint64_t bytes, StreamKey stream, Part part, std::optional<StreamKey> claimant = {}) {
    const uint64_t growth = engine_.GrowthFor(bytes, stream, Reuse::kSameStream, part).value().bytes;
    EXPECT_GT(growth, 0u);
    Expansion plan = engine_.Plan(bytes, stream, Donors::kNone, part).value();
    if (claimant) plan.claimant.stream = claimant;
    EXPECT_TRUE(engine_.Claim(plan));
    engine_.Complete(plan);
    CheckInvariants(engine_);
    return plan;
  }
  void Free(Address address) { ASSERT_TRUE(engine_.Free(address).ok()); }

  ExpandableEngine engine_{{.choice = Choice::kFirstFit, .page_bytes = kPage}};
};

TEST_F(PartGrowth, MakesPagesThatAreThePartsAlone) {
  EXPECT_EQ(Grow(3 * kPage, kStream, kGraph).made_bytes(), 3 * kPage);
  EXPECT_EQ(Allocate(kPage, kStream), 0u);
  const Address address = Allocate(2 * kPage, kStream, kGraph);
  EXPECT_EQ(address, kBase);
  EXPECT_EQ(engine_.GrowthFor(kPage, kStream, Reuse::kSameStream, kGraph).value().bytes, 0u) << "one page is left";
  ASSERT_TRUE(engine_.Free(address).ok());
  engine_.ClosePart(kGraph, engine_.Now(), {});
  engine_.ReleasePart(kGraph);
  EXPECT_EQ(Allocate(3 * kPage, kOther), kBase);
}

TEST_F(PartGrowth, FillsUpThePartsMemoryAndLeavesThePoolsAlone) {
  Grow(2 * kPage, kStream, kGraph);
  const Address first = Allocate(2 * kPage, kStream, kGraph);
  Grow(kPage, kOther, kCommonPart);
  Free(Allocate(kPage, kOther));  // behind it
  ASSERT_TRUE(engine_.Free(first).ok());
  EXPECT_EQ(Grow(3 * kPage, kStream, kGraph).made_bytes(), 3 * kPage) << "no room between";
  const Address second = Allocate(3 * kPage, kStream, kGraph);
  EXPECT_EQ(second, kBase + 3 * kPage);
  ASSERT_TRUE(engine_.Free(second).ok());
  EXPECT_EQ(Grow(5 * kPage, kStream, kGraph).made_bytes(), 2 * kPage) << "it goes on where its last memory ends";
  EXPECT_EQ(Allocate(5 * kPage, kStream, kGraph), second);
  EXPECT_EQ(Allocate(kPage, kOther), kBase + 2 * kPage);
}

TEST_F(PartGrowth, ForAStreamMergesWithNothingThatOthersUsed) {
  Grow(kPage, kOther, kCommonPart);
  Free(Allocate(kPage, kOther));
  Grow(2 * kPage, kStream, kCommonPart, kStream);
  EXPECT_EQ(Allocate(2 * kPage, kStream), kBase + kPage);
}

}  // namespace
}  // namespace commpool::internal::engine
