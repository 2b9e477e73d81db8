// What an importer has of a pool: its segments, later ones too, and single blocks; and what that costs.
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/sharing/sharing_test.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kMiB = 1 << 20;

using TwoProcesses = SharingTest;

TEST_F(TwoProcesses, SeeTheSameBytes) {
  const uint64_t block = Allocate();
  const std::string ticket = Share(block);
  Write(block, 0x11);
  const uint64_t seen = Import(importer_, ticket);
  EXPECT_EQ(Read(importer_, seen), 0x11u);
  Write(block, 0x22);
  EXPECT_EQ(Read(importer_, seen), 0x22u);
  Good(importer_.Ask({Do::kRelease, seen}));
  Good(importer_.Ask({Do::kClose}));
  Good(owner_.Ask({Do::kFree, block}));
}

TEST_F(TwoProcesses, MeetWhateverTheirRuntimeDirectoriesAre) {
  const std::string usual = std::getenv("XDG_RUNTIME_DIR");
  setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
  SharingProcess other;
  setenv("XDG_RUNTIME_DIR", usual.c_str(), 1);
  Good(other.Ask({Do::kMakePool}));
  const uint64_t block = Good(other.Ask({Do::kAllocate, 0, 4096})).pointer;
  Good(other.Ask({Do::kFill, block, 7}));
  Good(other.Ask({Do::kFirstByte, block}));
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
  const uint64_t block = Allocate();
  const uint64_t seen = Import(importer_, Share(block));
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
  const uint64_t block = Allocate();
  const std::string ticket = Share(block);
  const uint64_t seen = Import(importer_, ticket);
  EXPECT_EQ(Good(importer_.Ask({Do::kBlock, 0, 0, ticket})).pointer, seen);
  Good(owner_.Ask({Do::kFree, block}));
  Good(importer_.Ask({Do::kRelease, seen}));
  EXPECT_EQ(Pending(), 1u);
  EXPECT_EQ(Good(importer_.Ask({Do::kBlock, 0, 0, ticket})).pointer, seen) << "it is held still";
  Good(importer_.Ask({Do::kRelease, seen}));
  Good(importer_.Ask({Do::kRelease, seen}));
  AwaitPending(0);
  ExpectRefusal(importer_.Ask({Do::kRelease, seen}), COMMPOOL_NOT_FOUND, "no block that this import holds");
}

TEST_F(TwoProcesses, AnImportTwiceIsTwoImports) {
  const uint64_t block = Allocate();
  const std::string ticket = Share(block);
  Write(block, 0x44);
  const uint64_t first = Import(importer_, ticket);
  const uint64_t second = Import(importer_, ticket);
  EXPECT_NE(first, second);
  EXPECT_EQ(Read(importer_, second), 0x44u);
  Good(importer_.Ask({Do::kClose}));
  Good(importer_.Ask({Do::kImport, 0, 1}));
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
    Good(importer.Ask({Do::kImport, 0, 1}));
    Good(importer.Ask({Do::kClose}));
    return AwaitPending(0);
  }
  ADD_FAILURE() << kProcesses << " processes found the owner's addresses taken";
}

// The whole test has another machine for its processes: one with a fabric.
class OnAFabric : public ::testing::Test {};

TEST_F(OnAFabric, MemoryGoesAsBytesAndTakesNoDescriptor) {
  COMMPOOL_REQUIRE_EMULATOR("machines with a fabric");
  SharingProcess owner("fabric=yes");
  SharingProcess importer("fabric=yes");
  Good(owner.Ask({Do::kMakePool}));
  const uint64_t block = Good(owner.Ask({Do::kAllocate, 0, kMiB})).pointer;
  const std::string ticket = Good(owner.Ask({Do::kShareBlock, block})).text;
  Good(owner.Ask({Do::kBeginUpdate, block}));
  Good(owner.Ask({Do::kFill, block, 0x71}));
  Good(owner.Ask({Do::kEndUpdate, block}));
  Good(importer.Ask({Do::kOpen, 0, 0, ticket}));
  const uint64_t seen = Good(importer.Ask({Do::kBlock, 0, 0, ticket})).pointer;
  Good(importer.Ask({Do::kBeginRead, seen}));
  EXPECT_EQ(Good(importer.Ask({Do::kFirstByte, seen})).number, 0x71u);
  Good(importer.Ask({Do::kEndRead, seen}));
  owner.Kill();
  EXPECT_EQ(Good(importer.Ask({Do::kFirstByte, seen})).number, 0x71u);
}

}  // namespace
}  // namespace commpool::internal::testing
