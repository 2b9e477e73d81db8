#include "src/registration/message_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <optional>

namespace commpool::internal {
namespace {

class Streams : public ::testing::Test {
 protected:
  Streams() {
    std::array<int, 2> ends = {};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    near_.emplace(Connection(FileDescriptor(ends[0])));
    far_.emplace(Connection(FileDescriptor(ends[1])));
  }

  std::optional<MessageStream> near_;
  std::optional<MessageStream> far_;
};

TEST_F(Streams, CarryMessagesWhole) {
  EXPECT_TRUE(far_->ReceiveSome().empty());
  near_->Queue("one");
  near_->Queue("");
  EXPECT_TRUE(near_->has_unsent());
  near_->SendSome();
  EXPECT_FALSE(near_->has_unsent());
  EXPECT_EQ(far_->ReceiveSome(), (std::vector<std::string>{"one", ""}));
}

TEST_F(Streams, CarryMoreThanTheSocketTakesAtOnce) {
  const std::string large(1 << 20, 'x');
  near_->Queue(large);
  std::vector<std::string> received;
  near_->SendSome();
  EXPECT_TRUE(near_->has_unsent());
  while (received.empty()) {
    received = far_->ReceiveSome();
    near_->SendSome();
  }
  EXPECT_EQ(received, std::vector<std::string>{large});
}

TEST_F(Streams, EndWithThePeerAfterItsLastMessage) {
  near_->Queue("the last");
  near_->SendSome();
  near_.reset();
  EXPECT_EQ(far_->ReceiveSome(), std::vector<std::string>{"the last"});
  EXPECT_FALSE(far_->open());
  far_->Queue("nobody hears");
  far_->SendSome();
  EXPECT_FALSE(far_->has_unsent());
}

TEST_F(Streams, NoticeAtSendingThatThePeerHasGone) {
  far_.reset();
  near_->Queue("nobody hears");
  near_->SendSome();
  EXPECT_FALSE(near_->open());
}

TEST_F(Streams, RefuseWhatIsNoMessage) {
  const std::string stranger(16, '\xff');
  ASSERT_EQ(send(near_->descriptor(), stranger.data(), stranger.size(), 0), 16);
  EXPECT_TRUE(far_->ReceiveSome().empty());
  EXPECT_FALSE(far_->open());
}

}  // namespace
}  // namespace commpool::internal
