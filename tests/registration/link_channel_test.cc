// Rounds over a home link: rank 0 decides, names missing ranks, and must keep its decision. Threads stand for ranks.
#include <condition_variable>

#include "src/library/registration/home_links.h"
#include "tests/registration/link_fixture.h"

namespace commpool::internal {
namespace {

class LinkChannels : public LinkTest {};

TEST_F(LinkChannels, GiveEveryRankTheDecisionAndItsOwnPart) {
  const Channels channels = OpenChannels(4);
  const std::string large(3 << 20, 'x');  // more than sockets buffer
  ForEachRank(4, [&](int rank) {
    AgreementChannel& channel = *channels[static_cast<size_t>(rank)];
    EXPECT_EQ(channel.rank(), rank);
    EXPECT_EQ(channel.ranks(), 4);
    for (int round = 0; round < 20; ++round) {
      const std::string mine = rank == 3 && round == 7 ? large : std::string(static_cast<size_t>(rank), 'a');
      Result<std::string> verdict = JoinOver(channel, mine, "reserve");
      ASSERT_TRUE(verdict.ok()) << verdict.status().message();
      EXPECT_EQ(*verdict, "[][a][aa][" + (round == 7 ? large : "aaa") + "]");
    }
  });
}

// A rank that does not wait reads late. Nobody else would send the rest of a decision before a heartbeat does.
TEST_F(LinkChannels, LeaveNothingOfADecisionUnsent) {
  const Links links = OpenAll(2);
  const Channels channels = ChannelsOf(links);
  links[0]->StopWatching();
  const Decider large = [](const std::vector<std::string>&) {
    return std::string(64 << 20, 'x');  // more than sockets buffer
  };
  ForEachRank(2, [&](int rank) {
    const Result<std::string> decision = channels[static_cast<size_t>(rank)]->Decide("mine", "reserve", large);
    ASSERT_TRUE(decision.ok()) << decision.status().message();
    EXPECT_EQ(decision->size(), size_t{64} << 20);
    EXPECT_FALSE(rank == 0 && links[0]->HasUnsent());
  });
}

// On every rank a waiting thread also reads for others.
TEST_F(LinkChannels, OfTwoPoolsShareALinkOnThreadsOfTheirOwn) {
  const Links links = OpenAll(3);
  const Channels pools[] = {ChannelsOf(links, 1), ChannelsOf(links, 2)};
  ForEachRank(6, [&](int thread) {
    const int rank = thread / 2;
    AgreementChannel& channel = *pools[thread % 2][static_cast<size_t>(rank)];
    const std::string mine = thread % 2 == 0 ? "a" : "b";
    for (int round = 0; round < 300; ++round) {
      EXPECT_EQ(JoinOver(channel, mine, "reserve").value(), "[" + mine + "][" + mine + "][" + mine + "]");
    }
  });
}

TEST_F(LinkChannels, GetMessagesThatCameBeforeTheyWereOpened) {
  const Links links = OpenAll(2);
  std::thread early([&] {
    LinkChannel channel(links[1], 7, kLong);
    EXPECT_EQ(JoinOver(channel, "early", "create").value(), "[late][early]");
  });
  EXPECT_FALSE(links[0]->Await(DeadlineAfter(kShort), [] { return false; }));
  LinkChannel channel(links[0], 7, kLong);
  EXPECT_EQ(JoinOver(channel, "late", "create").value(), "[late][early]");
  early.join();
  EXPECT_EQ(links[0]->next_channel(), 8u);
}

TEST_F(LinkChannels, NameEveryRankThatStaysAwayAndTheStep) {
  const Channels channels = OpenChannels(4, kShort);
  ForEachRank(2, [&](int rank) {  // ranks 2 and 3 do not come
    const Status status = JoinOver(*channels[static_cast<size_t>(rank)], "mine", "trim").status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    ExpectMessage(status, "trim of 4 ranks ended after ");
    ExpectMessage(status, "missing: rank 2: no answer before the deadline; rank 3: no answer");
    EXPECT_EQ(status.message().find("rank 1"), std::string::npos) << status.message();
  });
}

TEST_F(LinkChannels, NameARankThatDied) {
  const Links links = OpenAll(3);
  const Channels channels = ChannelsOf(links);
  links[2]->Break();
  ForEachRank(2, [&](int rank) {
    const Status status = JoinOver(*channels[static_cast<size_t>(rank)], "mine", "reserve").status();
    EXPECT_EQ(status.code(), StatusCode::kRemoteFailure);
    ExpectMessage(status, "rank 2 was lost ");
    ExpectMessage(status, "its connection ended");
  });
}

TEST_F(LinkChannels, NameARankThatEndedItsPool) {
  Channels channels = OpenChannels(3);
  channels[2].reset();
  ForEachRank(2, [&](int rank) {
    const Status status = JoinOver(*channels[static_cast<size_t>(rank)], "mine", "reserve").status();
    EXPECT_EQ(status.code(), StatusCode::kRemoteFailure);
    ExpectMessage(status, "missing: rank 2: it has ended its pool");
  });
  EXPECT_FALSE(channels[0]->lost_ranks()->any());  // it left in order
}

TEST_F(LinkChannels, SayThatRankZeroHasGone) {
  Channels channels = OpenChannels(2);
  channels[0].reset();
  const Status status = JoinOver(*channels[1], "mine", "reserve").status();
  EXPECT_EQ(status.code(), StatusCode::kRemoteFailure);
  ExpectMessage(status, "missing: rank 0: it has ended its pool");
}

TEST_F(LinkChannels, StayBrokenAfterAFailure) {
  Channels channels = OpenChannels(2);
  channels[1].reset();
  ExpectMessage(JoinOver(*channels[0], "mine", "reserve").status(), "reserve of 2 ranks");
  ExpectMessage(JoinOver(*channels[0], "mine", "close").status(),
                "close: an earlier call of the ranks failed: reserve");
}

// After each of these steps the ranks would differ if rank 0 alone failed.
class BoundRankZero : public LinkTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(BoundRankZero, KeepsADecisionThatOneRankMissesAndTellsInTheNextRound) {
  const Links links = OpenAll(3);
  const Channels channels = ChannelsOf(links);
  links[0]->StopWatching();  // nobody may notice before the decision is sent
  links[2]->Send({FrameKind::kSaid, StatusCode::kOk, kFirstChannel, 1, "the last words"});
  const Decider dying = [&](const std::vector<std::string>& contents) {
    links[2]->Break();  // between its message and the decision
    return Join(contents);
  };
  ForEachRank(2, [&](int rank) {
    AgreementChannel& channel = *channels[static_cast<size_t>(rank)];
    const Result<std::string> decision = channel.Decide("mine", GetParam(), dying);
    ASSERT_TRUE(decision.ok()) << decision.status().message();
    EXPECT_EQ(*decision, "[mine][mine][the last words]");
    const Status next = JoinOver(channel, "mine", "the next step").status();
    EXPECT_EQ(next.code(), StatusCode::kRemoteFailure);
    ExpectMessage(next, "rank 2 was lost ");
    if (rank == 0) ExpectMessage(next, std::string("in \"") + GetParam() + "\" or after it");
  });
}

INSTANTIATE_TEST_SUITE_P(Steps, BoundRankZero,
                         ::testing::Values("reserve", "making a segment of 2 MiB", "trim", "reclaim"));

TEST_F(LinkChannels, DecideNothingWhereARankGaveTheRoundUp) {
  const Links links = OpenAll(2);
  LinkChannel patient(links[0], kFirstChannel, kLong);
  LinkChannel hasty(links[1], kFirstChannel, std::chrono::milliseconds(1));
  ExpectMessage(JoinOver(hasty, "mine", "reserve").status(), "missing: rank 0: no answer before the deadline");
  const Status status = JoinOver(patient, "mine", "reserve").status();
  EXPECT_EQ(status.code(), StatusCode::kRemoteFailure);
  ExpectMessage(status, "reserve was given up: rank 0: no answer before the deadline");
}

// The first rank that came gives up first, at its own deadline. So rank 0 waits for the rest no longer than that.
TEST_F(LinkChannels, LetALateRankZeroWaitForTheRestOfTheDeadlineAlone) {
  const Links links = OpenAll(3);
  LinkChannel late(links[0], kFirstChannel, kLong);
  const std::shared_ptr<Mailbox> mailbox = links[0]->OpenChannel(kFirstChannel, kLong);
  links[1]->Send({FrameKind::kSaid, StatusCode::kOk, kFirstChannel, 1, "in time"});
  ASSERT_TRUE(links[0]->Await(DeadlineAfter(kLong), [&] { return mailbox->ranks_heard == 1; }));
  links[0]->WithLock([&] { mailbox->first_came -= kLong - kShort; });
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
  std::thread last([&] {  // rank 2 comes within the deadline as rank 0 would count it, if that still waits
    std::unique_lock lock(mutex);
    if (ended.wait_for(lock, kLong / 2, [&] { return has_ended; })) return;
    links[2]->Send({FrameKind::kSaid, StatusCode::kOk, kFirstChannel, 1, "too late"});
  });
  const Status status = JoinOver(late, "mine", "reserve").status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.message();
  ExpectMessage(status, "missing: ");
  {
    const std::lock_guard lock(mutex);
    has_ended = true;
  }
  ended.notify_one();
  last.join();
}

TEST_F(LinkChannels, NameRankZeroWhereItComesTooLate) {
  const Links links = OpenAll(2);
  LinkChannel late(links[0], kFirstChannel, kShort);
  links[1]->Send({FrameKind::kSaid, StatusCode::kOk, kFirstChannel, 1, "in time"});
  EXPECT_FALSE(links[0]->Await(DeadlineAfter(4 * kShort), [] { return false; }));
  ExpectMessage(JoinOver(late, "mine", "reserve").status(), "missing: rank 0: it came ");
}

}  // namespace
}  // namespace commpool::internal
