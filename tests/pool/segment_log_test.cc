#include <gtest/gtest.h>

#include <string>

#include "src/library/pool/shared/memory_observer.h"

namespace commpool::internal {
namespace {

// The process has COMMPOOL_LOG=debug: BUILD sets it.
TEST(SegmentLog, NamesPoolSizeAndAddressOfWhatComesAndGoes) {
  ::testing::internal::CaptureStderr();
  LogSegment({0x7f0000200000, 2 << 20}, "weights", "makes");
  LogSegment({0x7f0000200000, 2 << 20}, "weights", "gives back");
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find("pool weights makes a segment of 2 MiB at 0x7f0000200000\n"), std::string::npos) << lines;
  EXPECT_NE(lines.find("pool weights gives back a segment of 2 MiB at 0x7f0000200000\n"), std::string::npos) << lines;
}

}  // namespace
}  // namespace commpool::internal
