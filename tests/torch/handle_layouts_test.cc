// What PyTorch reads in a handle; tests/python/torch/shared_pools_test.py has the stock torch open some.
#include "src/torch/handle_layouts.h"

#include <gtest/gtest.h>

#include <climits>
#include <string>

namespace commpool::torch_adapter {
namespace {

// Of these numbers each has one byte that is not 0.
constexpr SharedSegment kSegment{.process = 0x11, .bytes = 0x22, .descriptor = 0x33};

std::string Number(char least, int bytes) { return std::string(1, least) + std::string(bytes - 1, '\0'); }

std::string HandleOfVersion(char version) {
  const HandleLayout* const layout = LayoutOf(version);
  return layout == nullptr ? "" : HandleOf(*layout, kSegment);
}

TEST(HandleLayouts, BeforeTorch213HaveTheDescriptorsBehindTheirNumber) {
  const std::string payload = Number(0x11, 8) + Number(0x22, 8) + Number(1, 8) + Number(0x33, 4);
  EXPECT_EQ(HandleOfVersion(1), "\1e" + payload);
  EXPECT_EQ(HandleOfVersion(2), "\2e" + payload);
}

TEST(HandleLayouts, SinceTorch213HaveTheTypeOfTheDescriptorsToo) {
  const std::string payload = Number(0x11, 8) + Number(0x22, 8) + Number(1, 8) + Number(1, 8) + Number(0x33, 4);
  EXPECT_EQ(HandleOfVersion(3), "\3e" + payload);
}

TEST(HandleLayouts, OfEveryOtherVersionAreRefused) {
  for (int version = CHAR_MIN; version <= CHAR_MAX; ++version) {
    const bool known = version >= 1 && version <= 3;
    EXPECT_EQ(HandleOfVersion(static_cast<char>(version)).empty(), !known) << version;
  }
}

}  // namespace
}  // namespace commpool::torch_adapter
