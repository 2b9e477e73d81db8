// What an importer has of a pool: its segments, later ones too, and single blocks; what that costs; and the order of
// its reads and the owner's updates.
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/sharing/sharing_test.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kMiB = 1 << 20;

using TwoProcesses = SharingTest;

TEST_F(TwoProcesses, SeeTheSameBytes) {
  const auto [block, ticket] = ShareABlock();
  Write(block, 0x11);
  const uint64_t seen = Import(importer_, ticket);
  EXPECT_EQ(Read(importer_, seen), 0x11u);
  Write(block, 0x22);
  EXPECT_EQ(Read(importer_, seen), 0x22u);
  Carry(importer_, {{Do::kRelease, seen}, {Do::kClose}});
  Good(owner_.Ask({Do::kFree, block}));
}

TEST_F(TwoProcesses, MeetWhateverTheirRuntimeDirectoriesAre) {
  const std::string usual = std::getenv("XDG_RUNTIME_DIR");
  setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
  SharingProcess other;
  setenv("XDG_RUNTIME_DIR", usual.c_str(), 1);
  Good(other.Ask({Do::kMakePool}));
  const uint64_t block = Good(other.Ask({Do::kAllocate, 0, 4096})).pointer;
  Carry(other, {{Do::kFill, block, 7}, {Do::kFirstByte, block}});
  EXPECT_EQ(Read(importer_, Import(importer_, Good(other.Ask({Do::kShareBlock, block, COMMPOOL_WRITES_ENDED})).text)),
            7u);
}

TEST_F(TwoProcesses, APoolsTicketIsTheSameAtEachCall) {
  const std::string first = Good(owner_.Ask({Do::kSharePool})).text;
  EXPECT_EQ(Good(owner_.Ask({Do::kSharePool, 0, COMMPOOL_IMPORTS_SLEEP_TOO})).text, first);
}

TEST_F(TwoProcesses, AnImportHasSegmentsThatCameLater) {
  const std::string pool = Good(owner_.Ask({Do::kSharePool})).text;
  Good(importer_.Ask({Do::kOpen, 0, 0, pool}));
  for (const uint64_t value : {1, 2, 3}) {
    const uint64_t block = Allocate(32 * kMiB);  // a segment of its own
    Good(owner_.Ask({Do::kFill, block + 4096, value}));
    EXPECT_EQ(Good(owner_.Ask({Do::kFirstByte, block + 4096})).number, value);
    const uint64_t there = Good(importer_.Ask({Do::kAddress, block + 4096})).pointer;
    EXPECT_EQ(Good(importer_.Ask({Do::kFirstByte, there})).number, value);
  }
  ExpectCalls(importer_, "cuMemMap", 3u);
  ExpectRefusal(importer_.Ask({Do::kAddress, 4096}), COMMPOOL_NOT_FOUND, "no segment has that address");
}

TEST_F(TwoProcesses, OneSegmentIsExportedAndImportedOnceForManyBlocks) {
  constexpr int kBlocks = 1000;
  std::vector<std::string> tickets;
  for (int block = 0; block < kBlocks; ++block) tickets.push_back(Share(Allocate(1024)));
  Import(importer_, tickets[0]);
  Good(importer_.Ask({Do::kBlock, 0, 0, tickets[1]}));  // the answer comes behind the news that writes go on
  const uint64_t of_owner = Calls(owner_, "*");
  const uint64_t of_importer = Calls(importer_, "*");
  for (int block = 2; block < kBlocks; ++block) Good(importer_.Ask({Do::kBlock, 0, 0, tickets.at(block)}));
  ExpectCalls(owner_, "cuMemExportToShareableHandle", 1u);
  ExpectCalls(importer_, "cuMemImportFromShareableHandle", 1u);
  ExpectCalls(importer_, "cuMemMap", 1u);
  ExpectCalls(owner_, "*", of_owner, "a further block costs no driver call");
  ExpectCalls(importer_, "*", of_importer);
}

TEST_F(TwoProcesses, TheTicketsBlockComesWithItsImport) {
  const uint64_t block = Allocate();
  const std::string ticket = Share(block, COMMPOOL_WRITES_ENDED);
  Good(importer_.Ask({Do::kOpen, 2000, 0, ticket}));
  owner_.Stop();  // it answers no question
  const uint64_t seen = Good(importer_.Ask({Do::kBlock, 0, 0, ticket})).pointer;
  Read(importer_, seen);
  owner_.Continue();
}

TEST_F(TwoProcesses, ASegmentIsExportedOnceForAllImporters) {
  const std::string ticket = Share(Allocate());
  Import(importer_, ticket);
  SharingProcess other;
  Import(other, ticket);
  ExpectCalls(owner_, "cuMemExportToShareableHandle", 1);
  ExpectCalls(other, "cuMemImportFromShareableHandle", 1);
}

TEST_F(TwoProcesses, ReadsBetweenUpdatesAskTheDriverNothingAtTheirBegin) {
  const auto [block, seen] = ImportABlock();
  Write(block, 0x33);
  EXPECT_EQ(Read(importer_, seen), 0x33u);
  const uint64_t before = Calls(importer_, "cuEventQuery");
  Good(importer_.Ask({Do::kBeginRead, seen}));
  ExpectCalls(importer_, "cuEventQuery", before);
  Good(importer_.Ask({Do::kEndRead, seen}));
}

TEST_F(TwoProcesses, AFirstReadHasNoRecordToWaitFor) {
  const uint64_t seen = Import(importer_, Share(Allocate()));
  const uint64_t asked = Calls(importer_, "cuEventQuery");
  Read(importer_, seen);
  ExpectCalls(importer_, "cuEventQuery", asked);
  ExpectCalls(importer_, "cuStreamWaitEvent", 0);
  Read(importer_, seen);
  ExpectCalls(importer_, "cuStreamWaitEvent", 1, "the second read is ordered behind the first one");
}

TEST_F(TwoProcesses, AnImportOpensTheOwnersRecordsForBlocksThatMayBeWritten) {
  const std::string constant = Share(Allocate(), COMMPOOL_WRITES_ENDED);
  const std::string another = Share(Allocate(), COMMPOOL_WRITES_ENDED);
  const std::string written = Share(Allocate());
  Read(importer_, Import(importer_, constant));
  Good(importer_.Ask({Do::kBlock, 0, 0, another}));  // its thread has answered, and so has begun
  ExpectCalls(importer_, "cuIpcOpenEventHandle", 0);
  Good(importer_.Ask({Do::kBlock, 0, 0, written}));
  // This answer comes behind the news that writes go on.
  Good(importer_.Ask({Do::kBlock, 0, 0, Share(Allocate(), COMMPOOL_WRITES_ENDED)}));
  ExpectCalls(importer_, "cuIpcOpenEventHandle", 2);
}

TEST_F(TwoProcesses, ABlockImportedAgainIsHeldUntilTheLastRelease) {
  const auto [block, ticket] = ShareABlock();
  const uint64_t seen = Import(importer_, ticket);
  EXPECT_EQ(Good(importer_.Ask({Do::kBlock, 0, 0, ticket})).pointer, seen);
  Good(owner_.Ask({Do::kFree, block}));
  Good(importer_.Ask({Do::kRelease, seen}));
  EXPECT_EQ(Pending(), 1u);
  EXPECT_EQ(Good(importer_.Ask({Do::kBlock, 0, 0, ticket})).pointer, seen) << "it is held still";
  Carry(importer_, {{Do::kRelease, seen}, {Do::kRelease, seen}});
  AwaitPending(0);
  ExpectRefusal(importer_.Ask({Do::kRelease, seen}), COMMPOOL_NOT_FOUND, "no block that this import holds");
}

TEST_F(TwoProcesses, AnImportTwiceIsTwoImports) {
  const auto [block, ticket] = ShareABlock();
  Write(block, 0x44);
  const uint64_t first = Import(importer_, ticket);
  const uint64_t second = Import(importer_, ticket);
  EXPECT_NE(first, second);
  EXPECT_EQ(Read(importer_, second), 0x44u);
  Carry(importer_, {{Do::kClose}, {Do::kImport, 0, 1}});
  EXPECT_EQ(Read(importer_, first), 0x44u);
}

TEST_F(TwoProcesses, AnImportIsRegisteredWithACommunicatorOfItsProcess) {
  const uint64_t seen = Import(importer_, Share(Allocate()));
  Good(importer_.Ask({Do::kRegister, seen}));
  // On hardware NCCL takes any address for a communicator of one rank.
  if (OnEmulator()) {
    EXPECT_EQ(importer_.Ask({Do::kRegister, 4096}).status, COMMPOOL_COMMUNICATOR_ERROR);
  }
}

TEST_F(TwoProcesses, SegmentsLieAtTheOwnersAddressesWhereThoseAreFree) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TSan has its own memory at such addresses";
#endif
  // The driver of a GPU puts small segments where each process has memory of its own, and one of a GiB elsewhere.
  const uint64_t block = Allocate(OnEmulator() ? kMiB : 1024 * kMiB);
  const std::string ticket = Share(block);
  constexpr int kProcesses = 8;
  // A process has memory of its own at random addresses, now and then at the owner's. Each new one has others.
  for (int process = 0; process < kProcesses; ++process) {
    SharingProcess importer;
    Good(importer.Ask({Do::kOpen, 0, COMMPOOL_ADDRESSES_SAME, ticket}));
    const Outcome first = importer.Ask({Do::kBlock, 0, 0, ticket});
    if (first.status != COMMPOOL_OK) {
      ExpectRefusal(first, COMMPOOL_FAILED_PRECONDITION, "are not free in this process");
      continue;
    }
    EXPECT_EQ(first.pointer, block);
    Good(importer.Ask({Do::kOpen, 0, COMMPOOL_ADDRESSES_SAME, ticket}));
    ExpectRefusal(importer.Ask({Do::kBlock, 0, 0, ticket}), COMMPOOL_FAILED_PRECONDITION,
                  "are not free in this process");
    Good(owner_.Ask({Do::kFree, block}));
    Carry(importer, {{Do::kImport, 0, 1}, {Do::kClose}});
    return AwaitPending(0);
  }
  ADD_FAILURE() << kProcesses << " processes found the owner's addresses taken";
}

// Reads and updates of one block: neither begins within the other, on the device either.
class UpdateOrder : public SharingTest {
 protected:
  UpdateOrder() : block_(Allocate()), ticket_(Share(block_)) {}

  // The owner begins an update, and keeps the reads of others out, until the importer has done this.
  void ExpectUpdateWaitsUntil(const Order& end) {
    SharingProcess other;
    const uint64_t seen = Import(other, ticket_, 200);
    owner_.Begin({Do::kBeginUpdate, block_});
    while (other.Ask({Do::kBeginRead, seen}).status == COMMPOOL_OK) Good(other.Ask({Do::kEndRead, seen}));
    EXPECT_FALSE(owner_.HasAnswered());
    Good(importer_.Ask(end));
    Good(owner_.Answer());
    Good(owner_.Ask({Do::kEndUpdate, block_}));
  }

  const uint64_t block_;
  const std::string ticket_;
};

TEST_F(UpdateOrder, AnUpdateWaitsForReadsThatHaveNotEnded) {
  const uint64_t seen = Import(importer_, ticket_);
  Good(importer_.Ask({Do::kBeginRead, seen}));
  ExpectUpdateWaitsUntil({Do::kEndRead, seen});
}

TEST_F(UpdateOrder, AnUpdateWaitsForReadsOnTheDevice) {
  const uint64_t seen = Import(importer_, ticket_);
  Carry(importer_, {{Do::kBeginRead, seen}, {Do::kHoldStream}, {Do::kEndRead, seen}});
  ExpectUpdateWaitsUntil({Do::kFreeStream});
}

TEST_F(UpdateOrder, AReadWaitsForTheUpdatesWorkOnTheDevice) {
  const uint64_t seen = Import(importer_, ticket_);
  Carry(owner_, {{Do::kBeginUpdate, block_}, {Do::kHoldStream}, {Do::kFill, block_, 0x55}});
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
  Carry(importer_, {{Do::kBeginRead, seen}, {Do::kEndRead, seen}});
  Good(owner_.Ask({Do::kEndUpdate, block_}));
}

TEST_F(UpdateOrder, ABlockThatIsHeldWithinAnUpdateIsClosedToo) {
  Good(owner_.Ask({Do::kBeginUpdate, block_}));
  const uint64_t seen = Import(importer_, ticket_, 1000);
  ExpectRefusal(importer_.Ask({Do::kBeginRead, seen}), COMMPOOL_DEADLINE_EXCEEDED, "an update by process");
  Carry(owner_, {{Do::kFill, block_, 0x66}, {Do::kEndUpdate, block_}});
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
  const auto [block, seen] = ImportABlock();
  Good(importer_.Ask({Do::kBeginRead, seen}));
  ExpectRefusal(owner_.Ask({Do::kBeginUpdate, block}), COMMPOOL_DEADLINE_EXCEEDED, Name() + " read the block still");
  Good(importer_.Ask({Do::kBeginRead, seen}));  // the gate is open again
  Carry(importer_, {{Do::kEndRead, seen}, {Do::kEndRead, seen}});
  Write(block, 1);
}

// The whole test has another machine for its processes: one with a fabric.
class OnAFabric : public SharingTest {
 protected:
  OnAFabric() : SharingTest({}, "fabric=yes") {}
};

TEST_F(OnAFabric, MemoryGoesAsBytesAndTakesNoDescriptor) {
  COMMPOOL_REQUIRE_EMULATOR("machines with a fabric");
  const auto [block, ticket] = ShareABlock();
  Write(block, 0x71);
  const uint64_t seen = Import(importer_, ticket);
  EXPECT_EQ(Read(importer_, seen), 0x71u);
  owner_.Kill();
  EXPECT_EQ(Good(importer_.Ask({Do::kFirstByte, seen})).number, 0x71u);
}

}  // namespace
}  // namespace commpool::internal::testing
