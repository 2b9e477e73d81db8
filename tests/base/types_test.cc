// Statuses and results, references to functions that the caller keeps, and holders of descriptors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/base/function_ref.h"

namespace commpool::internal {
namespace {

TEST(Status, UnderAPrefixKeepsItsCode) {
  const Status status = Status(StatusCode::kOutOfMemory, "no room").under("pool gradients");
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(status.message(), "pool gradients: no room");
}

TEST(Status, UnderTwoPrefixesNamesTheOuterOneFirst) {
  EXPECT_EQ(Status(StatusCode::kNotFound, "c").under("b").under("a").message(), "a: b: c");
}

TEST(Status, StaysOkUnderAPrefix) {
  EXPECT_TRUE(Status().under("pool gradients").ok());
  EXPECT_EQ(Status().under("pool gradients").message(), "");
}

TEST(Result, HasTheNamesOfStdExpected) {
  const Result<int> held(7);
  const Result<int> none(Status(StatusCode::kNotFound, "gone"));
  EXPECT_TRUE(held && held.has_value());
  EXPECT_FALSE(none || none.has_value());
  EXPECT_EQ(held.value_or(1), 7);
  EXPECT_EQ(none.value_or(1), 1);
  EXPECT_EQ(none.error().message(), "gone");
  held.or_throw();
  EXPECT_THROW(none.or_throw(), Error);
}

TEST(FunctionRef, CallsItsFunction) {
  int calls = 0;
  const auto count = [&](int by) { return calls += by; };
  const FunctionRef<int(int)> function = count;
  EXPECT_EQ(function(2), 2);
  EXPECT_EQ(function(3), 5);
  EXPECT_EQ(calls, 5);
}

TEST(FunctionRef, IsTwoPointersForAnyFunction) {
  const std::array<std::string, 8> known = {"a", "b"};
  const auto sum = [known] { return known[0] + known[1]; };
  const FunctionRef<std::string()> function = sum;
  EXPECT_EQ(function(), "ab");
  EXPECT_EQ(sizeof(function), 2 * sizeof(void*));
}

TEST(FunctionRef, MayBeEmpty) {
  EXPECT_FALSE(FunctionRef<void()>());
  const auto nothing = [] {};
  EXPECT_TRUE(FunctionRef<void()>(nothing));
}

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
