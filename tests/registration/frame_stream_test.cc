#include "src/library/registration/frame_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <optional>
#include <utility>
#include <vector>

#include "tests/base/socket_pair.h"

namespace commpool::internal {
namespace {

class Streams : public ::testing::Test {
 protected:
  Streams() {
    Pair pair = MakePair();
    near_.emplace(std::move(pair.client));
    far_.emplace(std::move(pair.server));
  }

  std::optional<FrameStream> near_;
  std::optional<FrameStream> far_;
};

Frame Said(const std::string& contents) { return {FrameKind::kSaid, StatusCode::kOk, 3, 7, contents}; }

std::vector<std::string> ContentsOf(const std::vector<Frame>& frames) {
  std::vector<std::string> contents;
  for (const Frame& frame : frames) contents.push_back(frame.contents);
  return contents;
}

TEST_F(Streams, CarryFramesWhole) {
  EXPECT_TRUE(far_->ReceiveSome().empty());
  near_->Queue({FrameKind::kDecision, StatusCode::kDisagreement, 5, 9, "one"});
  near_->Queue(Said(""));
  EXPECT_TRUE(near_->has_unsent());
  near_->SendSome();
  EXPECT_FALSE(near_->has_unsent());
  const std::vector<Frame> frames = far_->ReceiveSome();
  ASSERT_EQ(ContentsOf(frames), (std::vector<std::string>{"one", ""}));
  EXPECT_EQ(frames[0].kind, FrameKind::kDecision);
  EXPECT_EQ(frames[0].code, StatusCode::kDisagreement);
  EXPECT_EQ(frames[0].channel, 5u);
  EXPECT_EQ(frames[0].sequence, 9u);
  EXPECT_TRUE(far_->ended().empty());
}

TEST_F(Streams, CarryMoreThanTheSocketTakesAtOnce) {
  const std::string large(1 << 26, 'x');
  near_->Queue(Said(large));
  std::vector<Frame> received;
  near_->SendSome();
  EXPECT_TRUE(near_->has_unsent());
  while (received.empty()) {
    received = far_->ReceiveSome();
    near_->SendSome();
  }
  EXPECT_EQ(ContentsOf(received), std::vector<std::string>{large});
}

TEST_F(Streams, EndWithThePeerAfterItsLastFrame) {
  near_->Queue(Said("the last"));
  near_->SendSome();
  near_.reset();
  EXPECT_EQ(ContentsOf(far_->ReceiveSome()), std::vector<std::string>{"the last"});
  EXPECT_TRUE(far_->ended().ends_with(": the peer closed")) << far_->ended();
  far_->Queue(Said("nobody hears"));
  far_->SendSome();
  EXPECT_FALSE(far_->has_unsent());
}

TEST_F(Streams, DeliverWhatWasSentBeforeSendingEnded) {
  near_->Queue(Said("the last"));
  near_->SendSome();
  near_->EndSending();
  EXPECT_EQ(ContentsOf(far_->ReceiveSome()), std::vector<std::string>{"the last"});
  EXPECT_FALSE(far_->ended().empty());
}

TEST_F(Streams, RefuseFramesThatAreLongerThanAnyMessage) {
  constexpr uint64_t kTooLong = (uint64_t{1} << 28) + 1;
  const std::array<uint64_t, 4> header = {0, 0, 0, kTooLong};  // of kSaid
  ASSERT_EQ(send(near_->descriptor(), header.data(), sizeof(header), 0), ssize_t{sizeof(header)});
  EXPECT_TRUE(far_->ReceiveSome().empty());
  EXPECT_TRUE(far_->ended().ends_with(" sent what is no frame")) << far_->ended();
}

TEST_F(Streams, RefuseBytesThatAreNoFrame) {
  const std::string stranger(64, '\xff');
  ASSERT_EQ(send(near_->descriptor(), stranger.data(), stranger.size(), 0), 64);
  EXPECT_TRUE(far_->ReceiveSome().empty());
  EXPECT_TRUE(far_->ended().ends_with(" sent what is no frame")) << far_->ended();
}

}  // namespace
}  // namespace commpool::internal
