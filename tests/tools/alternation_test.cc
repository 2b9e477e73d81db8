// Two allocators under one trace in turns.
#include "tools/cli/replay/alternation.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tools/cli/replay/pool_allocator.h"

namespace commpool::cli {
namespace {

// A pool that records its calls.
class Noted : public ReplayedAllocator {
 public:
  Noted(std::unique_ptr<PoolAllocator> pool, char name, std::string& calls)
      : pool_(std::move(pool)), name_(name), calls_(calls) {}

  void* Allocate(uint64_t bytes, CUstream stream) override {
    calls_ += name_;
    void* const block = left_-- == 0 ? nullptr : pool_->Allocate(bytes, stream);
    live_ += block != nullptr;
    return block;
  }
  bool Free(void* block) override {
    calls_ += name_;
    --live_;
    return pool_->Free(block);
  }
  bool RecordStream(void*, CUstream) override { return false; }
  Status failure() const override { return Status(StatusCode::kOutOfMemory, "no more"); }
  bool CalledDriver(uint64_t) override { return false; }
  DriverCallsByName Calls() const override { return {}; }

  void FailAfter(int allocations) { left_ = allocations; }
  int live() const { return live_; }
  Status Close() { return pool_->Close(); }

 private:
  std::unique_ptr<PoolAllocator> pool_;
  const char name_;
  std::string& calls_;
  int left_ = -1;
  int live_ = 0;
};

class AlternationTest : public ::testing::Test {
 protected:
  Result<AlternationMeasures> Run(int pairs, double seconds = 0) {
    std::string text;
    for (int block = 0; block < pairs; ++block) {
      text += "a " + std::to_string(block) + " 1000 0\n";
      if (block % 2 != 0) text += "f " + std::to_string(block - 1) + "\nf " + std::to_string(block) + "\n";
    }
    const Trace trace = ParseTrace("pairs", text).value();
    return Alternate(*device_, trace, first_, second_, seconds);
  }
  void TearDown() override {
    EXPECT_EQ(first_.live(), 0);
    EXPECT_EQ(second_.live(), 0);
    EXPECT_TRUE(first_.Close().ok());
    EXPECT_TRUE(second_.Close().ok());
  }

  std::unique_ptr<SoloDevice> device_ = SoloDevice::Open(1, DriverTimes::kUnmeasured).value();
  std::string calls_;
  Noted first_{PoolAllocator::Create(*device_, {}).value(), 'a', calls_};
  Noted second_{PoolAllocator::Create(*device_, {}).value(), 'b', calls_};
};

TEST_F(AlternationTest, TurnsOfTheSameEventsChangeTheirOrder) {
  ASSERT_TRUE(Run(256).ok());
  const std::string a(64, 'a');
  const std::string b(64, 'b');
  EXPECT_EQ(calls_.substr(0, 8 * 64), a + b + b + a + a + b + b + a);
}

TEST_F(AlternationTest, ARoundIsATwelfthOfTheSecondHalf) {
  const Result<AlternationMeasures> measures = Run(256);
  ASSERT_TRUE(measures.ok()) << measures.status().message();
  // Without time it still makes six rounds, after it has played the trace once.
  EXPECT_EQ(measures->ratios.size(), 6u);
  EXPECT_EQ(measures->wall_ratios.size(), 6u);
  const size_t played = 512 + 256 + 128;
  EXPECT_GE(calls_.size(), 2 * played);
  for (const double ns : measures->pool_ns) EXPECT_GE(ns, 0);
}

TEST_F(AlternationTest, AnAllocatorThatFailsIsToldWithTheEvent) {
  second_.FailAfter(3);
  const Status status = Run(256).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(status.message().find("event 6 of 512 in pairs"), std::string::npos) << status.message();
}

TEST(Outcome, IsUndecidedWhereTheIntervalHoldsOne) {
  EXPECT_EQ(OutcomeOf({.median = 0.9, .low = 0.8, .high = 0.99}), Outcome::kBelow);
  EXPECT_EQ(OutcomeOf({.median = 0.9, .low = 0.8, .high = 1.0}), Outcome::kUndecided);
  EXPECT_EQ(OutcomeOf({.median = 1.1, .low = 1.0, .high = 1.2}), Outcome::kUndecided);
  EXPECT_EQ(OutcomeOf({.median = 1.1, .low = 1.01, .high = 1.2}), Outcome::kAbove);
}

}  // namespace
}  // namespace commpool::cli
