// What channels carry: of one rank, over the caller's all-gather, and over a home link. There rank 0 decides, names
// missing ranks, and must keep its decision; threads stand for ranks.
#include "src/library/registration/agreement_channel.h"

#include <condition_variable>
#include <cstring>

#include "tests/registration/link_fixture.h"

namespace commpool::internal {
namespace {

TEST(SelfChannel, DecidesAlone) {
  const std::unique_ptr<AgreementChannel> channel = MakeSelfChannel();
  EXPECT_EQ(channel->rank(), 0);
  EXPECT_EQ(channel->ranks(), 1);
  EXPECT_EQ(JoinOver(*channel).value(), "[mine]");
}

// The all-gather of a job of two ranks. This is rank 1; rank 0 always sends `other`.
struct Job {
  std::string other;
  int fail_at = 0;  // which call fails; 0: none
  int fail_with = 1;
  int calls = 0;
  uint64_t announces = 0;  // by rank 0, in place of its length
};

int GatherOfJob(const void* sent, void* received, size_t bytes, void* context) {
  Job& job = *static_cast<Job*>(context);
  if (++job.calls == job.fail_at) return job.fail_with;
  const bool lengths = job.calls % 2 == 1;
  auto* out = static_cast<char*>(received);
  std::memset(out, 0, bytes);
  const uint64_t length = job.announces != 0 ? job.announces : job.other.size();
  std::memcpy(out, lengths ? reinterpret_cast<const char*>(&length) : job.other.data(),
              lengths ? sizeof(length) : job.other.size());
  std::memcpy(out + bytes, sent, bytes);
  return 0;
}

TEST(CallerChannel, DecidesOnEveryRankFromBytesOfDifferentLengths) {
  Job job{.other = "the longer one"};
  const std::unique_ptr<AgreementChannel> channel = MakeCallerChannel(1, 2, GatherOfJob, &job);
  EXPECT_EQ(JoinOver(*channel, "short", "reserve").value(), "[the longer one][short]");
  EXPECT_EQ(JoinOver(*channel, "", "reserve").value(), "[the longer one][]");
}

TEST(CallerChannel, NamesTheStepWhereTheFunctionFailed) {
  for (const int call : {1, 2}) {
    Job job{.other = "x", .fail_at = call};
    const std::unique_ptr<AgreementChannel> channel = MakeCallerChannel(1, 2, GatherOfJob, &job);
    ExpectFailure(JoinOver(*channel).status(), StatusCode::kRemoteFailure, "failed at reserve (rank 1 of 2)");
  }
}

TEST(CallerChannel, NamesTheRankThatTheFunctionMisses) {
  Job job{.other = "x", .fail_at = 1, .fail_with = -2};
  const std::unique_ptr<AgreementChannel> channel = MakeCallerChannel(1, 2, GatherOfJob, &job);
  ExpectMessage(JoinOver(*channel).status(), "rank 0 did not come");
}

TEST(CallerChannel, StaysBrokenAndCallsNothingMore) {
  Job job{.other = "x", .fail_at = 1};
  const std::unique_ptr<AgreementChannel> channel = MakeCallerChannel(1, 2, GatherOfJob, &job);
  EXPECT_FALSE(JoinOver(*channel).ok());
  ExpectMessage(JoinOver(*channel, "mine", "trim").status(), "an earlier call failed");
  EXPECT_EQ(job.calls, 1);
}

TEST(CallerChannel, RefusesALengthThatCannotBe) {
  constexpr uint64_t kLongest = uint64_t{1} << 26;
  // Of many ranks, the same length is too much for all of them together.
  for (const auto& [ranks, announced] :
       {std::pair(2, UINT64_MAX), std::pair(2, kLongest + 1), std::pair(65, kLongest)}) {
    Job job{.other = "x", .announces = announced};
    const std::unique_ptr<AgreementChannel> channel = MakeCallerChannel(1, ranks, GatherOfJob, &job);
    ExpectFailure(JoinOver(*channel).status(), StatusCode::kRemoteFailure, "announced");
    EXPECT_EQ(job.calls, 1) << ranks << " ranks";
  }
}

class LinkChannels : public LinkTest {};

TEST_F(LinkChannels, GiveEveryRankTheDecisionAndItsOwnPart) {
  const Channels channels = OpenChannels(4);
  const std::string large(3 << 20, 'x');  // more than sockets buffer
  ForEachRank(4, [&](int rank) {
    AgreementChannel& channel = *channels[rank];
    EXPECT_EQ(channel.rank(), rank);
    EXPECT_EQ(channel.ranks(), 4);
    for (int round = 0; round < 20; ++round) {
      EXPECT_EQ(
          JoinOver(channel, rank == 3 && round == 7 ? large : std::string(static_cast<size_t>(rank), 'a')).value(),
          "[][a][aa][" + (round == 7 ? large : "aaa") + "]");
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
    EXPECT_EQ(channels[rank]->Decide("mine", "reserve", large).value().size(), size_t{64} << 20);
    EXPECT_FALSE(rank == 0 && links[0]->HasUnsent());
  });
}

// On every rank a waiting thread also reads for others.
TEST_F(LinkChannels, OfTwoPoolsShareALinkOnThreadsOfTheirOwn) {
  const Links links = OpenAll(3);
  const Channels pools[] = {ChannelsOf(links, 1), ChannelsOf(links, 2)};
  ForEachRank(6, [&](int thread) {
    const int rank = thread / 2;
    AgreementChannel& channel = *pools[thread % 2][rank];
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
    const Status status = JoinOver(*channels[rank], "mine", "trim").status();
    ExpectFailure(status, StatusCode::kDeadlineExceeded, "trim of 4 ranks ended after ");
    ExpectMessage(status, "missing: rank 2: no answer before the deadline; rank 3: no answer");
    EXPECT_EQ(status.message().find("rank 1"), std::string::npos) << status.message();
  });
}

TEST_F(LinkChannels, NameARankThatDied) {
  const Links links = OpenAll(3);
  const Channels channels = ChannelsOf(links);
  links[2]->Break();
  ForEachRank(2, [&](int rank) {
    const Status status = JoinOver(*channels[rank]).status();
    ExpectFailure(status, StatusCode::kRemoteFailure, "rank 2 was lost ");
    ExpectMessage(status, "its connection ended");
  });
}

TEST_F(LinkChannels, NameARankThatEndedItsPool) {
  Channels channels = OpenChannels(3);
  channels[2].reset();
  ForEachRank(2, [&](int rank) {
    ExpectFailure(JoinOver(*channels[rank]).status(), StatusCode::kRemoteFailure,
                  "missing: rank 2: it has ended its pool");
  });
  EXPECT_FALSE(channels[0]->lost_ranks()->any());  // it left in order
}

TEST_F(LinkChannels, SayThatRankZeroHasGone) {
  Channels channels = OpenChannels(2);
  channels[0].reset();
  ExpectFailure(JoinOver(*channels[1]).status(), StatusCode::kRemoteFailure, "missing: rank 0: it has ended its pool");
}

TEST_F(LinkChannels, StayBrokenAfterAFailure) {
  Channels channels = OpenChannels(2);
  channels[1].reset();
  ExpectMessage(JoinOver(*channels[0]).status(), "reserve of 2 ranks");
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
    AgreementChannel& channel = *channels[rank];
    const Result<std::string> decision = channel.Decide("mine", GetParam(), dying);
    EXPECT_EQ(decision.value(), "[mine][mine][the last words]");
    const Status next = JoinOver(channel, "mine", "the next step").status();
    ExpectFailure(next, StatusCode::kRemoteFailure, "rank 2 was lost ");
    if (rank == 0) ExpectMessage(next, std::string("in \"") + GetParam() + "\" or after it");
  });
}

INSTANTIATE_TEST_SUITE_P(Steps, BoundRankZero,
                         ::testing::Values("reserve", "making a segment of 2 MiB", "trim", "reclaim"));

TEST_F(LinkChannels, DecideNothingWhereARankGaveTheRoundUp) {
  const Links links = OpenAll(2);
  LinkChannel patient(links[0], kFirstChannel, kLong);
  LinkChannel hasty(links[1], kFirstChannel, std::chrono::milliseconds(1));
  ExpectMessage(JoinOver(hasty).status(), "missing: rank 0: no answer before the deadline");
  ExpectFailure(JoinOver(patient).status(), StatusCode::kRemoteFailure,
                "reserve was given up: rank 0: no answer before the deadline");
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
  ExpectFailure(JoinOver(late).status(), StatusCode::kDeadlineExceeded, "missing: ");
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
  ExpectMessage(JoinOver(late).status(), "missing: rank 0: it came ");
}

}  // namespace
}  // namespace commpool::internal
