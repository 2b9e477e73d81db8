#include "src/library/registration/lost_ranks.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

namespace commpool::internal {
namespace {

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
  EXPECT_EQ(lost.status().code(), StatusCode::kRemoteFailure);
  const std::string text = lost.status().message();
  EXPECT_EQ(text.find("rank 2 was lost "), 0u) << text;
  EXPECT_NE(text.find(" ms ago: its connection ended"), std::string::npos) << text;
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
