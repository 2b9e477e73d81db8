#include "src/library/registration/divergence.h"

#include <atomic>
#include <deque>
#include <utility>

#include "src/library/registration/wire.h"
#include "tests/registration/link_fixture.h"

namespace commpool::internal {
namespace {

TEST(Divergence, IsUnknownAtFirst) {
  const Divergence divergence;
  EXPECT_FALSE(divergence.known());
  EXPECT_TRUE(divergence.status().ok());
}

TEST(Divergence, KeepsTheFirstDifference) {
  Divergence divergence;
  divergence.Note(Status());
  EXPECT_FALSE(divergence.known());
  divergence.Note(SequencesDiffer("here"));
  divergence.Note(SequencesDiffer("there"));
  EXPECT_TRUE(divergence.known());
  EXPECT_EQ(divergence.status().code(), StatusCode::kDisagreement);
  EXPECT_EQ(divergence.status().message(), "the sequences of calls differ, so blocks are at different offsets: here");
}

using engine::SequenceCall;
using engine::SequenceEntry;
using Calls = std::vector<SequenceEntry>;

// A rank's whole sequence: allocations of these sizes.
Calls Made(const std::vector<uint64_t>& sizes) {
  engine::SequenceLog log;
  Calls calls;
  for (const uint64_t bytes : sizes) {
    log.Append(SequenceCall::kAllocate, bytes);
    calls.push_back(*log.Entry(log.count() - 1));
  }
  return calls;
}

Calls Part(const Calls& calls, size_t begin, size_t end) {
  return Calls(calls.begin() + static_cast<std::ptrdiff_t>(begin), calls.begin() + static_cast<std::ptrdiff_t>(end));
}

const Calls kUsual = Made({1, 2, 3, 4, 5, 6});
const Calls kSwapped = Made({1, 2, 4, 3, 5, 6});

// What a rank publishes, and what the comparison finds then.
struct Published {
  int rank;
  Calls calls;
  std::optional<std::string> difference = std::nullopt;
};

void ExpectFound(int ranks, const std::vector<Published>& all) {
  SequenceComparison comparison(ranks);
  for (const Published& one : all) EXPECT_EQ(comparison.Add(one.rank, one.calls), one.difference) << one.rank;
}

TEST(SequenceComparison, FindsNothingInEqualSequences) { ExpectFound(3, {{1, kUsual}, {0, kUsual}, {2, kUsual}}); }

TEST(SequenceComparison, NamesTheFirstDifferingCallInAnyOrderOfRanks) {
  const std::string difference = "rank 0 made allocate 3 bytes (call 2), rank 2 made allocate 4 bytes (call 2)";
  ExpectFound(3, {{0, kUsual}, {1, kUsual}, {2, kSwapped, difference}});
  ExpectFound(3, {{2, kSwapped}, {0, kUsual, difference}});
}

TEST(SequenceComparison, ComparesOnlyWhatBothHavePublished) {
  ExpectFound(
      2, {{0, kUsual},
          {1, Part(kSwapped, 0, 2)},
          {1, Part(kSwapped, 2, 3), "rank 0 made allocate 3 bytes (call 2), rank 1 made allocate 4 bytes (call 2)"}});
}

TEST(SequenceComparison, SaysWhereTheFirstDifferenceMayLieInAGap) {
  ExpectFound(2, {{0, kUsual},
                  {1, Part(kSwapped, 0, 2)},
                  {1, Part(kSwapped, 4, 5),
                   "rank 0 made allocate 5 bytes (call 4), rank 1 made allocate 5 bytes (call 4), or an earlier call "
                   "was different"}});
}

TEST(SequenceComparison, AGapInEqualSequencesIsNoDifference) {
  ExpectFound(2, {{0, Part(kUsual, 0, 2)}, {1, Part(kUsual, 0, 3)}, {0, Part(kUsual, 5, 6)}, {1, Part(kUsual, 4, 6)}});
}

TEST(SequenceComparison, ARankThatHasGoneIsComparedNoMore) {
  SequenceComparison comparison(3);
  EXPECT_EQ(comparison.Add(1, kSwapped), std::nullopt);
  comparison.Forget(1);
  EXPECT_EQ(comparison.Add(0, kUsual), std::nullopt);
  EXPECT_EQ(comparison.Add(2, kUsual), std::nullopt);
}

TEST(SequenceComparison, KeepsCallsThatARankHasNotPublishedYet) {
  SequenceComparison comparison(3);
  comparison.Add(0, kUsual);
  comparison.Add(1, Part(kUsual, 0, 4));
  EXPECT_EQ(comparison.kept(), 6u) << "all of rank 0's, for rank 2 has said nothing";
  comparison.Add(2, Part(kUsual, 0, 2));
  EXPECT_EQ(comparison.kept(), 4u) << "what rank 2 has not published";
  comparison.Add(2, Part(kUsual, 2, 6));
  EXPECT_EQ(comparison.kept(), 2u) << "what rank 1 has not";
  comparison.Forget(1);
  EXPECT_EQ(comparison.kept(), 0u);
  comparison.Add(2, Made({1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(comparison.kept(), 1u) << "rank 0 is behind now";
}

TEST(SequenceComparison, KeepsNothingForARankThatHasGone) {
  SequenceComparison comparison(2);
  comparison.Add(1, kUsual);
  comparison.Forget(1);
  comparison.Add(0, kUsual);
  EXPECT_EQ(comparison.kept(), 0u);
}

TEST(SequenceComparison, OfOneThatIsFarBehindForgetsTheOldestCalls) {
  SequenceComparison comparison(2);
  std::vector<uint64_t> sizes(SequenceComparison::kMostKept + 10, 512);
  const Calls usual = Made(sizes);
  sizes[3] = 1024;
  EXPECT_EQ(comparison.Add(0, usual), std::nullopt);
  const std::optional<std::string> difference = comparison.Add(1, Made(sizes));
  ASSERT_TRUE(difference.has_value());
  EXPECT_NE(difference->find("(call 10), or an earlier call was different"), std::string::npos) << *difference;
}

// Publishers of several ranks, as threads of this process: every rank names the one that differs.

// The part of a rank's pool that publishes.
struct PublishingRank {
  std::unique_ptr<AgreementChannel> channel;
  engine::SequenceLog log;
  Divergence divergence;
  std::unique_ptr<Publisher> publisher;

  void Allocate(uint64_t bytes) {
    log.Append(SequenceCall::kAllocate, bytes);
    publisher->Offer(log);
  }
};

class Publishers : public LinkTest {
 protected:
  void Start(int ranks) {
    ranks_ = std::deque<PublishingRank>(static_cast<size_t>(ranks));
    Channels channels = OpenChannels(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      PublishingRank& own = ranks_[static_cast<size_t>(rank)];
      own.channel = std::move(channels[rank]);
      std::unique_ptr<BackgroundLine> line = own.channel->OpenBackground();
      ASSERT_NE(line, nullptr);
      own.publisher = std::make_unique<Publisher>(rank, ranks, std::move(line), own.divergence);
    }
  }

  void AllocateOnAll(uint64_t calls) {
    for (uint64_t call = 0; call < calls; ++call) {
      for (PublishingRank& rank : ranks_) rank.Allocate(512 + call);
    }
  }

  // Waits until the rank has heard of a difference.
  static std::string Heard(const PublishingRank& rank) {
    Await([&] { return rank.divergence.known(); });
    return rank.divergence.status().message();
  }
  void ExpectHeardByAll(const std::string& difference) {
    for (const PublishingRank& rank : ranks_) EXPECT_EQ(Heard(rank), SequencesDiffer(difference).message());
  }

  std::deque<PublishingRank> ranks_;
};

TEST_F(Publishers, NameTheFirstOfSwappedCallsOnEveryRank) {
  Start(4);
  AllocateOnAll(100);
  for (PublishingRank& rank : ranks_) {
    const bool swapped = &rank == &ranks_[2];
    for (const uint64_t bytes : {swapped ? 2000 : 1000, swapped ? 1000 : 2000}) rank.Allocate(bytes);
  }
  AllocateOnAll(128 - 102);
  ExpectHeardByAll("rank 0 made allocate 1,000 bytes (call 100), rank 2 made allocate 2,000 bytes (call 100)");
}

TEST_F(Publishers, OfDifferentSpeedFailOnlyWhereCallsDiffer) {
  Start(3);
  for (PublishingRank& rank : ranks_) {  // one after the other, so each is a whole run ahead of the next
    for (uint64_t call = 0; call < 30 * Publisher::kEvery; ++call) rank.Allocate(call + 1);
  }
  for (PublishingRank& rank : ranks_) EXPECT_FALSE(rank.divergence.known());
  ranks_[1].Allocate(7);  // the comparison finds exactly this call, so all earlier ones were compared and equal
  ranks_[0].Allocate(8);
  ranks_[2].Allocate(8);
  AllocateOnAll(Publisher::kEvery - 1);
  ExpectHeardByAll("rank 0 made allocate 8 bytes (call 1920), rank 1 made allocate 7 bytes (call 1920)");
}

TEST_F(Publishers, ThatDieAreComparedNoMore) {
  Start(3);
  ranks_[1].Allocate(1);  // never published
  ranks_[1].publisher.reset();
  ranks_[0].Allocate(3);
  ranks_[2].Allocate(4);
  for (uint64_t call = 1; call < Publisher::kEvery; ++call) {
    for (PublishingRank* rank : {&ranks_[0], &ranks_[2]}) rank->Allocate(512);
  }
  const std::string difference = "rank 0 made allocate 3 bytes (call 0), rank 2 made allocate 4 bytes (call 0)";
  for (const size_t rank : {0, 2}) EXPECT_EQ(Heard(ranks_[rank]), SequencesDiffer(difference).message());
}

TEST_F(Publishers, ContinueSilentlyWithoutRankZero) {
  Start(2);
  ranks_[0].publisher.reset();
  for (uint64_t call = 0; call < 2 * Publisher::kMostOffered; ++call) ranks_[1].Allocate(call + 1);
  EXPECT_FALSE(ranks_[1].divergence.known());
}

TEST_F(Publishers, EndWhileCallsAreUnderWay) {
  Start(2);
  AllocateOnAll(10 * Publisher::kEvery);
}

// The test plays the other one of two ranks.
struct Told {
  std::vector<std::string> messages = {};
  std::vector<std::string> sent = {};
  bool takes_more = true;
  bool* stopped = nullptr;  // set where the line is stopped
};

class ToldLine : public BackgroundLine {
 public:
  enum class Wakes { kAtOnce, kNever };
  explicit ToldLine(Told& told, Wakes wakes = Wakes::kAtOnce) : told_(told), wakes_(wakes) {}
  void Work() { work_(); }
  void Start(std::function<void()> work) override { work_ = std::move(work); }
  void Stop() override {
    if (told_.stopped != nullptr) *told_.stopped = true;
  }
  void Wake() override {
    if (wakes_ == Wakes::kAtOnce) Work();
  }
  bool takes_more() override { return told_.takes_more; }
  void Send(const std::string& message) override { told_.sent.push_back(message); }
  std::deque<BackgroundMessage> Receive() override {
    std::deque<BackgroundMessage> received;
    for (std::string& message : std::exchange(told_.messages, {})) received.push_back({1, std::move(message)});
    return received;
  }
  bool HasGone(int) override { return false; }

 private:
  Told& told_;
  const Wakes wakes_;
  std::function<void()> work_;
};

// A publisher of one of the two ranks.
struct OnePublisher {
  explicit OnePublisher(int rank, ToldLine::Wakes wakes = ToldLine::Wakes::kAtOnce)
      : line(new ToldLine(told, wakes)), publisher(rank, 2, std::unique_ptr<BackgroundLine>(line), divergence) {}

  // So many calls of one size.
  void Make(uint64_t calls, uint64_t bytes = 512) {
    for (uint64_t call = 0; call < calls; ++call) {
      log.Append(SequenceCall::kAllocate, bytes);
      publisher.Offer(log);
    }
  }
  Calls Sent(size_t message) const { return Decode<PublishedCalls>(told.sent.at(message), 1).value().calls; }

  Told told;
  Divergence divergence;
  engine::SequenceLog log;
  ToldLine* const line;
  Publisher publisher;
};

TEST(Publisher, KeepsItsCallsWhileTheLineTakesNoMore) {
  OnePublisher one(1);
  one.told.takes_more = false;
  one.Make(2 * Publisher::kEvery);
  EXPECT_TRUE(one.told.sent.empty());
  one.told.takes_more = true;
  one.Make(Publisher::kEvery);
  ASSERT_EQ(one.told.sent.size(), 1u) << "all of them at once";
  EXPECT_EQ(one.Sent(0).size(), 3 * Publisher::kEvery);
}

TEST(Publisher, KeepsTheOldestCallsInOrderWhereItHasNoRoomForAll) {
  OnePublisher one(1);
  one.told.takes_more = false;
  one.Make(Publisher::kMostOffered + Publisher::kEvery);
  one.told.takes_more = true;
  one.Make(Publisher::kEvery);
  ASSERT_EQ(one.told.sent.size(), 1u);
  const Calls published = one.Sent(0);
  ASSERT_EQ(published.size(), Publisher::kMostOffered);
  for (uint64_t number = 0; number < Publisher::kMostOffered; ++number) EXPECT_EQ(published[number].number, number);
  one.Make(Publisher::kEvery);
  ASSERT_EQ(one.told.sent.size(), 2u) << "there is room again";
}

// The line has its own thread here, as a link's has.
TEST(Publisher, LosesNothingBetweenTwoThreads) {
  constexpr uint64_t kCalls = 64 * Publisher::kEvery;
  OnePublisher one(1, ToldLine::Wakes::kNever);
  std::atomic<bool> over{false};
  std::thread watcher([&] {
    while (!over) one.line->Work();
    one.line->Work();
  });
  one.Make(kCalls);
  over = true;
  watcher.join();
  uint64_t next = 0;
  for (size_t message = 0; message < one.told.sent.size(); ++message) {
    for (const SequenceEntry& call : one.Sent(message)) ASSERT_EQ(call.number, next++);
  }
  EXPECT_EQ(next, kCalls);
}

TEST(Publisher, SaysADifferenceOnceAndStopsItsLine) {
  bool stopped = false;
  bool one_stopped = false;
  {
    OnePublisher one(1);
    one.told.stopped = &one_stopped;
    one.Make(3 * Publisher::kEvery);
    OnePublisher zero(0);
    zero.told.stopped = &stopped;
    for (const std::string& message : one.told.sent) {
      zero.told.messages = {message};
      zero.Make(Publisher::kEvery, 1024);
    }
    EXPECT_TRUE(zero.divergence.known());
    EXPECT_EQ(zero.told.sent.size(), 1u);
    EXPECT_FALSE(stopped);
  }
  EXPECT_TRUE(stopped && one_stopped);
}

TEST(Publisher, TakesNoCallFromAMessageThatIsCutShort) {
  OnePublisher zero(0);
  const std::string one_call = Encode(PublishedCalls{{engine::SequenceEntry{}}});
  zero.told.messages = {one_call.substr(0, one_call.size() - 1)};
  zero.Make(Publisher::kEvery);
  EXPECT_FALSE(zero.divergence.known());
  zero.told.messages = {one_call};
  zero.Make(Publisher::kEvery);
  EXPECT_TRUE(zero.divergence.known()) << "a call whose hash is 0 is no call of rank 0";
}

TEST(Publisher, GetsNoLineWhereARankIsAlone) { EXPECT_EQ(MakeSelfChannel()->OpenBackground(), nullptr); }

}  // namespace
}  // namespace commpool::internal
