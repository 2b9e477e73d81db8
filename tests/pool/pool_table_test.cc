// The process table: handles are never reused, and an address finds the pool that owns its segment.
#include "src/pool/pool_table.h"

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class PoolTableFacts : public PoolTest {
 protected:
  std::shared_ptr<Pool> Make(const char* name) {
    const PoolHandle handle = Create(Configured(name));
    return runtime().pools().Remove(handle).value();
  }

  const std::shared_ptr<Pool> first_ = Make("first");
  const std::shared_ptr<Pool> second_ = Make("second");
  PoolTable table_;
};

TEST_F(PoolTableFacts, HandlesFindTheirPools) {
  const PoolHandle first = table_.Add(first_);
  const PoolHandle second = table_.Add(second_);
  EXPECT_EQ(table_.Find(first).value(), first_);
  EXPECT_EQ(table_.Find(second).value(), second_);
}

TEST_F(PoolTableFacts, HandlesAreNeverZeroAndNeverReused) {
  const PoolHandle before = table_.Add(first_);
  EXPECT_NE(before, 0u);
  ASSERT_EQ(table_.Remove(before).value(), first_);
  const PoolHandle after = table_.Add(first_);
  EXPECT_NE(after, before);
  Status stale = table_.Find(before).status();
  EXPECT_EQ(stale.code(), StatusCode::kNotFound);
  EXPECT_NE(stale.message().find("pool " + std::to_string(before)), std::string::npos) << stale.message();
  EXPECT_EQ(table_.Remove(before).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(table_.Find(0).status().code(), StatusCode::kNotFound);
}

TEST_F(PoolTableFacts, AnAddressFindsTheOwnerOfItsRange) {
  table_.AddRange(0x1000, 0x1000, first_);
  table_.AddRange(0x3000, 0x1000, second_);
  EXPECT_EQ(table_.Owner(0x1000).value(), first_);
  EXPECT_EQ(table_.Owner(0x1fff).value(), first_);
  EXPECT_EQ(table_.Owner(0x3800).value(), second_);
  for (const CUdeviceptr foreign : {0x0, 0xfff, 0x2000, 0x2fff, 0x4000}) {
    EXPECT_EQ(table_.Owner(foreign).status().code(), StatusCode::kNotFound) << foreign;
  }
  EXPECT_NE(table_.Owner(0x2000).status().message().find("0x2000"), std::string::npos);
}

TEST_F(PoolTableFacts, ARemovedRangeIsForeign) {
  table_.AddRange(0x1000, 0x1000, first_);
  table_.RemoveRange(0x1000);
  table_.RemoveRange(0x1000);
  EXPECT_EQ(table_.Owner(0x1000).status().code(), StatusCode::kNotFound);
}

TEST_F(PoolTableFacts, ListsEachPoolOnceThoseWithAHandleFirst) {
  table_.AddRange(0x1000, 0x1000, second_);
  table_.AddRange(0x3000, 0x1000, second_);
  table_.AddRange(0x5000, 0x1000, first_);
  table_.Add(first_);
  EXPECT_EQ(table_.All(), (std::vector<std::shared_ptr<Pool>>{first_, second_}));
}

TEST_F(PoolTableFacts, ARangeKeepsItsPoolAlive) {
  std::shared_ptr<Pool> pool = Make("third");
  const std::weak_ptr<Pool> observer = pool;
  table_.AddRange(0x1000, 0x1000, std::move(pool));
  EXPECT_FALSE(observer.expired());
  table_.RemoveRange(0x1000);
  EXPECT_TRUE(observer.expired());
}

}  // namespace
}  // namespace commpool::internal::testing
