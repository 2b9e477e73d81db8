#include "src/library/base/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace commpool::internal {
namespace {

int OpenNull() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

bool IsOpen(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

TEST(FileDescriptor, IsInvalidUntilItHoldsOne) { EXPECT_FALSE(FileDescriptor().valid()); }

TEST(FileDescriptor, ClosesItsDescriptor) {
  const int descriptor = OpenNull();
  { FileDescriptor holder(descriptor); }
  EXPECT_FALSE(IsOpen(descriptor));
}

TEST(FileDescriptor, MovesWithoutClosing) {
  FileDescriptor first(OpenNull());
  const int descriptor = first.get();
  FileDescriptor second(std::move(first));
  EXPECT_EQ(second.get(), descriptor);
  EXPECT_TRUE(IsOpen(descriptor));
}

TEST(FileDescriptor, AssignmentTakesTheOtherDescriptor) {
  FileDescriptor source(OpenNull());
  const int descriptor = source.get();
  FileDescriptor target;
  target = std::move(source);
  EXPECT_EQ(target.get(), descriptor);
  EXPECT_TRUE(IsOpen(descriptor));
}

TEST(FileDescriptor, ReleaseHandsTheDescriptorOver) {
  int descriptor = -1;
  {
    FileDescriptor holder(OpenNull());
    descriptor = holder.Release();
    EXPECT_FALSE(holder.valid());
  }
  EXPECT_TRUE(IsOpen(descriptor));
  close(descriptor);
}

}  // namespace
}  // namespace commpool::internal
