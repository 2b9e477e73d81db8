// Home links open, carry messages, and notice lost ranks. Threads stand for ranks.
#include "src/library/registration/home_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <utility>

#include "src/library/base/interface.h"
#include "src/library/registration/rank_admission.h"
#include "tests/base/expect_status.h"
#include "tests/registration/link_fixture.h"

namespace commpool::internal {
namespace {

class HomeLinks : public LinkTest {
 protected:
  // Ranks 0 and 1 wait for so long, and rank 2 does not come.
  void ExpectRankTwoNamed(std::chrono::milliseconds of_zero, std::chrono::milliseconds of_one) {
    const std::string named = "these ranks did not connect to " + address() + ": 2";
    ForEachRank(2, [&](int rank) {
      Result<std::shared_ptr<HomeLink>> link = Open(rank, 3, rank == 0 ? of_zero : of_one);
      EXPECT_EQ(link.ok(), rank == 1);
      if (rank == 0) return ExpectMessage(link.status(), named);
      LinkChannel channel(*link, kFirstChannel, kLong);
      ExpectMessage(JoinOver(channel, "mine", "create").status(), named);
    });
  }
};

TEST_F(HomeLinks, NameTheRanksThatNeverConnectOnEveryRankThatDid) {
  ExpectRankTwoNamed(std::chrono::milliseconds(1000), kLong);
}

TEST_F(HomeLinks, LetRankZeroNameMissingRanksBeforeItCountsAsSilent) {
  // Rank 1 has waited for its whole deadline when rank 0 gives up.
  ExpectRankTwoNamed(std::chrono::milliseconds(1400), std::chrono::milliseconds(1000));
}

TEST_F(HomeLinks, RefuseAnAddressThatIsNone) {
  const LinkOptions options{.rank = 1, .ranks = 2, .deadline = kShort};
  EXPECT_EQ(HomeLink::Join(options, "nowhere").status().code(), StatusCode::kInvalidArgument);
}

TEST_F(HomeLinks, TellEveryRankWhoIsLostWhileNobodyWaits) {
  const Links links = OpenAll(4);
  links[2]->Break();
  for (const int rank : {0, 1, 3}) AwaitLoss(*links[rank], 2);
  ExpectMessage(links[1]->lost_ranks()->status(), "its connection ended");
}

TEST_F(HomeLinks, TellTheDeathOfRankZero) {
  const Links links = OpenAll(3);
  links[0]->Break();
  for (const int rank : {1, 2}) AwaitLoss(*links[rank], 0);
}

TEST_F(HomeLinks, CountARankThatIsSilentAsLost) {
  const Links links = OpenAll(3, kShort);
  links[1]->StopWatching();  // sends no heartbeats, like a stopped process
  for (const int rank : {0, 2}) AwaitLoss(*links[rank], 1);
  ExpectMessage(links[2]->lost_ranks()->status(), "it was silent for ");
}

// As if all processes of a host were stopped for a while, and one continued first.
TEST_F(HomeLinks, CountNoSilenceWhileTheyDidNotListen) {
  const Links links = OpenAll(2, kShort);
  std::promise<void> stopped;
  std::promise<void> go_on;
  const std::shared_future<void> told = go_on.get_future().share();
  bool first = true;
  links[1]->StartWork(kFirstChannel, [&, told] {
    if (std::exchange(first, false)) stopped.set_value();
    told.wait();
  });
  stopped.get_future().wait();
  // Three passes of the watcher: one hears rank 1 for the last time, one lasts longer than the silence that counts, one
  // looks.
  std::promise<void> looked;
  int passes = 0;
  links[0]->StartWork(kFirstChannel, [&] {
    if (++passes == 4) looked.set_value();
    const Deadline end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
    while (passes == 3 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  looked.get_future().wait();
  EXPECT_FALSE(links[0]->lost_ranks()->any()) << links[0]->lost_ranks()->status().message();
  go_on.set_value();
  for (const auto& link : links) link->StopWork(kFirstChannel);
}

// A silent rank sends nothing that could wake a waiting thread; the watcher wakes it.
TEST_F(HomeLinks, EndAWaitForARankThatIsSilent) {
  const Links links = OpenAll(2, kShort);
  links[1]->StopWatching();
  const std::shared_ptr<LostRanks> lost = links[0]->lost_ranks();
  EXPECT_TRUE(links[0]->Await(DeadlineAfter(std::chrono::hours(1)), [&] { return lost->any(); }));
}

// No heartbeat wakes the sender: only room in its socket does.
TEST_F(HomeLinks, SendTheRestOfAMessageAsSoonAsThereIsRoom) {
  const Links links = OpenAll(2);
  for (const auto& link : links) link->StopWatching();
  const std::shared_ptr<Mailbox> mailbox = links[1]->OpenChannel(kFirstChannel, kLong);
  const size_t bytes = 64 << 20;  // more than sockets buffer
  auto received = std::async(std::launch::async, [&] {
    return links[1]->Await(DeadlineAfter(kLong), [&] { return !mailbox->background.empty(); });
  });
  links[0]->Send({.kind = FrameKind::kBackground, .channel = kFirstChannel, .contents = std::string(bytes, 'x')});
  links[0]->Flush(DeadlineAfter(kLong));
  EXPECT_FALSE(links[0]->HasUnsent());
  ASSERT_TRUE(received.get());
  EXPECT_EQ(mailbox->background.front().contents.size(), bytes);
}

TEST_F(HomeLinks, CountSilenceByTheShortestDeadlineOfTheirChannelsAndNoLessThanASecond) {
  const Links links = OpenAll(2, std::chrono::hours(1));
  for (const std::chrono::milliseconds deadline : {kLong, kShort, kLong}) links[0]->OpenChannel(1, deadline);
  links[1]->StopWatching();
  AwaitLoss(*links[0], 1);
  const std::string text = links[0]->lost_ranks()->status().message();
  const std::string words = "it was silent for ";
  const size_t number = text.find(words);
  ASSERT_NE(number, std::string::npos) << text;
  EXPECT_GE(std::stoi(text.substr(number + words.size())), 1000) << text;
}

// Two threads wait, and one of them reads. What it reads for the other ends the other's wait at once.
TEST_F(HomeLinks, EndAWaitWithAMessageThatAnotherThreadRead) {
  const Links links = OpenAll(2);
  for (const auto& link : links) link->StopWatching();  // no heartbeat comes
  const auto await = [&](const std::shared_ptr<Mailbox>& mailbox, std::atomic<bool>& waits) {
    EXPECT_TRUE(links[0]->Await(DeadlineAfter(std::chrono::hours(1)), [&] {
      waits = true;
      return mailbox->ranks_heard == 1;
    }));
  };
  const std::shared_ptr<Mailbox> mailboxes[] = {links[0]->OpenChannel(1, kLong), links[0]->OpenChannel(2, kLong)};
  std::atomic<bool> wait[2] = {false, false};
  std::thread reads([&] { await(mailboxes[0], wait[0]); });
  while (!wait[0]) std::this_thread::yield();
  std::thread hears([&] { await(mailboxes[1], wait[1]); });
  while (!wait[1]) std::this_thread::yield();
  links[1]->Send({FrameKind::kSaid, StatusCode::kOk, 2, 1, "to the second"});
  hears.join();
  links[1]->Send({FrameKind::kSaid, StatusCode::kOk, 1, 1, "to the first"});
  reads.join();
}

TEST_F(HomeLinks, WakeAllWaitersWhereTheyBreak) {
  const Links links = OpenAll(2);
  for (const auto& link : links) link->StopWatching();
  std::atomic<bool> waits{false};
  std::atomic<bool> broken{false};
  std::thread reads([&] {
    EXPECT_TRUE(links[0]->Await(DeadlineAfter(std::chrono::hours(1)), [&] {
      waits = true;
      return broken.load();
    }));
  });
  while (!waits) std::this_thread::yield();
  broken = true;
  links[0]->Break();
  reads.join();
}

TEST_F(HomeLinks, DoAChannelsWorkUntilItIsStopped) {
  const Links links = OpenAll(2);
  std::atomic<int> first{0};
  std::atomic<int> second{0};
  links[0]->StartWork(1, [&] { ++first; });
  links[0]->StartWork(2, [&] { ++second; });
  Await([&] { return first >= 1; });
  links[0]->StopWork(1);
  const int done = first;
  Await([&, least = second + 2] { return second >= least; });  // all channels' work is done in turn
  EXPECT_EQ(first, done);
  links[0]->StopWork(2);
}

TEST_F(HomeLinks, ThatEndInOrderLoseNobody) {
  Links links = OpenAll(3);
  const std::shared_ptr<LostRanks> lost = links[0]->lost_ranks();
  links[1].reset();
  links[2].reset();
  EXPECT_TRUE(links[0]->Await(DeadlineAfter(kLong), [&] { return true; }));
  Await([&] { return !links[0]->WhyGone(2).empty(); });
  EXPECT_EQ(links[0]->WhyGone(2), "it has ended its pools");
  EXPECT_FALSE(lost->any());
}

TEST_F(HomeLinks, EndARoundInWhichARankDies) {
  const Links links = OpenAll(3);
  const Channels channels = ChannelsOf(links);
  ForEachRank(3, [&](int rank) {
    if (rank == 1) return links[1]->Break();
    ExpectMessage(JoinOver(*channels[rank]).status(), "rank 1 was lost ");
  });
}

TEST_F(HomeLinks, KeepNothingThatComesForAChannelAfterItsEnd) {
  const Links links = OpenAll(2);
  links[0]->StopWatching();
  links[0]->OpenChannel(kFirstChannel, kLong);
  links[0]->EndChannel(kFirstChannel, "why");
  links[1]->Send({FrameKind::kSaid, StatusCode::kOk, kFirstChannel, 1, "too late"});
  links[1]->Send({FrameKind::kSaid, StatusCode::kOk, kFirstChannel + 1, 1, "early"});
  const std::shared_ptr<Mailbox> next = links[0]->OpenChannel(kFirstChannel + 1, kLong);
  ASSERT_TRUE(links[0]->Await(DeadlineAfter(kLong), [&] { return next->ranks_heard == 1; }));
  EXPECT_EQ(links[0]->OpenChannel(kFirstChannel, kLong)->ranks_heard, 0u);
}

// An ended connection is always ready: a waiting thread would spin.
TEST_F(HomeLinks, ReadNoMoreFromARankWhoseConnectionEnded) {
  const Links links = OpenAll(3);
  links[0]->StopWatching();
  links[1]->Break();
  ASSERT_TRUE(links[0]->Await(DeadlineAfter(kLong), [&] { return links[0]->lost_ranks()->any(); }));
  int asked = 0;
  EXPECT_FALSE(links[0]->Await(DeadlineAfter(kShort), [&] { return ++asked < 0; }));
  EXPECT_LT(asked, 50) << "rank 2's heartbeats alone come";
}

TEST_F(HomeLinks, CallTheirListenersOnTheWatchersThread) {
  const Links links = OpenAll(2);
  std::atomic<int> heard{LostRanks::kNone};
  std::atomic<bool> here{false};
  const std::thread::id mine = std::this_thread::get_id();
  const LostRanks::ListenerNumber number = links[0]->lost_ranks()->AddListener([&](int rank) {
    here = std::this_thread::get_id() == mine;
    heard = rank;
  });
  links[1]->Break();
  Await([&] { return heard != LostRanks::kNone; });
  EXPECT_EQ(heard, 1);
  EXPECT_FALSE(here);
  links[0]->lost_ranks()->RemoveListener(number);
}

// What a rank other than 0 sends and receives does not grow with the number of ranks.
TEST_F(HomeLinks, CarryAsMuchForARankOfManyAsForOneOfFew) {
  const auto bytes_of_rank_one = [&](int ranks) {
    const Links links = OpenAll(ranks);
    const Channels channels = ChannelsOf(links);
    ForEachRank(ranks, [&](int rank) {
      const Decider constant = [](const std::vector<std::string>&) { return std::string("decided"); };
      EXPECT_TRUE(channels[rank]->Decide("mine", "reserve", constant).ok());
    });
    for (const auto& link : links) link->StopWatching();
    return links[1]->traffic();
  };
  EXPECT_LT(bytes_of_rank_one(24).bytes, 2000u);  // a round, and heartbeats
}

// The introductions of ranks on these hosts; rank 0 listens at `address`.
std::vector<Introduction> Of(const std::vector<uint64_t>& hosts, const char* address = "127.0.0.1:4000",
                             const char* why = "no interface fits") {
  std::vector<Introduction> all(hosts.size());
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    all[rank].rank = rank;
    all[rank].host = hosts[rank];
  }
  all[0].address = address;
  all[0].why = why;
  return all;
}

TEST(CheckReach, AcceptsLoopbackForRanksOfOneHost) { ExpectOk(CheckReach(Of({7, 7, 7}))); }

TEST(CheckReach, AcceptsRanksOfEveryHostAtAnAddressThatOthersReach) {
  ExpectOk(CheckReach(Of({7, 8, 9}, "10.77.0.1:4000", "")));
}

TEST(CheckReach, RefusesLoopbackForRanksOfOtherHostsWithTheReasonAndTheAdvice) {
  const Status status = CheckReach(Of({7, 7, 8, 9}));
  for (const char* part : {"127.0.0.1:4000", "ranks 2, 3 run elsewhere", "no interface fits", "COMMPOOL_INTERFACE"}) {
    ExpectFailure(status, StatusCode::kFailedPrecondition, part);
  }
}

TEST(CheckReach, NamesAFewOfManyRanks) {
  std::vector<uint64_t> hosts(1000, 8);
  hosts[0] = 7;
  ExpectMessage(CheckReach(Of(hosts)), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 991 others");
  hosts.resize(9);
  ExpectMessage(CheckReach(Of(hosts)), "ranks 1, 2, 3, 4, 5, 6, 7, 8 run elsewhere");
  hosts.resize(2);
  ExpectMessage(CheckReach(Of(hosts)), "and rank 1 run elsewhere");
}

TEST(CheckReach, TellsEveryRankWhyRankZeroCannotListen) {
  ExpectFailure(CheckReach(Of({7, 8}, "", "listening on 10.1.1.1: Cannot assign requested address")),
                StatusCode::kRemoteFailure, "Cannot assign requested address");
}

TEST(Introduce, RankZeroListensWithAKeyOfItsOwn) {
  std::optional<Listener> first, second;
  const Introduction one = Introduce(0, first);
  const Introduction other = Introduce(0, second);
  ASSERT_TRUE(first);
  EXPECT_EQ(one.address, first->address());
  EXPECT_NE(one.key, other.key);
}

TEST(Introduce, TheOthersSayWhereTheyAre) {
  std::optional<Listener> listener;
  const Introduction mine = Introduce(3, listener);
  EXPECT_FALSE(listener);
  EXPECT_EQ(mine.rank, 3U);
  EXPECT_EQ(mine.host, HostIdentity());
}

TEST(PaddedIntroductions, AreOfOneSizeAndSurviveTheWire) {
  Introduction mine{.address = "10.77.0.1:4000", .why = "why", .key = {1, 2}, .rank = 3, .host = 4, .link = 5};
  const std::string bytes = Pad(mine);
  EXPECT_EQ(bytes.size(), kIntroductionBytes);
  const Introduction last = DecodePadded({bytes, bytes}).value().back();
  EXPECT_EQ(last.address, mine.address);
  EXPECT_EQ(last.key, mine.key);
  EXPECT_EQ(last.link, mine.link);
  mine.why = std::string(2 * kIntroductionBytes, 'x');
  EXPECT_GT(DecodePadded({Pad(mine)}).value().front().why.size(), kIntroductionBytes / 2)
      << "as much of a reason as there is room for";
  EXPECT_EQ(Pad(mine).size(), kIntroductionBytes);
}

TEST(PaddedIntroductions, OfAnotherVersionAreRefusedByName) {
  std::string other = Pad({});
  ++other[offsetof(WireHello, version)];
  EXPECT_EQ(DecodePadded({Pad({}), other}).status().message(),
            "rank 1 speaks version 6, rank 0 version 5: do all ranks run the same build of commpool?");
  EXPECT_EQ(DecodePadded({Pad({}), std::string(kIntroductionBytes, '\0')}).status().message(),
            "rank 1 sent an unreadable introduction: do all ranks run the same build of commpool?");
  std::string with_more = Pad({});
  with_more.back() = 'x';
  EXPECT_EQ(DecodePadded({with_more}).status().code(), StatusCode::kDisagreement);
}

}  // namespace
}  // namespace commpool::internal
