// What cannot be shared or imported says why, and harms nobody.
#include <sys/stat.h>

#include "src/library/sharing/ticket.h"
#include "tests/sharing/sharing_test.h"

namespace commpool::internal::testing {
namespace {

using BadInput = SharingTest;

TEST_F(BadInput, ATextThatIsNoTicketIsRefused) {
  ExpectRefusal(importer_.Ask({Do::kOpen, 0, 0, "ticket"}), COMMPOOL_INVALID_ARGUMENT, "is no ticket of commpool");
  const std::string ticket = Good(owner_.Ask({Do::kSharePool})).text;
  ExpectRefusal(importer_.Ask({Do::kOpen, 0, 0, ticket.substr(0, 80)}), COMMPOOL_INVALID_ARGUMENT, "cut or changed");
  std::string newer = ticket;
  newer.replace(newer.find("-1,"), 3, "-7,");
  ExpectRefusal(importer_.Ask({Do::kOpen, 0, 0, newer}), COMMPOOL_NOT_SUPPORTED, "a newer commpool");
}

TEST_F(BadInput, AForgedTicketIsRefused) {
  Ticket ticket = Ticket::Parse(Good(owner_.Ask({Do::kSharePool})).text).value();
  ticket.secret[1] ^= 1;
  ExpectRefusal(importer_.Ask({Do::kOpen, 0, 0, ticket.Text()}), COMMPOOL_NOT_FOUND, "or the ticket is forged");
  ticket.secret[1] ^= 1;
  ticket.pool += 1;
  ExpectRefusal(importer_.Ask({Do::kOpen, 0, 0, ticket.Text()}), COMMPOOL_NOT_FOUND, "or the ticket is forged");
}

TEST_F(BadInput, ATicketOfAFreedBlockIsRefused) {
  const auto [block, ticket] = ShareABlock();
  Good(owner_.Ask({Do::kFree, block}));
  EXPECT_EQ(Allocate(), block) << "the address serves again";
  Good(importer_.Ask({Do::kOpen, 0, 0, ticket}));
  ExpectRefusal(importer_.Ask({Do::kBlock, 0, 0, ticket}), COMMPOOL_NOT_FOUND, "the block of the ticket was freed");
  EXPECT_NE(Share(block), ticket);
}

TEST_F(BadInput, ATicketOfAnotherPoolIsRefused) {
  const std::string ticket = Share(Allocate());
  Good(importer_.Ask({Do::kOpen, 0, 0, ticket}));
  Good(owner_.Ask({Do::kMakePool}));
  const std::string other = Share(Allocate());
  ExpectRefusal(importer_.Ask({Do::kBlock, 0, 0, other}), COMMPOOL_INVALID_ARGUMENT, "is of another pool");
  const std::string whole = Good(owner_.Ask({Do::kSharePool})).text;
  ExpectRefusal(importer_.Ask({Do::kBlock, 0, 0, whole}), COMMPOOL_INVALID_ARGUMENT, "names no block");
}

TEST_F(BadInput, ATicketOfTheProcessItselfIsRefused) {
  const std::string ticket = Good(owner_.Ask({Do::kSharePool})).text;
  ExpectRefusal(owner_.Ask({Do::kOpen, 0, 0, ticket}), COMMPOOL_FAILED_PRECONDITION, "of this process itself");
}

TEST_F(BadInput, ATicketOfAnEndedProcessIsRefused) {
  const std::string ticket = Good(owner_.Ask({Do::kSharePool})).text;
  owner_.End();
  ExpectRefusal(importer_.Ask({Do::kOpen, 0, 0, ticket}), COMMPOOL_REMOTE_FAILURE, "its process has ended");
}

TEST_F(BadInput, APoolThatCannotBeSharedSaysWhy) {
  Good(owner_.Ask({Do::kMakePool, 0, COMMPOOL_BACKING_CUDA}));
  ExpectRefusal(owner_.Ask({Do::kSharePool}), COMMPOOL_NOT_SUPPORTED, "memory of the cuda backing has no handle");
  ExpectRefusal(owner_.Ask({Do::kShareBlock, Allocate()}), COMMPOOL_NOT_SUPPORTED, "has no handle");
  Good(owner_.Ask({Do::kMakePool, COMMPOOL_MODE_EXPANDABLE}));
  ExpectRefusal(owner_.Ask({Do::kSharePool}), COMMPOOL_NOT_SUPPORTED, "an expandable pool moves its pages");
  ExpectRefusal(owner_.Ask({Do::kShareBlock, 4096}), COMMPOOL_NOT_FOUND, "");
}

TEST_F(BadInput, AnImporterWithoutTheDeviceOrAccessToItIsRefused) {
  COMMPOOL_REQUIRE_EMULATOR("machines with other GPUs and links");
  Good(owner_.Ask({Do::kMakePool, 0, COMMPOOL_BACKING_VMM + kOnDevice1}));
  const std::string ticket = Share(Allocate());
  SharingProcess blind("devices=1");
  ExpectRefusal(blind.Ask({Do::kOpen, 0, 0, ticket}), COMMPOOL_NOT_FOUND, "CUDA_VISIBLE_DEVICES");
  ExpectRefusal(blind.Ask({Do::kOpenOnDevice, 0, 5, ticket}), COMMPOOL_DRIVER_ERROR, "device 5");
  SharingProcess lonely("links=none");
  Good(lonely.Ask({Do::kOpenOnDevice, 0, 0, ticket}));
  ExpectRefusal(lonely.Ask({Do::kBlock, 0, 0, ticket}), COMMPOOL_DRIVER_ERROR, "cuMemSetAccess");
  Carry(importer_, {{Do::kOpenOnDevice, 0, 0, ticket}, {Do::kBlock, 0, 0, ticket}});
}

TEST_F(BadInput, AnImporterWithoutDescriptorsImportsOnceItHasSome) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan's check of a call's object takes a descriptor";
#endif
  const std::string ticket = Share(Allocate());
  Good(importer_.Ask({Do::kMakePool}));  // opens the driver
  for (const uint64_t left : {0, 2, 4, 5, 6}) {
    Good(importer_.Ask({Do::kTakeDescriptors, 0, left}));
    const Outcome outcome = importer_.Ask({Do::kOpen, 0, 0, ticket});
    Good(importer_.Ask({Do::kGiveDescriptors}));
    if (outcome.status == COMMPOOL_OK) continue;
    EXPECT_TRUE(outcome.status == COMMPOOL_OUT_OF_MEMORY || outcome.status == COMMPOOL_DRIVER_ERROR) << outcome.text;
  }
  // Not by the block's ticket, which maps its segment at once.
  Good(importer_.Ask({Do::kOpen, 0, 0, Good(owner_.Ask({Do::kSharePool})).text}));
  Good(importer_.Ask({Do::kTakeDescriptors}));
  ExpectRefusal(importer_.Ask({Do::kBlock, 0, 0, ticket}), COMMPOOL_OUT_OF_MEMORY, "no file descriptor left");
  Carry(importer_, {{Do::kGiveDescriptors}, {Do::kBlock, 0, 0, ticket}});
}

TEST_F(BadInput, AnOwnerWithoutDescriptorsServesOnceItHasSome) {
  const std::string ticket = Share(Allocate());
  Good(importer_.Ask({Do::kOpen, 0, 0, Good(owner_.Ask({Do::kSharePool})).text}));
  Good(owner_.Ask({Do::kTakeDescriptors}));
  ExpectRefusal(importer_.Ask({Do::kBlock, 0, 0, ticket}), COMMPOOL_OUT_OF_MEMORY, "the owner has no file descriptor");
  SharingProcess late;
  EXPECT_NE(late.Ask({Do::kOpen, 50, 0, ticket}).status, COMMPOOL_OK);
  Good(owner_.Ask({Do::kGiveDescriptors}));
  Good(importer_.Ask({Do::kBlock, 0, 0, ticket}));
  Carry(late, {{Do::kOpen, 0, 0, ticket}, {Do::kBlock, 0, 0, ticket}});
}

TEST_F(BadInput, AForkOfTheOwnerHoldsNobody) {
  const auto [block, seen] = ImportABlock();
  Good(owner_.Ask({Do::kBeginUpdate, block}));
  const auto child = static_cast<pid_t>(Good(owner_.Ask({Do::kForkHolder})).number);
  owner_.Kill();
  ExpectRefusal(importer_.Ask({Do::kBeginRead, seen}), COMMPOOL_REMOTE_FAILURE, "an update was under way");
  EXPECT_EQ(kill(child, SIGKILL), 0);
}

TEST_F(BadInput, AForkOfAnImporterHoldsNobody) {
  const auto [block, seen] = ImportABlock();
  Good(importer_.Ask({Do::kBeginRead, seen}));
  const auto child = static_cast<pid_t>(Good(importer_.Ask({Do::kForkHolder})).number);
  importer_.Kill();
  Write(block, 1);
  Good(owner_.Ask({Do::kFree, block}));
  AwaitPending(0);
  EXPECT_EQ(kill(child, SIGKILL), 0);
}

TEST_F(BadInput, AnImporterThatStandsStillDelaysNobody) {
  const auto [block, ticket] = ShareABlock();
  Write(block, 1);
  const uint64_t seen = Import(importer_, ticket);
  EXPECT_EQ(Read(importer_, seen), 1u);
  Good(importer_.Ask({Do::kFirstByte, seen}));  // its work is done: an emulated device stands still with its process
  importer_.Stop();
  for (uint64_t value = 2; value < 50; ++value) Write(block, value);
  const uint64_t another = Allocate();
  Share(another);
  Good(owner_.Ask({Do::kFree, another}));
  SharingProcess other;
  EXPECT_EQ(Read(other, Import(other, ticket)), 49u);
  Good(owner_.Ask({Do::kFree, block}));
  EXPECT_EQ(Pending(), 1u);
  importer_.Continue();
}

TEST_F(BadInput, AFolderThatOthersMayEnterIsRefused) {
  Good(owner_.Ask({Do::kSharePool}));
  ASSERT_EQ(chmod(SocketFolder().c_str(), 0750), 0);
  SharingProcess other;
  Good(other.Ask({Do::kMakePool}));
  ExpectRefusal(other.Ask({Do::kSharePool}), COMMPOOL_FAILED_PRECONDITION, "others may enter");
  ASSERT_EQ(chmod(SocketFolder().c_str(), 0700), 0);
  Good(other.Ask({Do::kSharePool}));
}

}  // namespace
}  // namespace commpool::internal::testing
