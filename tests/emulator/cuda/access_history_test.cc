#include "src/emulator/cuda/access_history.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "src/emulator/cuda/operation.h"

namespace commpool::internal::emulator {
namespace {

constexpr CUdeviceptr kBase = 0x10000;

// Streams by number; each access is one operation of its stream, after its earlier ones and those it waits for.
class AccessHistoryTest : public ::testing::Test {
 protected:
  // The names of the operations that it conflicts with.
  std::string Touch(const std::string& name, AccessKind kind, uint64_t stream, uint64_t begin, uint64_t end,
                    CUdeviceptr base = kBase) {
    conflicts_.clear();
    const Access access = Next(name, stream, ++submitted_, base);
    history_.Record(kind, begin, end, access, streams_[stream], conflicts_);
    return Names(conflicts_);
  }
  // The end of a block, the `sequence`th that the program submitted.
  std::string End(const std::string& name, uint64_t stream, uint64_t sequence) {
    conflicts_.clear();
    history_.End(0, 100, Next(name, stream, sequence, kBase), streams_[stream], conflicts_);
    return Names(conflicts_);
  }
  std::string Write(const std::string& name, uint64_t stream, uint64_t begin, uint64_t end) {
    return Touch(name, AccessKind::kWrite, stream, begin, end);
  }
  std::string Read(const std::string& name, uint64_t stream, uint64_t begin, uint64_t end) {
    return Touch(name, AccessKind::kRead, stream, begin, end);
  }
  void Wait(uint64_t stream, uint64_t for_stream) { streams_[stream].Join(streams_[for_stream]); }

  Access Next(const std::string& name, uint64_t stream, uint64_t sequence, CUdeviceptr base) {
    auto operation = std::make_shared<Operation>();
    operation->name = name;
    operation->sequence = sequence;
    Clock& clock = streams_[stream];
    const Moment moment{stream, clock.Of(stream) + 1};
    clock.Set(moment);
    return {operation, moment, base};
  }

  static std::string Names(const std::vector<Conflict>& conflicts) {
    std::string names;
    for (const Conflict& conflict : conflicts) names += conflict.earlier.operation->name;
    return names;
  }

  AccessHistory history_;
  uint64_t submitted_ = 0;
  std::map<uint64_t, Clock> streams_;
  std::vector<Conflict> conflicts_;
};

TEST_F(AccessHistoryTest, UnorderedWritesConflict) {
  EXPECT_EQ(Write("a", 1, 0, 100), "");
  EXPECT_EQ(Write("b", 2, 0, 100), "a");
}

TEST_F(AccessHistoryTest, OrderedWritesDoNot) {
  Write("a", 1, 0, 100);
  EXPECT_EQ(Write("b", 1, 0, 100), "") << "in one stream";
  Wait(2, 1);
  EXPECT_EQ(Write("c", 2, 0, 100), "") << "after a wait";
}

TEST_F(AccessHistoryTest, ReadsDoNotConflictWithReads) {
  EXPECT_EQ(Read("a", 1, 0, 100), "");
  EXPECT_EQ(Read("b", 2, 0, 100), "");
}

TEST_F(AccessHistoryTest, AWriteConflictsWithEveryReadSince) {
  Read("a", 1, 0, 100);
  Read("b", 2, 0, 100);
  Wait(3, 2);
  EXPECT_EQ(Write("c", 3, 0, 100), "a");
}

TEST_F(AccessHistoryTest, AnEndConflictsWithWhatItDidNotWaitFor) {
  Write("a", 1, 0, 50);
  Read("b", 2, 50, 60);
  Wait(3, 1);
  EXPECT_EQ(End("end", 3, 3), "b");
}

TEST_F(AccessHistoryTest, AnEndThatRunsFirstConflictsWithWhatWasSubmittedBeforeIt) {
  constexpr uint64_t kLater = 4;
  EXPECT_EQ(End("end", 1, kLater), "");
  EXPECT_EQ(Read("a", 2, 0, 50), "end");
  EXPECT_EQ(Write("b", 3, 60, 70), "end");
}

TEST_F(AccessHistoryTest, NothingHasToWaitForAnEnd) {
  EXPECT_EQ(End("end", 1, 0), "");
  EXPECT_EQ(Write("a", 2, 0, 100), "");
}

TEST_F(AccessHistoryTest, AReadConflictsWithTheWriteUnderOtherReads) {
  Write("a", 1, 0, 100);
  Wait(2, 1);
  Read("b", 2, 0, 100);
  EXPECT_EQ(Read("c", 3, 0, 100), "a");
}

TEST_F(AccessHistoryTest, NeighboursDoNotConflict) {
  Write("a", 1, 0, 100);
  EXPECT_EQ(Write("b", 2, 100, 200), "");
  EXPECT_EQ(Read("c", 3, 200, 300), "");
}

TEST_F(AccessHistoryTest, NamesTheBytesInCommon) {
  Write("a", 1, 0, 100);
  EXPECT_EQ(Write("b", 2, 60, 200), "a");
  EXPECT_EQ(conflicts_[0].begin, 60u);
  EXPECT_EQ(conflicts_[0].end, 100u);
  EXPECT_EQ(Read("c", 1, 0, 60), "") << "what stays is still the first's";
  EXPECT_EQ(Read("d", 1, 60, 61), "b");
}

TEST_F(AccessHistoryTest, NamesAnOperationOnceForAllItsPieces) {
  Write("a", 1, 0, 300);
  Wait(2, 1);
  Write("b", 2, 100, 200);
  EXPECT_EQ(Write("c", 3, 0, 300), "ab");
}

TEST_F(AccessHistoryTest, AReadOverGapsIsKnownThere) {
  Write("a", 1, 100, 200);
  Wait(2, 1);
  Read("b", 2, 0, 300);
  EXPECT_EQ(Write("c", 1, 0, 10), "b");
  EXPECT_EQ(Write("d", 1, 290, 300), "b");
}

TEST_F(AccessHistoryTest, KeepsOnePieceForAWriteOverMany) {
  for (uint64_t begin = 0; begin < 100; ++begin) Write("a", 1, begin, begin + 1);
  EXPECT_EQ(history_.size(), 100u);
  Write("b", 1, 0, 100);
  EXPECT_EQ(history_.size(), 1u);
}

TEST_F(AccessHistoryTest, KeepsOneReadAStream) {
  for (int round = 0; round < 100; ++round) Read("a", 1, 0, 100);
  EXPECT_EQ(Names(history_.NotCoveredBy(Clock(), kBase)), "a");
}

TEST_F(AccessHistoryTest, PrunesWhatAClockCovers) {
  Write("a", 1, 0, 100);
  Read("b", 2, 200, 300);
  history_.Prune(streams_[1]);
  EXPECT_EQ(history_.size(), 1u);
  EXPECT_EQ(Write("c", 3, 0, 300), "b");
}

TEST_F(AccessHistoryTest, TellsWhatAClockDoesNotCoverAtAnAddress) {
  Write("a", 1, 0, 100);
  Touch("b", AccessKind::kRead, 2, 200, 300, kBase + 0x1000);
  EXPECT_EQ(Names(history_.NotCoveredBy(Clock(), kBase)), "a");
  EXPECT_EQ(Names(history_.NotCoveredBy(Clock(), kBase + 0x1000)), "b");
  EXPECT_EQ(Names(history_.NotCoveredBy(streams_[1], kBase)), "");
}

}  // namespace
}  // namespace commpool::internal::emulator
