// Messages between an owner and an import, where one of them stands still.
#include "src/library/sharing/message_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <utility>

namespace commpool::internal::testing {
namespace {

// What an import let go while its owner stood still was lost, and its blocks never served again.
TEST(MessageChannel, LosesNothingToASideThatReadsLate) {
  constexpr uint64_t kMessages = 2000;
  int ends[2] = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
  MessageChannel sender(PrivateSocket::Adopt(FileDescriptor(ends[0])));
  MessageChannel reader(PrivateSocket::Adopt(FileDescriptor(ends[1])));
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
  int ends[2] = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
  MessageChannel sender(PrivateSocket::Adopt(FileDescriptor(ends[0])));
  { const FileDescriptor ended(ends[1]); }
  EXPECT_FALSE(sender.Send({ShareKind::kLetGo, {1}}).ok());
  EXPECT_EQ(sender.Receive().status().code(), StatusCode::kRemoteFailure);
}

}  // namespace
}  // namespace commpool::internal::testing
