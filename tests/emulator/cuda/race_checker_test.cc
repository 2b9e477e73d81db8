#include "src/emulator/cuda/race_checker.h"

#include <gtest/gtest.h>

#include "src/emulator/description.h"

namespace commpool::internal::emulator {
namespace {

class RaceCheckerTest : public ::testing::Test {
 protected:
  // Submits an operation without ranges to a stream and runs it.
  std::shared_ptr<Operation> Run(StreamClock& stream, const std::shared_ptr<Operation>& submitted = nullptr) {
    const std::shared_ptr<Operation> operation = submitted != nullptr ? submitted : Submit();
    checker_.Started(*operation, stream);
    checker_.Touched(operation, addresses_);
    checker_.Ended(*operation, stream);
    return operation;
  }
  std::shared_ptr<Operation> Submit() {
    auto operation = std::make_shared<Operation>();
    checker_.Submitted(*operation);
    return operation;
  }

  Logbook logbook_{Description::Parse("").value()};
  AddressSpace addresses_;
  RaceChecker checker_{logbook_, RaceChecker::Mode::kOn};
  StreamClock first_ = checker_.OpenStream();
  StreamClock second_ = checker_.OpenStream();
};

TEST_F(RaceCheckerTest, StreamOrderIsKnown) {
  const auto first = Run(first_);
  const auto second = Run(first_);
  EXPECT_TRUE(second->clock.Covers(first->clock));
  EXPECT_FALSE(first->clock.Covers(second->clock));
}

TEST_F(RaceCheckerTest, StreamsKnowNothingOfEachOther) {
  const auto one = Run(first_);
  const auto two = Run(second_);
  EXPECT_FALSE(two->clock.Covers(one->clock));
  EXPECT_FALSE(one->clock.Covers(two->clock));
}

TEST_F(RaceCheckerTest, WorkComesAfterAllThatTheHostKnewAtItsSubmission) {
  const auto early = Submit();
  const auto one = Run(first_);
  checker_.HostWaitedFor(one->clock);
  const auto late = Submit();
  EXPECT_FALSE(Run(second_, early)->clock.Covers(one->clock)) << "however late it runs";
  EXPECT_TRUE(Run(second_, late)->clock.Covers(one->clock));
}

TEST_F(RaceCheckerTest, AnOperationLetsGoOfWhatWasKnownAtItsSubmission) {
  const auto operation = Run(first_);
  EXPECT_EQ(operation->host, nullptr);
  EXPECT_EQ(operation->heard, nullptr);
}

TEST_F(RaceCheckerTest, AMarkerKeepsTheClockOfItsRecord) {
  const auto record = Submit();
  record->marker = std::make_shared<Marker>();
  Run(first_, record);
  const auto after = Run(first_);
  const auto wait = Submit();
  wait->waits.push_back(record->marker);
  Run(second_, wait);
  EXPECT_TRUE(wait->clock.Covers(record->clock));
  EXPECT_FALSE(wait->clock.Covers(after->clock));
}

TEST_F(RaceCheckerTest, AClosedStreamsComponentServesAgainOnceTheHostHasWaited) {
  const auto last = Run(first_);
  checker_.CloseStream(first_);
  EXPECT_NE(checker_.OpenStream().component, first_.component) << "its work may still run";
  checker_.HostWaitedFor(last->clock);
  StreamClock again = checker_.OpenStream();
  EXPECT_EQ(again.component, first_.component);
  EXPECT_FALSE(last->clock.Covers(Run(again)->clock));
}

TEST_F(RaceCheckerTest, AContributionLacksWhatTheOperationWrites) {
  const auto before = Run(first_);
  const auto collective = Run(first_);
  const Clock contributed = checker_.Contribution(*collective);
  EXPECT_TRUE(contributed.Covers(before->clock));
  EXPECT_FALSE(contributed.Covers(collective->clock));
  EXPECT_GT(contributed.Of(first_.component), before->clock.Of(first_.component)) << "it has read";
}

TEST_F(RaceCheckerTest, AnImportSharesTheHistoryOfItsMemory) {
  const auto history = checker_.HistoryOf(5, RaceChecker::Memory::kFresh);
  EXPECT_EQ(checker_.HistoryOf(5, RaceChecker::Memory::kImported), history);
  EXPECT_NE(checker_.HistoryOf(6, RaceChecker::Memory::kImported), history);
  EXPECT_NE(checker_.HistoryOf(5, RaceChecker::Memory::kFresh), history) << "other memory with the number of the old";
}

TEST_F(RaceCheckerTest, DoesNothingWhereItIsOff) {
  RaceChecker off(logbook_, RaceChecker::Mode::kOff);
  StreamClock stream = off.OpenStream();
  const auto operation = std::make_shared<Operation>();
  off.Submitted(*operation);
  off.Started(*operation, stream);
  off.Touched(operation, addresses_);
  off.Ended(*operation, stream);
  off.HostWaitedFor(operation->clock);
  off.Unmapping(0x10000, 100, addresses_);
  off.CloseStream(stream);
  EXPECT_TRUE(stream.clock.empty());
  EXPECT_TRUE(off.Contribution(*operation).empty());
  EXPECT_EQ(off.HistoryOf(5, RaceChecker::Memory::kFresh), nullptr);
  EXPECT_TRUE(logbook_.reports().empty());
}

}  // namespace
}  // namespace commpool::internal::emulator
