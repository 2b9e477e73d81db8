// Messages between an owner and an import, where one of them stands still.
#include "src/library/sharing/message_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <utility>

namespace commpool::internal::testing {
namespace {

struct Ends {
  PrivateSocket near;
  PrivateSocket far;
};

Ends Connected() {
  const PrivateSocket listener = PrivateSocket::Open(PrivateSocket::Kind::kLocalMessages);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), name, sizeof(sa_family_t)), 0);  // the system chooses a name
  socklen_t bytes = sizeof(address);
  EXPECT_EQ(getsockname(listener.get(), name, &bytes), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  Ends ends{PrivateSocket::Open(PrivateSocket::Kind::kLocalMessages), {}};
  EXPECT_EQ(connect(ends.near.get(), name, bytes), 0);
  ends.far = PrivateSocket::Accept(listener.get());
  return ends;
}

// What an import let go while its owner stood still was lost, and its blocks never served again.
TEST(MessageChannel, LosesNothingToASideThatReadsLate) {
  constexpr uint64_t kMessages = 2000;
  Ends ends = Connected();
  MessageChannel sender(std::move(ends.near));
  MessageChannel reader(std::move(ends.far));
  for (uint64_t number = 0; number < kMessages; ++number) {
    ASSERT_TRUE(sender.Send({ShareKind::kLetGo, {number}}).ok()) << number;
  }
  EXPECT_TRUE(sender.is_overfull());
  for (uint64_t number = 0; number < kMessages; ++number) {
    ASSERT_TRUE(sender.SendQueued().ok());
    const std::optional<Received> received = reader.Receive().value();
    ASSERT_TRUE(received.has_value()) << number;
    EXPECT_EQ(received->message.numbers[0], number);
  }
  EXPECT_FALSE(sender.has_queued());
}

TEST(MessageChannel, TellsThatTheOtherSideHasEnded) {
  Ends ends = Connected();
  MessageChannel sender(std::move(ends.near));
  ends.far = PrivateSocket();
  EXPECT_FALSE(sender.Send({ShareKind::kLetGo, {1}}).ok());
  EXPECT_EQ(sender.Receive().status().code(), StatusCode::kRemoteFailure);
}

}  // namespace
}  // namespace commpool::internal::testing
