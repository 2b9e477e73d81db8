// Rank 0's port among strangers. Ranks are threads, or processes where they use up descriptors.
#include "src/registration/rank_admission.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <future>
#include <optional>

namespace commpool::internal {
namespace {

constexpr HashKey kKey = {42, 43};
constexpr std::chrono::milliseconds kLong{60000};
constexpr std::chrono::milliseconds kShort{200};
constexpr size_t kChallengeBytes = 24;
constexpr size_t kHelloBytes = 40;

Deadline Later() { return DeadlineAfter(kLong); }

AdmissionOptions Of(int rank, int ranks, std::chrono::milliseconds deadline = kLong, const HashKey& key = kKey) {
  return {.rank = rank, .ranks = ranks, .lanes = 1, .deadline = deadline, .key = key};
}

class RankAdmission : public ::testing::Test {
 protected:
  RankAdmission() : listener_(Listener::Open().value()), address_(listener_->address()) {}

  std::future<AdmittedRanks> Admit(int ranks, std::chrono::milliseconds deadline = kLong) {
    return std::async(std::launch::async,
                      [this, options = Of(0, ranks, deadline)] { return AdmitRanks(options, std::move(*listener_)); });
  }

  const std::string& address() const { return address_; }

 private:
  std::optional<Listener> listener_;
  std::string address_;
};

TEST_F(RankAdmission, ConnectsEachRankOnEachLane) {
  auto options = Of(0, 3);
  options.lanes = 2;
  Listener listener = Listener::Open().value();
  const std::string here = listener.address();
  auto admitted = std::async(std::launch::async, [&] { return AdmitRanks(options, std::move(listener)); });
  std::vector<std::vector<Connection>> joined;
  for (const int rank : {2, 1}) {
    auto mine = options;
    mine.rank = rank;
    joined.push_back(JoinRankZero(mine, here).value());
  }
  AdmittedRanks ranks = admitted.get();
  ASSERT_TRUE(ranks.status.ok());
  const char sent = 'x';
  char received = 0;
  ASSERT_TRUE(joined[0][1].Send(&sent, 1, Later()).ok());
  EXPECT_TRUE(ranks.lanes[1][1].Receive(&received, 1, Later()).ok());  // rank 2's
}

TEST_F(RankAdmission, HandsOverThoseThatCameWhereOthersAreMissing) {
  auto admitted = Admit(3, kShort);
  Result<std::vector<Connection>> joined = JoinRankZero(Of(1, 3), address());
  ASSERT_TRUE(joined.ok());
  AdmittedRanks ranks = admitted.get();
  EXPECT_EQ(ranks.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(ranks.status.message().find(address() + ": 2 ("), std::string::npos) << ranks.status.message();
  EXPECT_TRUE(ranks.lanes[0][0].valid());
  EXPECT_FALSE(ranks.lanes[0][1].valid());
}

TEST_F(RankAdmission, NamesRankZeroWhereNobodyListens) {
  const std::string left = Listener::Open().value().address();
  const Status status = JoinRankZero(Of(1, 2, kShort), left).status();
  EXPECT_NE(status.message().find("rank 0: "), std::string::npos) << status.message();
}

TEST_F(RankAdmission, NamesAFewOfManyRanksThatAreMissing) {
  const AdmittedRanks ranks = Admit(1000, kShort).get();
  EXPECT_NE(ranks.status.message().find(" 15 16 and 983 others ("), std::string::npos) << ranks.status.message();
}

TEST_F(RankAdmission, IgnoresStrangersEvenSilentOnes) {
  // These are in the port's queue before rank 0 looks, and stay connected.
  Connection silent = Connect(address(), Later()).value();
  Connection hasty = Connect(address(), Later()).value();
  ASSERT_TRUE(hasty.Send("GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n", 43, Later()).ok());
  { const Connection gone = Connect(address(), Later()).value(); }
  auto admitted = Admit(2);
  EXPECT_FALSE(JoinRankZero(Of(1, 2, kShort, {42, 44}), address()).ok());  // of another pool
  EXPECT_FALSE(JoinRankZero(Of(5, 2, kShort), address()).ok());            // there is no such rank
  EXPECT_TRUE(JoinRankZero(Of(1, 2), address()).ok());
  EXPECT_TRUE(admitted.get().status.ok());
}

// What a rank says in answer to this challenge, as whoever listens in on it would hear it.
std::string OverhearHello(const std::string& challenge) {
  Listener listener = Listener::Open().value();
  const std::string here = listener.address();
  auto joined = std::async(std::launch::async, [&] { return JoinRankZero(Of(1, 2), here).status(); });
  Connection connection = listener.Accept(Later()).value();
  EXPECT_TRUE(connection.Send(challenge.data(), challenge.size(), Later()).ok());
  std::string hello(kHelloBytes, '\0');
  EXPECT_TRUE(connection.Receive(hello.data(), hello.size(), Later()).ok());
  const uint64_t made_up = 0;
  EXPECT_TRUE(connection.Send(&made_up, sizeof(made_up), Later()).ok());
  const Status status = joined.get();
  EXPECT_EQ(status.code(), StatusCode::kDisagreement);
  EXPECT_NE(status.message().find("is not rank 0 of this pool"), std::string::npos) << status.message();
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
  EXPECT_TRUE(JoinRankZero(Of(1, 2), address()).ok());
  EXPECT_TRUE(admitted.get().status.ok());
}

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count - 1;  // one was the folder's
}

// Leaves this process so many descriptors more than it has.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{OpenDescriptors() + more, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

  // Leaves none: a number may lie free among those that are open.
  void TakeTheRest() {
    while (true) {
      FileDescriptor taken(dup(STDOUT_FILENO));
      if (!taken.valid()) return;
      taken_.push_back(std::move(taken));
    }
  }

 private:
  rlimit before_{};
  std::vector<FileDescriptor> taken_;
};

// Many strangers that say nothing and stay, then rank 1.
pid_t StartStrangersAndRankOne(const std::string& address, int strangers) {
  const pid_t child = fork();
  if (child != 0) return child;
  std::vector<Connection> silent;
  for (int count = 0; count < strangers; ++count) silent.push_back(Connect(address, Later()).value());
  _exit(JoinRankZero(Of(1, 2), address).ok() ? 0 : 1);
}

TEST_F(RankAdmission, FindsItsRankBehindMoreSilentStrangersThanItWaitsFor) {
  const pid_t child = StartStrangersAndRankOne(address(), 300);
  EXPECT_TRUE(Admit(2).get().status.ok());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(RankAdmission, FindsItsRankBehindMoreSilentStrangersThanItHasDescriptors) {
  const pid_t child = StartStrangersAndRankOne(address(), 300);
  {
    const FewDescriptors few(20);
    const AdmittedRanks ranks = Admit(2).get();
    EXPECT_TRUE(ranks.status.ok()) << ranks.status.message();
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(RankAdmission, SaysAtTheDeadlineThatNoDescriptorIsLeft) {
  Connection caller = Connect(address(), Later()).value();
  FewDescriptors few(0);
  few.TakeTheRest();
  const AdmittedRanks ranks = Admit(2, kShort).get();
  EXPECT_EQ(ranks.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(ranks.status.message().find("Too many open files"), std::string::npos) << ranks.status.message();
}

}  // namespace
}  // namespace commpool::internal
