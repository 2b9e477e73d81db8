#include "src/library/base/socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace commpool::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Deadline Soon() { return DeadlineAfter(milliseconds(20)); }
Deadline Later() { return DeadlineAfter(seconds(60)); }

struct Pair {
  Connection client;
  Connection server;
};

Pair MakePair() {
  Listener listener = Listener::Open().value();
  Pair pair;
  pair.client = Connect(listener.address(), Later()).value();
  pair.server = listener.Accept(Later()).value();
  return pair;
}

// An address at which nothing listens.
std::string DeadAddress() { return Listener::Open().value().address(); }

TEST(Listener, AdvertisesAHostAndAPort) {
  const Listener listener = Listener::Open().value();
  const size_t colon = listener.address().rfind(':');
  ASSERT_NE(colon, std::string::npos);
  EXPECT_GT(std::stoi(listener.address().substr(colon + 1)), 0);
  EXPECT_NE(listener.address().substr(0, colon), "0.0.0.0");
}

TEST(Listener, IsReachedAtTheAddressThatItAdvertises) {
  Listener listener = Listener::Open().value();
  Connection client = Connect(listener.address(), Later()).value();
  EXPECT_TRUE(listener.Accept(Later()).ok());
}

TEST(Listener, IsReachedAtNoOtherAddressOfItsHost) {
  const Listener listener = Listener::OpenOn("127.0.0.2").value();
  const std::string elsewhere = "127.0.0.1" + listener.address().substr(listener.address().rfind(':'));
  EXPECT_FALSE(Connect(elsewhere, Soon()).ok());
}

TEST(Listener, SaysWhyOnlyItsHostReachesIt) {
  EXPECT_NE(Listener::OpenOn("=no-such-interface").value().why_local(), "");
}

TEST(Listener, NamesTheAddressThatIsNotOfThisHost) {
  const Status status = Listener::OpenOn("192.0.2.1").status();
  EXPECT_NE(status.message().find("192.0.2.1: "), std::string::npos) << status.message();
}

TEST(Listener, GivesUpAtTheDeadline) {
  Listener listener = Listener::Open().value();
  const Result<Connection> accepted = listener.Accept(Soon());
  ASSERT_FALSE(accepted.ok());
  EXPECT_EQ(accepted.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(accepted.status().message().find(listener.address()), std::string::npos);
}

TEST(Listener, ShutdownEndsAnAcceptInAnotherThread) {
  Listener listener = Listener::Open().value();
  std::thread waiting([&] { EXPECT_FALSE(listener.Accept(Later()).ok()); });
  listener.Shutdown();
  waiting.join();
}

TEST(Connect, RefusesTextsThatAreNoAddresses) {
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:99999", "host:80", ":80"}) {
    const Result<Connection> connection = Connect(address, Later());
    ASSERT_FALSE(connection.ok()) << address;
    EXPECT_EQ(connection.status().code(), StatusCode::kInvalidArgument) << address;
  }
}

TEST(Connect, TriesAgainUntilTheDeadlineWhileThePortRefuses) {
  const std::string address = DeadAddress();
  const Result<Connection> connection = Connect(address, Soon());
  ASSERT_FALSE(connection.ok());
  EXPECT_EQ(connection.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(connection.status().message().find(address), std::string::npos);
}

TEST(Connection, CarriesBytesBothWays) {
  Pair pair = MakePair();
  int sent = 42;
  int received = 0;
  ASSERT_TRUE(pair.client.Send(&sent, sizeof sent, Later()).ok());
  ASSERT_TRUE(pair.server.Receive(&received, sizeof received, Later()).ok());
  EXPECT_EQ(received, 42);
  sent = 43;
  ASSERT_TRUE(pair.server.Send(&sent, sizeof sent, Later()).ok());
  ASSERT_TRUE(pair.client.Receive(&received, sizeof received, Later()).ok());
  EXPECT_EQ(received, 43);
}

TEST(Connection, SendsNothingAtOnce) {
  Pair pair = MakePair();
  EXPECT_TRUE(pair.client.Send(nullptr, 0, Soon()).ok());
  EXPECT_TRUE(pair.client.Receive(nullptr, 0, Soon()).ok());
}

TEST(Connection, NamesThePeerThatDoesNotAnswer) {
  Pair pair = MakePair();
  char byte = 0;
  const Status status = pair.client.Receive(&byte, 1, Soon());
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find(pair.client.peer()), std::string::npos);
}

TEST(Connection, SendEndsAtTheDeadlineWhereThePeerDoesNotRead) {
  Pair pair = MakePair();
  const std::vector<char> data(64 << 20);
  EXPECT_EQ(pair.client.Send(data.data(), data.size(), Soon()).code(), StatusCode::kDeadlineExceeded);
}

TEST(Connection, ReportsAClosedPeerWithoutASignal) {
  Pair pair = MakePair();
  pair.server = Connection();
  char byte = 0;
  EXPECT_EQ(pair.client.Receive(&byte, 1, Later()).code(), StatusCode::kRemoteFailure);
  // The peer's system may still accept the first bytes, then refuses the rest.
  const std::vector<char> data(64 << 20);
  EXPECT_EQ(pair.client.Send(data.data(), data.size(), Later()).code(), StatusCode::kRemoteFailure);
}

TEST(Connection, ShutdownEndsAWaitInAnotherThread) {
  Pair pair = MakePair();
  std::thread waiting([&] {
    char byte = 0;
    EXPECT_FALSE(pair.client.Receive(&byte, 1, Later()).ok());
  });
  pair.client.Shutdown();
  waiting.join();
}

TEST(Exchange, LetsTwoPeersSendMoreThanTheSocketsHold) {
  Pair pair = MakePair();
  constexpr size_t kBytes = 16 << 20;
  std::vector<char> left(kBytes, 'l');
  std::vector<char> right(kBytes, 'r');
  std::vector<char> left_got(kBytes);
  std::vector<char> right_got(kBytes);
  std::thread other([&] {
    EXPECT_TRUE(
        Connection::Exchange(pair.server, right.data(), kBytes, pair.server, right_got.data(), kBytes, Later()).ok());
  });
  EXPECT_TRUE(
      Connection::Exchange(pair.client, left.data(), kBytes, pair.client, left_got.data(), kBytes, Later()).ok());
  other.join();
  EXPECT_EQ(left_got, right);
  EXPECT_EQ(right_got, left);
}

TEST(Exchange, WorksAroundARing) {
  constexpr size_t kRanks = 3;
  constexpr size_t kCount = 1 << 20;
  std::array<Pair, kRanks> links;  // links[i].client belongs to rank i, links[i].server to rank i + 1
  for (Pair& link : links) link = MakePair();
  std::array<std::vector<int>, kRanks> got;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::vector<int> sent(kCount, static_cast<int>(rank));
      got[rank].resize(kCount);
      Connection& next = links[rank].client;
      Connection& previous = links[(rank + kRanks - 1) % kRanks].server;
      EXPECT_TRUE(Connection::Exchange(next, sent.data(), kCount * sizeof(int), previous, got[rank].data(),
                                       kCount * sizeof(int), Later())
                      .ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(got[rank], std::vector<int>(kCount, static_cast<int>((rank + kRanks - 1) % kRanks)));
  }
}

TEST(Exchange, GivesUpAtTheDeadline) {
  Pair pair = MakePair();
  char byte = 0;
  EXPECT_EQ(Connection::Exchange(pair.client, &byte, 1, pair.client, &byte, 1, Soon()).code(),
            StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace commpool::internal
