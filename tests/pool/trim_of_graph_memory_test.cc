// A trim reports that graphs keep memory. The process has COMMPOOL_LOG=info: BUILD sets it.
#include "tests/pool/announced_capture.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class TrimOfGraphMemory : public PoolTest {
 protected:
  // A graph that got 4 MiB from the pool.
  void Capture() {
    ASSERT_TRUE(Get(pool_).mode().Reserve(8 * kMiB).ok());
    ASSERT_TRUE(capture_.Begin(runtime(), pool_, stream_).ok());
    Free(Allocate(pool_, 4 * kMiB, stream_));
    ASSERT_TRUE(capture_.End().ok());
  }
  std::string LinesOfTrim() {
    ::testing::internal::CaptureStderr();
    const Status status = Get(pool_).Trim(0).status();
    const std::string lines = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(status.ok()) << status.message();
    return lines;
  }

  const TestStream stream_;
  PoolHandle pool_ = Create(Configured("graphs"));
  AnnouncedCapture capture_;
};

TEST_F(TrimOfGraphMemory, SaysThatGraphsHoldWhatStays) {
  Capture();
  const std::string lines = LinesOfTrim();
  EXPECT_NE(lines.find("graphs that captured with the pool live"), std::string::npos) << lines;
  EXPECT_GT(Reserved(pool_), 0u);
}

TEST_F(TrimOfGraphMemory, GivesAllBackAndSaysNothingOnceTheGraphIsDestroyed) {
  Capture();
  capture_.DestroyGraph();
  EXPECT_EQ(LinesOfTrim().find("graphs that captured"), std::string::npos);
  EXPECT_EQ(Reserved(pool_), 0u);
}

TEST_F(TrimOfGraphMemory, IsNamedWhereItLeavesNoneForOthers) {
  pool_ = CreateWith({.name = "limited", .limit_bytes = 8 * kMiB});
  Capture();
  const Status full = TryAllocate(pool_, 8 * kMiB).status();
  ExpectFailure(full, StatusCode::kOutOfMemory, "for graphs that live");
  EXPECT_EQ(full.message().find("EXPANDABLE"), std::string::npos) << full.message();
}

TEST_F(TrimOfGraphMemory, IsNotNamedWhereAGraphHoldsNone) {
  pool_ = CreateWith({.name = "limited", .limit_bytes = 8 * kMiB});
  ASSERT_TRUE(Get(pool_).mode().Reserve(8 * kMiB).ok());
  ASSERT_TRUE(capture_.Begin(runtime(), pool_, stream_).ok());
  ASSERT_TRUE(capture_.End().ok());
  std::vector<CUdeviceptr> blocks;
  for (int place = 0; place < 4; ++place) blocks.push_back(Allocate(pool_, 2 * kMiB, stream_));
  for (const int place : {0, 2}) Free(blocks[place]);
  const Status full = TryAllocate(pool_, 4 * kMiB).status();
  ExpectFailure(full, StatusCode::kOutOfMemory, "in smaller pieces: mode = EXPANDABLE");
  for (const int place : {1, 3}) Free(blocks[place]);
}

}  // namespace
}  // namespace commpool::internal::testing
