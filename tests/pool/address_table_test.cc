// Who owns an address: ranges touch and never overlap.
#include <gtest/gtest.h>

#include "src/library/pool/shared/tables.h"
#include "tests/base/expect_status.h"
#include "tests/pool/nobodys_owner.h"

namespace commpool::internal {
namespace {

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
}  // namespace commpool::internal
