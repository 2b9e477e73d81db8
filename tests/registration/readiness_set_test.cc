// Which of several connections have data. A pair of sockets stands for a connection.
#include "src/library/registration/readiness_set.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <vector>

namespace commpool::internal {
namespace {

constexpr std::chrono::milliseconds kLong{20000};

class Readiness : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends = {};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    here_ = FileDescriptor(ends[0]);
    there_ = FileDescriptor(ends[1]);
  }
  void Say() const { ASSERT_EQ(write(there_.get(), "x", 1), 1); }
  // The ready ones. A wake-up ends the wait where none is ready.
  std::vector<size_t> Ready() {
    set_.Wake();
    std::vector<size_t> tags = set_.Wait(DeadlineAfter(kLong));
    if (tags.empty()) return tags;
    static_cast<void>(
        set_.Wait(DeadlineAfter(std::chrono::milliseconds(0))));  // takes the wake-up, where nobody saw it
    return tags;
  }

  ReadinessSet set_ = ReadinessSet::Make().value();
  FileDescriptor here_;
  FileDescriptor there_;
};

using Tags = std::vector<size_t>;

TEST_F(Readiness, IsToldWhenBytesCome) {
  ASSERT_TRUE(set_.Add(here_.get(), Interest::kInput, 7).ok());
  EXPECT_EQ(Ready(), Tags{}) << "room to write is no news";
  Say();
  EXPECT_EQ(Ready(), Tags{7});
  EXPECT_EQ(Ready(), Tags{7}) << "until they are read";
}

TEST_F(Readiness, IsToldOfRoomToWriteWhileThatIsAskedFor) {
  ASSERT_TRUE(set_.Add(here_.get(), Interest::kInputAndOutput, 7).ok());
  EXPECT_EQ(Ready(), Tags{7});
  set_.Change(here_.get(), Interest::kInput, 8);
  EXPECT_EQ(Ready(), Tags{});
  Say();
  EXPECT_EQ(Ready(), Tags{8});
}

TEST_F(Readiness, IsToldOfAnEndOnceAndOfNoBytes) {
  ASSERT_TRUE(set_.Add(here_.get(), Interest::kEnd, 7).ok());
  Say();
  EXPECT_EQ(Ready(), Tags{});
  there_ = FileDescriptor();
  EXPECT_EQ(Ready(), Tags{7});
  EXPECT_EQ(Ready(), Tags{});
}

TEST_F(Readiness, OfARemovedDescriptorIsNotTold) {
  ASSERT_TRUE(set_.Add(here_.get(), Interest::kInput, 7).ok());
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

}  // namespace
}  // namespace commpool::internal
