// The one growth: its steps, in their order, and what is taken back where one fails.
#include "src/pool/segments/growth.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace commpool::internal {
namespace {

using Calls = std::vector<std::string>;

// Fails in the step of its choice, here or as if on another rank.
class ScriptedGrowth : public Growth {
 public:
  explicit ScriptedGrowth(std::string fails = "") : fails_(std::move(fails)) {}

  Status Make() override { return Say("make"); }
  Status Prepare() override { return Say("prepare"); }
  void Undo() override { static_cast<void>(Say("undo")); }
  void Adopt() override { static_cast<void>(Say("adopt")); }
  Status Agree(Step step, const Status& mine) override {
    const Status others = Say(step == Step::kMake ? "agree made" : "agree prepared");
    return mine.ok() ? others : mine;
  }

  const Calls& calls() const { return calls_; }

 private:
  Status Say(const std::string& call) {
    calls_.push_back(call);
    return call == fails_ ? Status(StatusCode::kOutOfMemory, call) : Status();
  }

  const std::string fails_;
  Calls calls_;
};

TEST(Growth, MakesPreparesAndOnlyThenAdopts) {
  ScriptedGrowth growth;
  EXPECT_TRUE(Grow(growth).ok());
  EXPECT_EQ(growth.calls(), (Calls{"make", "agree made", "prepare", "agree prepared", "adopt"}));
}

TEST(Growth, TellsTheOthersThatItCouldNotMake) {
  ScriptedGrowth growth("make");
  EXPECT_EQ(Grow(growth).message(), "make");
  EXPECT_EQ(growth.calls(), (Calls{"make", "agree made"}));
}

TEST(Growth, PreparesNothingWhereAnotherRankCouldNotMake) {
  ScriptedGrowth growth("agree made");
  EXPECT_EQ(Grow(growth).message(), "agree made");
  EXPECT_EQ(growth.calls(), (Calls{"make", "agree made"}));
}

TEST(Growth, TakesBackWhatWasPreparedWhereAnyRankFailed) {
  for (const char* failing : {"prepare", "agree prepared"}) {
    ScriptedGrowth growth(failing);
    EXPECT_EQ(Grow(growth).message(), failing);
    EXPECT_EQ(growth.calls(), (Calls{"make", "agree made", "prepare", "agree prepared", "undo"}));
  }
}

TEST(Growth, OfOneRankAgreesWithItself) {
  class Alone final : public Growth {
   public:
    Status Make() override { return Status(); }
    void Adopt() override { adopted = true; }
    bool adopted = false;
  };
  Alone growth;
  EXPECT_TRUE(Grow(growth).ok());
  EXPECT_TRUE(growth.adopted);
}

}  // namespace
}  // namespace commpool::internal
