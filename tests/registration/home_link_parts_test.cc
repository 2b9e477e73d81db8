// What a home link is made of: streams of frames, the set of connections that have data, and the ranks that were lost.
// A pair of sockets stands for a connection.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "src/library/registration/frame_stream.h"
#include "src/library/registration/lost_ranks.h"
#include "src/library/registration/readiness_set.h"
#include "tests/base/expect_status.h"
#include "tests/base/socket_pair.h"

namespace commpool::internal {
namespace {

Frame Said(const std::string& contents) { return {FrameKind::kSaid, StatusCode::kOk, 3, 7, contents}; }

class Streams : public ::testing::Test {
 protected:
  Streams() {
    Pair pair = MakePair();
    near_.emplace(std::move(pair.client));
    far_.emplace(std::move(pair.server));
  }
  void Send(const std::string& contents) {
    near_->Queue(Said(contents));
    near_->SendSome();
  }
  // What arrives is no frame.
  void ExpectRefused(const void* bytes, size_t size) {
    ASSERT_EQ(send(near_->descriptor(), bytes, size, 0), static_cast<ssize_t>(size));
    EXPECT_TRUE(far_->ReceiveSome().empty());
    EXPECT_TRUE(far_->ended().ends_with(" sent what is no frame")) << far_->ended();
  }

  std::optional<FrameStream> near_;
  std::optional<FrameStream> far_;
};

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
  Send("the last");
  near_.reset();
  EXPECT_EQ(ContentsOf(far_->ReceiveSome()), std::vector<std::string>{"the last"});
  EXPECT_TRUE(far_->ended().ends_with(": the peer closed")) << far_->ended();
  far_->Queue(Said("nobody hears"));
  far_->SendSome();
  EXPECT_FALSE(far_->has_unsent());
}

TEST_F(Streams, DeliverWhatWasSentBeforeSendingEnded) {
  Send("the last");
  near_->EndSending();
  EXPECT_EQ(ContentsOf(far_->ReceiveSome()), std::vector<std::string>{"the last"});
  EXPECT_FALSE(far_->ended().empty());
}

TEST_F(Streams, RefuseFramesThatAreLongerThanAnyMessage) {
  constexpr uint64_t kTooLong = (uint64_t{1} << 28) + 1;
  const std::array<uint64_t, 4> header = {0, 0, 0, kTooLong};  // of kSaid
  ExpectRefused(header.data(), sizeof(header));
}

TEST_F(Streams, RefuseBytesThatAreNoFrame) {
  const std::string stranger(64, '\xff');
  ExpectRefused(stranger.data(), stranger.size());
}

constexpr std::chrono::milliseconds kLong{20000};

class Readiness : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends = {};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    here_ = FileDescriptor(ends[0]);
    there_ = FileDescriptor(ends[1]);
  }
  void Add(Interest interest) { ExpectOk(set_.Add(here_.get(), interest, 7)); }
  void Say() const { ASSERT_EQ(write(there_.get(), "x", 1), 1); }
  // The ready ones. A wake-up ends the wait where none is ready.
  std::vector<size_t> Ready() {
    set_.Wake();
    std::vector<size_t> tags = set_.Wait(DeadlineAfter(kLong));
    // Takes the wake-up, where nobody saw it.
    if (!tags.empty()) static_cast<void>(set_.Wait(DeadlineAfter(std::chrono::milliseconds(0))));
    return tags;
  }

  ReadinessSet set_ = ReadinessSet::Make().value();
  FileDescriptor here_;
  FileDescriptor there_;
};

using Tags = std::vector<size_t>;

TEST_F(Readiness, IsToldWhenBytesCome) {
  Add(Interest::kInput);
  EXPECT_EQ(Ready(), Tags{}) << "room to write is no news";
  Say();
  EXPECT_EQ(Ready(), Tags{7});
  EXPECT_EQ(Ready(), Tags{7}) << "until they are read";
}

TEST_F(Readiness, IsToldOfRoomToWriteWhileThatIsAskedFor) {
  Add(Interest::kInputAndOutput);
  EXPECT_EQ(Ready(), Tags{7});
  set_.Change(here_.get(), Interest::kInput, 8);
  EXPECT_EQ(Ready(), Tags{});
  Say();
  EXPECT_EQ(Ready(), Tags{8});
}

TEST_F(Readiness, IsToldOfAnEndOnceAndOfNoBytes) {
  Add(Interest::kEnd);
  Say();
  EXPECT_EQ(Ready(), Tags{});
  there_ = FileDescriptor();
  EXPECT_EQ(Ready(), Tags{7});
  EXPECT_EQ(Ready(), Tags{});
}

TEST_F(Readiness, OfARemovedDescriptorIsNotTold) {
  Add(Interest::kInput);
  Say();
  set_.Remove(here_.get());
  EXPECT_EQ(Ready(), Tags{});
}

TEST_F(Readiness, AWakeUpEndsOneWait) {
  set_.Wake();
  EXPECT_EQ(set_.Wait(DeadlineAfter(kLong)), Tags{});
  const Deadline begun = std::chrono::steady_clock::now();
  const std::chrono::milliseconds moment{20};
  EXPECT_EQ(set_.Wait(DeadlineAfter(moment)), Tags{});
  EXPECT_GE(std::chrono::steady_clock::now() - begun, moment / 2) << "the next wait goes to its deadline";
}

TEST_F(Readiness, OfNoDescriptorIsAnError) {
  EXPECT_EQ(set_.Add(-1, Interest::kInput, 7).code(), StatusCode::kInternal);
}

TEST(LostRanks, AreNoneAtFirst) {
  const LostRanks lost;
  EXPECT_EQ(lost.first(), LostRanks::kNone);
  EXPECT_TRUE(lost.status().ok());
}

TEST(LostRanks, KeepTheFirstAndHowItWasLost) {
  LostRanks lost;
  lost.Note(2, "its connection ended");
  lost.Note(0, "it was silent");
  EXPECT_EQ(lost.first(), 2);
  ExpectFailure(lost.status(), StatusCode::kRemoteFailure, " ms ago: its connection ended");
  EXPECT_EQ(lost.status().message().find("rank 2 was lost "), 0u) << lost.status().message();
}

TEST(LostRanks, CallEachListenerOnceAfterALoss) {
  LostRanks lost;
  std::vector<int> heard;
  lost.AddListener([&](int rank) { heard.push_back(rank); });
  lost.CallListeners();
  EXPECT_TRUE(heard.empty());
  lost.Note(3, "gone");
  lost.CallListeners();
  lost.CallListeners();
  EXPECT_EQ(heard, std::vector<int>{3});
  lost.AddListener([&](int rank) { heard.push_back(10 + rank); });  // called by the next CallListeners
  lost.CallListeners();
  EXPECT_EQ(heard, (std::vector<int>{3, 13}));
}

TEST(LostRanks, CallNoListenerThatWasRemoved) {
  LostRanks lost;
  const LostRanks::ListenerNumber number = lost.AddListener([](int) { FAIL() << "it was removed"; });
  lost.RemoveListener(number);
  lost.Note(1, "gone");
  lost.CallListeners();
}

void RemoveWhileItRuns() {
  LostRanks lost;
  lost.Note(1, "gone");
  std::promise<void> begun;
  std::promise<void> go_on;
  std::atomic<bool> ended{false};
  const LostRanks::ListenerNumber number = lost.AddListener([&](int) {
    begun.set_value();
    go_on.get_future().wait();
    for (int turn = 0; turn < 100; ++turn) std::this_thread::yield();
    ended = true;
  });
  std::thread watcher([&] { lost.CallListeners(); });
  begun.get_future().wait();
  std::thread remover([&] {
    go_on.set_value();
    lost.RemoveListener(number);
    EXPECT_TRUE(ended);
  });
  remover.join();
  watcher.join();
}

// In both orders: the remover waits when the listener ends, or comes afterwards.
TEST(LostRanks, RemoveAListenerWhenItHasEnded) {
  for (int time = 0; time < 100; ++time) RemoveWhileItRuns();
}

}  // namespace
}  // namespace commpool::internal
