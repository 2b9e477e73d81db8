#include "src/report/pool_members.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace commpool::internal::report {
namespace {

TEST(PoolMembersTest, AreThoseOfOnePool) {
  PoolMembers members;
  members.Add(1, 0x400);
  members.Add(1, 0x100);
  members.Add(1, 0x200);
  members.Add(2, 0x300);
  members.Remove(1, 0x200);
  members.Remove(3, 0x200);
  EXPECT_EQ(members.Take(1), std::vector<uint64_t>({0x100, 0x400}));
  EXPECT_TRUE(members.Take(1).empty());
  EXPECT_EQ(members.Take(2), std::vector<uint64_t>({0x300}));
}

}  // namespace
}  // namespace commpool::internal::report
