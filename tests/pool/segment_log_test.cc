#include <gtest/gtest.h>

#include <string>

#include "src/pool/shared/memory_observer.h"

namespace commpool::internal {
namespace {

// The process has COMMPOOL_LOG=debug: BUILD sets it.
TEST(SegmentLog, NamesPoolSizeAndAddressOfWhatComesAndGoes) {
  const MemoryObserver observer;
  ::testing::internal::CaptureStderr();
  observer.SegmentAdded({0x7f0000200000, 2 << 20}, "weights");
  observer.SegmentRemoved({0x7f0000200000, 2 << 20}, "weights");
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find("pool weights makes a segment of 2 MiB at 0x7f0000200000\n"), std::string::npos) << lines;
  EXPECT_NE(lines.find("pool weights gives back a segment of 2 MiB at 0x7f0000200000\n"), std::string::npos) << lines;
}

}  // namespace
}  // namespace commpool::internal
