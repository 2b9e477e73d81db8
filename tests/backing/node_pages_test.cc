// Pages of the host and the node that they lie on. They ask the kernel, no driver.
#include "src/library/backing/node_pages.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "src/library/base/bytes.h"

namespace commpool::internal {
namespace {

constexpr uint64_t kBytes = 2 * kMiB + NodePages::kPageBytes;

// The node of a page that was touched; nothing where the kernel does not answer.
std::optional<int> NodeOf(void* page) {
  int node = -1;
  const long result = syscall(SYS_move_pages, 0, 1ul, &page, nullptr, &node, 0);
  return result == 0 && node >= 0 ? std::make_optional(node) : std::nullopt;
}

TEST(NodePages, AreAsManyAsAskedForAndAligned) {
  for (const uint64_t alignment : {NodePages::kPageBytes, 2 * kMiB, 64 * kMiB}) {
    const NodePages pages = NodePages::Make(kBytes, alignment).value();
    EXPECT_EQ(reinterpret_cast<uint64_t>(pages.address()) % alignment, 0u);
    EXPECT_EQ(pages.bytes(), kBytes);
    std::memset(pages.address(), 1, kBytes);
  }
}

TEST(NodePages, RunOutInWords) {
  for (const uint64_t bytes : {uint64_t{1} << 60, UINT64_MAX - NodePages::kPageBytes + 1}) {
    const Status status = NodePages::Make(bytes, 2 * kMiB).status();
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
    EXPECT_NE(status.message().find(FormatBytes(bytes)), std::string::npos) << status.message();
  }
}

TEST(NodePages, LieOnTheNodeThatTheyAreBoundTo) {
  NodePages pages = NodePages::Make(kBytes, 2 * kMiB).value();
  const Status bound = pages.BindTo(0);
  if (bound.code() == StatusCode::kNotSupported) GTEST_SKIP() << bound.message();
  ASSERT_TRUE(bound.ok()) << bound.message();
  std::memset(pages.address(), 1, kBytes);
  for (uint64_t offset = 0; offset < kBytes; offset += NodePages::kPageBytes) {
    const std::optional<int> node = NodeOf(static_cast<char*>(pages.address()) + offset);
    if (!node) GTEST_SKIP() << "the kernel does not tell the node of a page";
    ASSERT_EQ(*node, 0) << offset;
  }
}

TEST(NodePages, AreNotBoundToANodeThatIsNotThere) {
  NodePages pages = NodePages::Make(kBytes, NodePages::kPageBytes).value();
  for (const int node : {-1, 1023, 1024, 1 << 20}) {
    const Status status = pages.BindTo(node);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("no host NUMA node " + std::to_string(node)), std::string::npos);
  }
}

}  // namespace
}  // namespace commpool::internal
