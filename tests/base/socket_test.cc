#include "src/library/base/socket.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/base/socket_pair.h"

namespace commpool::internal {
namespace {

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
  EXPECT_TRUE(NextCaller(listener).valid());
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

}  // namespace
}  // namespace commpool::internal
