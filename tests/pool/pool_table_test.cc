// The tables of pools: handles are never reused, and an address finds the owner of its segment. Ranges touch and never
// overlap.
#include <memory>
#include <vector>

#include "src/library/pool/shared/tables.h"
#include "tests/pool/nobodys_owner.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class Tables : public PoolTest {
 protected:
  std::shared_ptr<Pool> Make(const char* name) { return runtime().pools().Remove(Create(Configured(name))).value(); }
  PoolHandle Add(const std::shared_ptr<Pool>& pool) {
    const PoolHandle handle = pools_.NextHandle();
    pools_.Add(handle, pool);
    return handle;
  }

  void Enter(CUdeviceptr address, std::shared_ptr<BlockOwner> owner) {
    Result<AddressTable::Entry> entry = addresses_.Add(address, 0x1000, std::move(owner));
    ASSERT_TRUE(entry.ok()) << entry.status().message();
    entry->Keep();
  }

  std::shared_ptr<Pool> first_ = Make("first");
  std::shared_ptr<Pool> second_ = Make("second");
  PoolTable pools_;
  AddressTable addresses_;
};

TEST_F(Tables, HandlesFindTheirPools) {
  const PoolHandle first = Add(first_);
  const PoolHandle second = Add(second_);
  EXPECT_EQ(pools_.Find(first).value(), first_);
  EXPECT_EQ(pools_.Find(second).value(), second_);
}

TEST_F(Tables, HandlesAreNeverZeroAndNeverReused) {
  const PoolHandle before = Add(first_);
  EXPECT_NE(before, 0u);
  ASSERT_EQ(pools_.Remove(before).value(), first_);
  const PoolHandle after = Add(first_);
  EXPECT_NE(after, before);
  ExpectFailure(pools_.Find(before).status(), StatusCode::kNotFound, "pool " + std::to_string(before));
  EXPECT_EQ(pools_.Remove(before).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(pools_.Find(0).status().code(), StatusCode::kNotFound);
}

// A place that no pool has yet, or that a pool has left, is no pool's.
TEST_F(Tables, ZeroHasNoDeviceBeforeAndAfterAPoolThatHadItsPlace) {
  EXPECT_FALSE(pools_.DeviceAtOnce(0));
  PoolHandle handle = 0;
  do {
    handle = Add(first_);
    ASSERT_TRUE(pools_.DeviceAtOnce(handle));
    ASSERT_TRUE(pools_.Remove(handle).ok());
    EXPECT_FALSE(pools_.DeviceAtOnce(handle));
  } while (handle < 256);
  EXPECT_FALSE(pools_.DeviceAtOnce(0));
}

TEST_F(Tables, AnAddressFindsTheOwnerOfItsRange) {
  Enter(0x1000, first_);
  Enter(0x3000, second_);
  EXPECT_EQ(addresses_.OwnerOf(0x1000).value(), first_);
  EXPECT_EQ(addresses_.OwnerOf(0x1fff).value(), first_);
  EXPECT_EQ(addresses_.OwnerOf(0x3800).value(), second_);
  for (const CUdeviceptr foreign : {0x0, 0xfff, 0x2000, 0x2fff, 0x4000}) {
    EXPECT_EQ(addresses_.OwnerOf(foreign).status().code(), StatusCode::kNotFound) << foreign;
  }
  EXPECT_NE(addresses_.OwnerOf(0x2000).status().message().find("0x2000"), std::string::npos);
}

TEST_F(Tables, ARemovedRangeIsForeign) {
  Enter(0x1000, first_);
  addresses_.Remove(0x1000);
  addresses_.Remove(0x1000);
  EXPECT_EQ(addresses_.OwnerOf(0x1000).status().code(), StatusCode::kNotFound);
}

TEST_F(Tables, ListPoolsWithAHandleFirstThenThoseThatSomethingKeepsAlive) {
  const PoolHandle first = Add(first_);
  Add(second_);
  ASSERT_TRUE(pools_.Remove(first).ok());
  EXPECT_EQ(pools_.All(), (std::vector<std::shared_ptr<Pool>>{second_, first_}));
  first_.reset();
  EXPECT_EQ(pools_.All(), std::vector<std::shared_ptr<Pool>>{second_});
}

TEST_F(Tables, ForgetRemovedPoolsThatAreGone) {
  for (int pool = 0; pool < 5; ++pool) {
    ASSERT_TRUE(pools_.Remove(Add(Make("short-lived"))).ok());
    EXPECT_EQ(pools_.removed(), 1u);
  }
}

TEST_F(Tables, ARangeKeepsItsPoolAlive) {
  std::shared_ptr<Pool> pool = Make("third");
  const std::weak_ptr<Pool> observer = pool;
  Enter(0x1000, std::move(pool));
  EXPECT_FALSE(observer.expired());
  addresses_.Remove(0x1000);
  EXPECT_TRUE(observer.expired());
}

constexpr CUdeviceptr kBase = 4096;
constexpr uint64_t kBytes = 512;

class Addresses : public ::testing::Test {
 protected:
  Status Add(CUdeviceptr address, uint64_t bytes = kBytes) {
    Result<AddressTable::Entry> entry = table_.Add(address, bytes, owner_);
    if (entry.ok()) entry->Keep();
    return entry.status();
  }
  void ExpectTaken(const Status& status) {
    ExpectFailure(status, StatusCode::kInvalidArgument, "lie in memory of pool first already");
  }

  const std::shared_ptr<BlockOwner> owner_ = std::make_shared<NobodysOwner>("first");
  AddressTable table_;
};

TEST_F(Addresses, AreKnownFromTheFirstByteToTheLast) {
  ASSERT_TRUE(Add(kBase).ok());
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, kBytes - 1}) {
    const OwnedRange range = table_.RangeOf(kBase + offset).value();
    EXPECT_EQ(range.address, kBase);
    EXPECT_EQ(range.bytes, kBytes);
    EXPECT_EQ(range.owner, owner_);
  }
  for (const CUdeviceptr foreign : {kBase - 1, kBase + kBytes, CUdeviceptr{0}}) {
    EXPECT_EQ(table_.OwnerOf(foreign).status().code(), StatusCode::kNotFound) << foreign;
  }
}

TEST_F(Addresses, OfNeighboursTouch) {
  ASSERT_TRUE(Add(kBase).ok());
  EXPECT_TRUE(Add(kBase + kBytes).ok());
  EXPECT_TRUE(Add(kBase - kBytes).ok());
  EXPECT_EQ(table_.RangeOf(kBase + kBytes)->address, kBase + kBytes);
  EXPECT_EQ(table_.RangeOf(kBase - 1)->address, kBase - kBytes);
}

TEST_F(Addresses, HaveOneOwner) {
  ASSERT_TRUE(Add(kBase).ok());
  ExpectTaken(Add(kBase));
  ExpectTaken(Add(kBase + kBytes - 1));
  ExpectTaken(Add(kBase - kBytes + 1));
  ExpectTaken(Add(kBase - 1, kBytes + 2));
}

TEST_F(Addresses, ThatWereRemovedAreFree) {
  ASSERT_TRUE(Add(kBase).ok());
  table_.Remove(kBase + 1);  // no range begins there
  EXPECT_TRUE(table_.OwnerOf(kBase).ok());
  table_.Remove(kBase);
  EXPECT_FALSE(table_.OwnerOf(kBase).ok());
  EXPECT_TRUE(Add(kBase + 1).ok());
  EXPECT_EQ(owner_.use_count(), 2) << "what was removed keeps no owner";
}

TEST_F(Addresses, AreTakenUntilTheirEntryEndsOrForGoodWhereItIsKept) {
  {
    AddressTable::Entry ends = table_.Add(kBase, kBytes, owner_).value();
    AddressTable::Entry kept = table_.Add(2 * kBase, kBytes, owner_).value();
    kept.Keep();
    const AddressTable::Entry moved = std::move(ends);
    EXPECT_TRUE(table_.OwnerOf(kBase).ok());
  }
  EXPECT_FALSE(table_.OwnerOf(kBase).ok());
  EXPECT_TRUE(table_.OwnerOf(2 * kBase).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
