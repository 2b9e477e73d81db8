// Reads and updates of one block, in processes: neither begins within the other, on the device either.
#include <thread>

#include "tests/sharing/sharing_test.h"

namespace commpool::internal::testing {
namespace {

class UpdateOrder : public SharingTest {
 protected:
  UpdateOrder() : block_(Allocate()), ticket_(Share(block_)) {}

  // Returns once the owner keeps new reads out.
  void AwaitGate(SharingProcess& other, uint64_t seen) {
    while (other.Ask({Do::kBeginRead, seen}).status == COMMPOOL_OK) Good(other.Ask({Do::kEndRead, seen}));
  }

  const uint64_t block_;
  const std::string ticket_;
};

TEST_F(UpdateOrder, AnUpdateWaitsForReadsThatHaveNotEnded) {
  SharingProcess other;
  const uint64_t seen = Import(importer_, ticket_);
  const uint64_t seen_there = Import(other, ticket_, 200);
  Good(importer_.Ask({Do::kBeginRead, seen}));
  owner_.Begin({Do::kBeginUpdate, block_});
  AwaitGate(other, seen_there);
  EXPECT_FALSE(owner_.HasAnswered());
  Good(importer_.Ask({Do::kEndRead, seen}));
  Good(owner_.Answer());
  Good(owner_.Ask({Do::kEndUpdate, block_}));
}

TEST_F(UpdateOrder, AnUpdateWaitsForReadsOnTheDevice) {
  SharingProcess other;
  const uint64_t seen = Import(importer_, ticket_);
  const uint64_t seen_there = Import(other, ticket_, 200);
  Good(importer_.Ask({Do::kBeginRead, seen}));
  Good(importer_.Ask({Do::kHoldStream}));
  Good(importer_.Ask({Do::kEndRead, seen}));
  owner_.Begin({Do::kBeginUpdate, block_});
  AwaitGate(other, seen_there);
  EXPECT_FALSE(owner_.HasAnswered());
  Good(importer_.Ask({Do::kFreeStream}));
  Good(owner_.Answer());
  Good(owner_.Ask({Do::kEndUpdate, block_}));
}

TEST_F(UpdateOrder, AReadWaitsForTheUpdatesWorkOnTheDevice) {
  const uint64_t seen = Import(importer_, ticket_);
  Good(owner_.Ask({Do::kBeginUpdate, block_}));
  Good(owner_.Ask({Do::kHoldStream}));
  Good(owner_.Ask({Do::kFill, block_, 0x55}));
  importer_.Begin({Do::kBeginRead, seen});
  EXPECT_FALSE(importer_.HasAnswered());
  Good(owner_.Ask({Do::kEndUpdate, block_}));
  EXPECT_FALSE(importer_.HasAnswered()) << "the fill has not run";
  Good(owner_.Ask({Do::kFreeStream}));
  Good(importer_.Answer());
  EXPECT_EQ(Good(importer_.Ask({Do::kFirstByte, seen})).number, 0x55u);
  Good(importer_.Ask({Do::kEndRead, seen}));
}

TEST_F(UpdateOrder, ManyUpdatesAreReadWhole) {
  SharingProcess other;
  const uint64_t seen = Import(importer_, ticket_);
  const uint64_t seen_there = Import(other, ticket_);
  for (uint64_t value = 1; value <= 100; ++value) {
    Write(block_, value);
    EXPECT_EQ(Read(importer_, seen), value);
    EXPECT_EQ(Read(other, seen_there), value);
  }
}

TEST_F(UpdateOrder, OtherBlocksAreReadMeanwhile) {
  const uint64_t another = Allocate();
  const uint64_t seen = Import(importer_, Share(another));
  Good(importer_.Ask({Do::kBlock, 0, 0, ticket_}));
  Good(owner_.Ask({Do::kBeginUpdate, block_}));
  Good(importer_.Ask({Do::kBeginRead, seen}));
  Good(importer_.Ask({Do::kEndRead, seen}));
  Good(owner_.Ask({Do::kEndUpdate, block_}));
}

TEST_F(UpdateOrder, ABlockThatIsHeldWithinAnUpdateIsClosedToo) {
  Good(owner_.Ask({Do::kBeginUpdate, block_}));
  const uint64_t seen = Import(importer_, ticket_, 1000);
  ExpectRefusal(importer_.Ask({Do::kBeginRead, seen}), COMMPOOL_DEADLINE_EXCEEDED, "an update by process");
  Good(owner_.Ask({Do::kFill, block_, 0x66}));
  Good(owner_.Ask({Do::kEndUpdate, block_}));
  EXPECT_EQ(Read(importer_, seen), 0x66u);
}

TEST_F(UpdateOrder, WrongCallsSayWhy) {
  ExpectRefusal(owner_.Ask({Do::kEndUpdate, block_}), COMMPOOL_FAILED_PRECONDITION, "no update of the block");
  Good(owner_.Ask({Do::kBeginUpdate, block_}));
  ExpectRefusal(owner_.Ask({Do::kBeginUpdate, block_}), COMMPOOL_FAILED_PRECONDITION, "is under way");
  ExpectRefusal(owner_.Ask({Do::kShareBlock, block_, COMMPOOL_WRITES_ENDED}), COMMPOOL_FAILED_PRECONDITION,
                "its writes have not ended");
  Good(owner_.Ask({Do::kEndUpdate, block_}));
  const uint64_t alone = Allocate();
  ExpectRefusal(owner_.Ask({Do::kBeginUpdate, alone}), COMMPOOL_NOT_FOUND, "was not shared by a ticket");
  const uint64_t last = Allocate();
  Share(last, COMMPOOL_WRITES_ENDED);
  ExpectRefusal(owner_.Ask({Do::kBeginUpdate, last}), COMMPOOL_FAILED_PRECONDITION, "writes have ended");
  const uint64_t seen = Import(importer_, ticket_);
  ExpectRefusal(importer_.Ask({Do::kEndRead, seen}), COMMPOOL_FAILED_PRECONDITION, "no read of the block has begun");
  Good(importer_.Ask({Do::kBeginRead, seen + 100}));
  ExpectRefusal(importer_.Ask({Do::kRelease, seen}), COMMPOOL_FAILED_PRECONDITION, "a read of the block has not ended");
  Good(importer_.Ask({Do::kEndRead, seen + 200}));
  ExpectRefusal(importer_.Ask({Do::kBeginRead, 4096}), COMMPOOL_NOT_FOUND, "no block that this import holds");
}

class ImpatientOwner : public SharingTest {
 protected:
  ImpatientOwner() : SharingTest("50") {}
};

TEST_F(ImpatientOwner, ReadsOnWhereAReaderStays) {
  const uint64_t block = Allocate();
  const uint64_t seen = Import(importer_, Share(block));
  Good(importer_.Ask({Do::kBeginRead, seen}));
  const std::string name = "process " + std::to_string(importer_.process());
  ExpectRefusal(owner_.Ask({Do::kBeginUpdate, block}), COMMPOOL_DEADLINE_EXCEEDED, name + " read the block still");
  Good(importer_.Ask({Do::kBeginRead, seen}));  // the gate is open again
  Good(importer_.Ask({Do::kEndRead, seen}));
  Good(importer_.Ask({Do::kEndRead, seen}));
  Write(block, 1);
}

}  // namespace
}  // namespace commpool::internal::testing
