// Rank 0's port among strangers. Ranks are threads; where they use up descriptors, processes.
#include "src/library/registration/rank_admission.h"

#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "src/library/registration/wire.h"
#include "tests/base/silent_strangers.h"
#include "tests/base/socket_pair.h"
#include "tests/registration/link_fixture.h"

namespace commpool::internal {
namespace {

constexpr std::chrono::milliseconds kPatience{60000};
constexpr size_t kChallengeBytes = 24;
constexpr size_t kHelloBytes = 40;

LinkOptions Of(int rank, int ranks, std::chrono::milliseconds deadline = kPatience, const HashKey& key = kKey) {
  return {.rank = rank, .ranks = ranks, .deadline = deadline, .key = key};
}

class RankAdmission : public LinkTest {
 protected:
  std::future<AdmittedRanks> Admit(int ranks, std::chrono::milliseconds deadline = kPatience) {
    return std::async(std::launch::async,
                      [this, options = Of(0, ranks, deadline)] { return AdmitRanks(options, TakeListener()); });
  }

  Result<Connection> Join(int rank, int ranks, std::chrono::milliseconds deadline = kPatience,
                          const HashKey& key = kKey) {
    return JoinRankZero(Of(rank, ranks, deadline, key), address());
  }
};

TEST_F(RankAdmission, ConnectsEachRank) {
  auto admitted = Admit(3);
  Connection two = Join(2, 3).value();
  const Connection one = Join(1, 3).value();
  AdmittedRanks ranks = admitted.get();
  ASSERT_TRUE(ranks.status.ok());
  const char sent = 'x';
  char received = 0;
  ASSERT_TRUE(two.Send(&sent, 1, Later()).ok());
  EXPECT_TRUE(ranks.connections[1].Receive(&received, 1, Later()).ok());
}

TEST_F(RankAdmission, HandsOverTheRanksThatCameWhereOthersAreMissing) {
  auto admitted = Admit(3, kShort);
  const Connection joined = Join(1, 3).value();
  AdmittedRanks ranks = admitted.get();
  ExpectFailure(ranks.status, StatusCode::kDeadlineExceeded, address() + ": 2 (");
  EXPECT_TRUE(ranks.connections[0].valid());
  EXPECT_FALSE(ranks.connections[1].valid());
}

TEST_F(RankAdmission, NamesRankZeroWhereNobodyListens) {
  const std::string left = Listener::Open().value().address();
  const Status status = JoinRankZero(Of(1, 2, kShort), left).status();
  ExpectFailure(status, status.code(), "rank 0: ");
}

// Rank 0's host may be slower than the others'.
TEST_F(RankAdmission, WaitsForARankZeroThatTurnedItAway) {
  Listener busy = TakeListener();
  auto joined = std::async(std::launch::async, [this] { return Join(1, 2).ok(); });
  while (!busy.AcceptNow().value()) std::this_thread::yield();  // and the connection is closed at once
  const AdmittedRanks ranks = AdmitRanks(Of(0, 2), std::move(busy));
  EXPECT_TRUE(ranks.status.ok()) << ranks.status.message();
  EXPECT_TRUE(joined.get());
}

TEST_F(RankAdmission, NamesAFewOfManyRanksThatAreMissing) {
  const AdmittedRanks ranks = Admit(1000, kShort).get();
  ExpectFailure(ranks.status, ranks.status.code(), " 15 16 and 983 others (");
}

TEST_F(RankAdmission, IgnoresStrangersEvenSilentOnes) {
  // These wait in the port's queue before rank 0 looks, and stay connected.
  Connection silent = Connect(address(), Later()).value();
  Connection hasty = Connect(address(), Later()).value();
  ASSERT_TRUE(hasty.Send("GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n", 43, Later()).ok());
  { const Connection gone = Connect(address(), Later()).value(); }
  auto admitted = Admit(2);
  EXPECT_FALSE(Join(1, 2, kShort, {42, 44}).ok());  // of another pool
  EXPECT_FALSE(Join(5, 2, kShort).ok());            // there is no such rank
  EXPECT_TRUE(Join(1, 2).ok());
  EXPECT_TRUE(admitted.get().status.ok());
}

TEST_F(RankAdmission, NamesBothSidesOfTwoVersions) {
  auto joined = std::async(std::launch::async, [&] { return Join(1, 2).status(); });
  Listener listener = TakeListener();
  Connection connection = NextCaller(listener);
  const uint32_t challenge[kChallengeBytes / sizeof(uint32_t)] = {WireHello::kMagic, kWireVersion + 1};
  ASSERT_TRUE(connection.Send(challenge, sizeof(challenge), Later()).ok());
  const Status status = joined.get();
  ExpectFailure(status, StatusCode::kDisagreement, "rank 0 speaks version 6, this rank version 5");
}

// A rank's answer to this challenge, as somebody who overhears it would see it.
std::string OverhearHello(const std::string& challenge) {
  Listener listener = Listener::Open().value();
  const std::string here = listener.address();
  auto joined = std::async(std::launch::async, [&] { return JoinRankZero(Of(1, 2), here).status(); });
  Connection connection = NextCaller(listener);
  EXPECT_TRUE(connection.Send(challenge.data(), challenge.size(), Later()).ok());
  std::string hello(kHelloBytes, '\0');
  EXPECT_TRUE(connection.Receive(hello.data(), hello.size(), Later()).ok());
  const uint64_t made_up = 0;
  EXPECT_TRUE(connection.Send(&made_up, sizeof(made_up), Later()).ok());
  ExpectFailure(joined.get(), StatusCode::kDisagreement, "is not rank 0 of this pool");
  return hello;
}

std::string ReceiveChallenge(Connection& connection) {
  std::string challenge(kChallengeBytes, '\0');
  EXPECT_TRUE(connection.Receive(challenge.data(), challenge.size(), Later()).ok());
  return challenge;
}

TEST_F(RankAdmission, TakesNoHelloThatWasOverheardOnAnotherConnection) {
  auto admitted = Admit(2);
  Connection first = Connect(address(), Later()).value();
  const std::string hello = OverhearHello(ReceiveChallenge(first));
  EXPECT_EQ(hello.find(std::string(reinterpret_cast<const char*>(kKey.data()), sizeof(kKey[0]))), std::string::npos);

  Connection second = Connect(address(), Later()).value();
  ReceiveChallenge(second);
  ASSERT_TRUE(second.Send(hello.data(), hello.size(), Later()).ok());
  uint64_t welcome = 0;
  EXPECT_EQ(second.Receive(&welcome, sizeof(welcome), Later()).code(), StatusCode::kRemoteFailure);
  EXPECT_TRUE(Join(1, 2).ok());
  EXPECT_TRUE(admitted.get().status.ok());
}

// Rank 1 of two as a process, once the strangers have come.
pid_t StartRankOne(const std::string& address, const SilentStrangers& strangers) {
  const pid_t child = fork();
  if (child != 0) return child;
  _exit(strangers.AwaitAll() && JoinRankZero(Of(1, 2), address).ok() ? 0 : 1);
}

void ExpectJoined(pid_t rank) {
  int status = 0;
  ASSERT_EQ(waitpid(rank, &status, 0), rank);
  EXPECT_EQ(status, 0);
}

// The number of strangers, and how many more descriptors rank 0 may open.
struct Crowd {
  int strangers;
  rlim_t descriptors;
};

class AmongStrangers : public RankAdmission, public ::testing::WithParamInterface<Crowd> {};

TEST_P(AmongStrangers, FindsItsRankBehindThemAll) {
  const SilentStrangers strangers(address(), GetParam().strangers);
  const pid_t rank = StartRankOne(address(), strangers);
  {
    const DescriptorLimit limit(OpenDescriptors() + GetParam().descriptors);
    const AdmittedRanks ranks = Admit(2).get();
    EXPECT_TRUE(ranks.status.ok()) << ranks.status.message();
  }
  ExpectJoined(rank);
}

// First more than rank 0 waits for; then more than it has descriptors: few, and as many as most systems allow.
INSTANTIATE_TEST_SUITE_P(Crowds, AmongStrangers, ::testing::Values(Crowd{300, 500}, Crowd{300, 20}, Crowd{1100, 1000}));

TEST_F(RankAdmission, FindsEveryRankBehindElevenHundredSilentStrangers) {
  const SilentStrangers strangers(address(), 1100);
  const DescriptorLimit usual(1024);
  auto admitted = Admit(4);
  EXPECT_TRUE(strangers.AwaitAll());
  std::vector<std::future<Result<Connection>>> joined;
  for (const int rank : {1, 2, 3}) {
    joined.push_back(std::async(std::launch::async, [this, rank] { return Join(rank, 4); }));
  }
  for (auto& rank : joined) {
    const Result<Connection> connection = rank.get();
    EXPECT_TRUE(connection.ok()) << connection.status().message();
  }
  EXPECT_TRUE(admitted.get().status.ok());
}

TEST_F(RankAdmission, SaysAtTheDeadlineThatNoDescriptorIsLeft) {
  Connection caller = Connect(address(), Later()).value();
  Listener listener = TakeListener();
  const LinkOptions options = Of(0, 2, kShort);
  const DescriptorLimit none(OpenDescriptors());
  std::vector<FileDescriptor> taken;  // there may be free numbers between the open ones
  for (FileDescriptor one(dup(STDOUT_FILENO)); one.valid(); one = FileDescriptor(dup(STDOUT_FILENO))) {
    taken.push_back(std::move(one));
  }
  // Without `this`: the address sanitizer looks at a fixture by descriptors.
  ExpectFailure(AdmitRanks(options, std::move(listener)).status, StatusCode::kDeadlineExceeded, "Too many open files");
}

}  // namespace
}  // namespace commpool::internal
