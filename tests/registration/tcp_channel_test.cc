// The TCP channel between threads that stand for ranks.
#include "src/registration/tcp_channel.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <thread>

#include "tests/registration/joined.h"

namespace commpool::internal {
namespace {

using Channel = std::unique_ptr<AgreementChannel>;

constexpr HashKey kKey = {42, 43};
constexpr std::chrono::milliseconds kLong{20000};
constexpr std::chrono::milliseconds kShort{200};

class TcpChannels : public ::testing::Test {
 protected:
  TcpChannels() : listener_(Listener::Open().value()), address_(listener_->address()) {}

  Result<Channel> Open(int rank, int ranks, std::chrono::milliseconds deadline, const HashKey& key = kKey) {
    const TcpChannelOptions options{.rank = rank, .ranks = ranks, .deadline = deadline, .key = key};
    if (rank != 0) return ConnectTcpChannel(options, address_);
    return AcceptTcpChannel(options, std::move(*listener_));
  }

  // Each rank on its own thread; all have joined at the end.
  static void ForEachRank(int ranks, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<Channel> OpenAll(int ranks, std::chrono::milliseconds deadline = kLong) {
    std::vector<Channel> channels(static_cast<size_t>(ranks));
    ForEachRank(ranks, [&](int rank) { channels[static_cast<size_t>(rank)] = Open(rank, ranks, deadline).value(); });
    return channels;
  }

  const std::string& address() const { return address_; }

 private:
  std::optional<Listener> listener_;
  std::string address_;
};

void ExpectMessage(const Status& status, const std::string& fragment) {
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(fragment), std::string::npos) << status.message();
}

TEST_F(TcpChannels, GiveEveryRankTheDecisionAndItsOwnPart) {
  const std::vector<Channel> channels = OpenAll(4);
  const std::string large(3 << 20, 'x');  // more than sockets buffer
  ForEachRank(4, [&](int rank) {
    AgreementChannel& channel = *channels[static_cast<size_t>(rank)];
    EXPECT_EQ(channel.rank(), rank);
    EXPECT_EQ(channel.ranks(), 4);
    for (int round = 0; round < 20; ++round) {
      const std::string mine = rank == 3 && round == 7 ? large : std::string(static_cast<size_t>(rank), 'a');
      Result<std::string> verdict = JoinOver(channel, mine, "reserve");
      ASSERT_TRUE(verdict.ok()) << verdict.status().message();
      EXPECT_EQ(*verdict, "[][a][aa][" + (round == 7 ? large : "aaa") + "] " + std::to_string(rank));
    }
  });
}

TEST_F(TcpChannels, NameEveryRankThatStaysAwayAndTheStep) {
  const std::vector<Channel> channels = OpenAll(4, kShort);
  ForEachRank(2, [&](int rank) {  // ranks 2 and 3 do not come
    const Status status = JoinOver(*channels[static_cast<size_t>(rank)], "mine", "trim").status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    ExpectMessage(status, "trim: not all of 4 ranks came within ");
    ExpectMessage(status, "rank 2: ");
    ExpectMessage(status, "rank 3: ");
    EXPECT_EQ(status.message().find("rank 1: "), std::string::npos) << status.message();
  });
}

TEST_F(TcpChannels, NameARankThatHasGone) {
  std::vector<Channel> channels = OpenAll(3);
  channels[2].reset();
  ForEachRank(2, [&](int rank) {
    const Status status = JoinOver(*channels[static_cast<size_t>(rank)], "mine", "reserve").status();
    EXPECT_EQ(status.code(), StatusCode::kRemoteFailure);
    ExpectMessage(status, "rank 2: ");
  });
}

TEST_F(TcpChannels, SayThatRankZeroHasGone) {
  std::vector<Channel> channels = OpenAll(2);
  channels[0].reset();
  const Status status = JoinOver(*channels[1], "mine", "reserve").status();
  EXPECT_EQ(status.code(), StatusCode::kRemoteFailure);
  ExpectMessage(status, "rank 0: ");
}

TEST_F(TcpChannels, StayBrokenAfterAFailure) {
  std::vector<Channel> channels = OpenAll(2);
  channels[1].reset();
  ExpectMessage(JoinOver(*channels[0], "mine", "reserve").status(), "reserve: ");
  ExpectMessage(JoinOver(*channels[0], "mine", "close").status(), "close: the channel failed before: reserve");
}

TEST_F(TcpChannels, NameTheRanksThatNeverConnect) {
  const Status status = Open(0, 3, kShort).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  ExpectMessage(status, "these ranks did not connect to " + address() + ": 1 2");
}

TEST_F(TcpChannels, RefuseAnAddressThatIsNone) {
  const TcpChannelOptions options{.rank = 1, .ranks = 2, .deadline = kShort};
  EXPECT_EQ(ConnectTcpChannel(options, "nowhere").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace commpool::internal
