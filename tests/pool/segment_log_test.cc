#include <gtest/gtest.h>

#include <string>

#include "src/pool/shared/memory_observer.h"

namespace commpool::internal {
namespace {

// The process has COMMPOOL_LOG=debug: BUILD sets it.
TEST(SegmentLog, NamesPoolSizeAndAddressOfWhatComesAndGoes) {
  const std::unique_ptr<MemoryObserver> log = MakeSegmentLog();
  ASSERT_NE(log, nullptr);
  ::testing::internal::CaptureStderr();
  log->SegmentAdded({0x7f0000200000, 2 << 20}, "weights");
  log->SegmentRemoved({0x7f0000200000, 2 << 20}, "weights");
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find("pool weights makes a segment of 2 MiB at 0x7f0000200000\n"), std::string::npos) << lines;
  EXPECT_NE(lines.find("pool weights gives back a segment of 2 MiB at 0x7f0000200000\n"), std::string::npos) << lines;
}

}  // namespace
}  // namespace commpool::internal
