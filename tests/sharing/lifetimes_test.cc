// What stays of a shared pool when its owner frees, trims, closes, sleeps, ends or dies, and when an importer does.
#include <atomic>
#include <thread>

#include "commpool/capture.h"
#include "commpool/pool.h"
#include "tests/sharing/sharing_test.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kSegment = 32 << 20;  // a block that fills a segment

class Lifetimes : public SharingTest {
 protected:
  using SharingTest::SharingTest;

  void ImportOne(uint64_t value) {
    ShareOne(kSegment);
    Write(block_, value);
    seen_ = Import(importer_, ticket_);
  }

  // Whose import sleeps too.
  void ImportSleeper(uint64_t value) {
    ImportOne(value);
    Good(owner_.Ask({Do::kSharePool, 0, COMMPOOL_IMPORTS_SLEEP_TOO}));
  }
  void ShareOne(uint64_t bytes = 1 << 20) {
    block_ = Allocate(bytes);
    ticket_ = Share(block_);
  }
  void BeginReadThatWaits() {
    importer_.Begin({Do::kBeginRead, seen_});
    EXPECT_FALSE(importer_.HasAnswered());
  }
  // The last import of a freed block lets it go.
  void ReleaseLast() {
    Good(importer_.Ask({Do::kRelease, seen_}));
    AwaitPending(0);
  }

  uint64_t block_ = 0;
  std::string ticket_;
  uint64_t seen_ = 0;
};

TEST_F(Lifetimes, AFreedBlockServesAgainAfterTheLastImporterHasLetGo) {
  ImportOne(0x11);
  SharingProcess other;
  const uint64_t seen_there = Import(other, ticket_);
  Good(owner_.Ask({Do::kFree, block_}));
  EXPECT_EQ(Pending(), 1u);
  EXPECT_EQ(Good(owner_.Ask({Do::kPendingBlocks})).pointer, 0u) << "the program has freed it";
  ExpectRefusal(owner_.Ask({Do::kFree, block_}), COMMPOOL_NOT_FOUND, "");
  EXPECT_NE(Allocate(kSegment), block_);
  Good(importer_.Ask({Do::kRelease, seen_}));
  EXPECT_EQ(Read(other, seen_there), 0x11u);
  EXPECT_EQ(Pending(), 1u);
  Good(other.Ask({Do::kRelease, seen_there}));
  AwaitPending(0);
  EXPECT_EQ(Allocate(kSegment), block_);
}

TEST_F(Lifetimes, ABlockServesAgainAfterTheImportersWorkOnTheDevice) {
  ImportOne(0x12);
  Good(owner_.Ask({Do::kFree, block_}));
  Carry(importer_, {{Do::kHoldStream}, {Do::kRelease, seen_}});
  const uint64_t other = Import(importer_, Share(Allocate()));  // an answer from the owner: it has heard all before
  EXPECT_NE(other, seen_);
  EXPECT_EQ(Pending(), 1u);
  Carry(importer_, {{Do::kImport, 0, 1}, {Do::kFreeStream}});
  AwaitPending(0);
}

TEST_F(Lifetimes, ABlockThatIsHeldTwiceServesAgainAfterTheWorkBehindBothReleases) {
  ImportOne(0x18);
  EXPECT_EQ(Good(importer_.Ask({Do::kBlock, 0, 0, ticket_})).pointer, seen_);
  Good(owner_.Ask({Do::kFree, block_}));
  Carry(importer_, {{Do::kHoldStream}, {Do::kRelease, seen_}, {Do::kRelease, seen_, /*default stream=*/1}});
  Import(importer_, Share(Allocate()));  // an answer from the owner: it has heard all before
  EXPECT_EQ(Pending(), 1u);
  Carry(importer_, {{Do::kImport, 0, 1}, {Do::kFreeStream}});
  AwaitPending(0);
}

TEST_F(Lifetimes, AnImporterThatClosesLetsItsBlocksGo) {
  ImportOne(0x13);
  Good(owner_.Ask({Do::kFree, block_}));
  Good(importer_.Ask({Do::kClose}));
  AwaitPending(0);
  ExpectRefusal(importer_.Ask({Do::kBeginRead, seen_}), COMMPOOL_NOT_FOUND, "was closed");
}

TEST_F(Lifetimes, AnImportThatWaitedTooLongHoldsNothing) {
  ShareOne();
  const std::string pool = Good(owner_.Ask({Do::kSharePool, 0, COMMPOOL_IMPORTS_SLEEP_TOO})).text;
  Good(importer_.Ask({Do::kOpen, /*deadline_ms=*/300, 0, pool}));
  owner_.Stop();
  EXPECT_EQ(importer_.Ask({Do::kBlock, 0, 0, ticket_}).status, COMMPOOL_DEADLINE_EXCEEDED);
  owner_.Continue();
  Good(importer_.Ask({Do::kBlock, 0, 0, Share(Allocate())}));  // the owner has heard all before
  Good(owner_.Ask({Do::kFree, block_}));
  AwaitPending(0);
}

TEST_F(Lifetimes, TheTicketsBlockIsHeldFromTheImportOn) {
  ShareOne();
  Good(importer_.Ask({Do::kOpen, 0, 0, ticket_}));
  Good(owner_.Ask({Do::kFree, block_}));
  EXPECT_EQ(Pending(), 1u);
  seen_ = Good(importer_.Ask({Do::kBlock, 0, 0, ticket_})).pointer;
  ReleaseLast();
  ExpectRefusal(importer_.Ask({Do::kBlock, 0, 0, ticket_}), COMMPOOL_NOT_FOUND, "was freed");
}

TEST_F(Lifetimes, AnImporterThatClosesBeforeItAskedForABlockLetsItGo) {
  block_ = Allocate();
  Good(importer_.Ask({Do::kOpen, 0, 0, Share(block_)}));
  Good(owner_.Ask({Do::kFree, block_}));
  EXPECT_EQ(Pending(), 1u);
  Good(importer_.Ask({Do::kClose}));
  AwaitPending(0);
}

TEST_F(Lifetimes, AnImporterThatDiesWhileItReadsLetsItsBlocksGo) {
  ImportOne(0x14);
  Carry(importer_, {{Do::kBeginRead, seen_}, {Do::kHoldStream}, {Do::kEndRead, seen_}, {Do::kBeginRead, seen_}});
  importer_.Kill();
  Write(block_, 0x15);
  Good(owner_.Ask({Do::kFree, block_}));
  AwaitPending(0);
}

TEST_F(Lifetimes, AnUpdateBeginsOnceTheImporterThatItWaitsForHasDied) {
  ImportOne(0x16);
  Good(importer_.Ask({Do::kBeginRead, seen_}));
  owner_.Begin({Do::kBeginUpdate, block_});
  importer_.Kill();
  Good(owner_.Answer());
  Good(owner_.Ask({Do::kEndUpdate, block_}));
}

TEST_F(Lifetimes, AnOwnerThatTrimsLeavesImportersWhatTheyMapped) {
  ImportOne(0x21);
  Good(importer_.Ask({Do::kRelease, seen_}));
  Good(owner_.Ask({Do::kFree, block_}));
  AwaitPending(0);
  EXPECT_GE(Good(owner_.Ask({Do::kTrim})).number, kSegment);
  EXPECT_EQ(Good(importer_.Ask({Do::kFirstByte, seen_})).number, 0x21u) << "the importer keeps what it mapped";
  const uint64_t next = Allocate(kSegment);  // most likely where the other was
  const std::string ticket = Share(next);
  Write(next, 0x22);
  const uint64_t seen = Good(importer_.Ask({Do::kBlock, 0, 0, ticket})).pointer;
  EXPECT_NE(seen, seen_);
  EXPECT_EQ(Read(importer_, seen), 0x22u) << "and has the new memory beside it";
}

TEST_F(Lifetimes, AnOwnerTrimsNoBlockThatImportersHold) {
  ImportOne(0x23);
  Good(owner_.Ask({Do::kFree, block_}));
  EXPECT_EQ(Good(owner_.Ask({Do::kTrim})).number, 0u);
  EXPECT_EQ(Read(importer_, seen_), 0x23u);
}

TEST_F(Lifetimes, AnOwnerThatClosesLeavesImportersTheirBlocks) {
  ImportOne(0x24);
  Good(owner_.Ask({Do::kEndPool}));
  EXPECT_EQ(Read(importer_, seen_), 0x24u);
  SharingProcess other;
  ExpectRefusal(other.Ask({Do::kOpen, 0, 0, ticket_}), COMMPOOL_NOT_FOUND, "the pool of the ticket has ended");
  Good(owner_.Ask({Do::kFree, block_}));
  EXPECT_EQ(Read(importer_, seen_), 0x24u);
  ReleaseLast();
  EXPECT_EQ(Good(owner_.Ask({Do::kTrim})).number, kSegment);
}

TEST_F(Lifetimes, AnOwnerThatDestroysThePoolLeavesImportersTheirBlocks) {
  ImportOne(0x29);
  Carry(owner_, {{Do::kDestroyPool}, {Do::kFree, block_}});
  EXPECT_EQ(Read(importer_, seen_), 0x29u);
  ExpectCalls(owner_, "cuMemUnmap", 0);
  Good(importer_.Ask({Do::kRelease, seen_}));
  while (OnEmulator() && Calls(owner_, "cuMemUnmap") == 0) {  // the segment goes with its last block
  }
}

TEST_F(Lifetimes, AnOwnerThatEndsLeavesImportersWhatTheyMapped) {
  ImportOne(0x25);
  EXPECT_EQ(Read(importer_, seen_), 0x25u);  // the owner's work has run by then
  owner_.End();
  EXPECT_EQ(Read(importer_, seen_), 0x25u);
  EXPECT_EQ(Good(importer_.Ask({Do::kAddress, block_})).pointer, seen_) << "mapped before";
  ExpectRefusal(importer_.Ask({Do::kAddress, 4096}), COMMPOOL_REMOTE_FAILURE, "has ended");
  Carry(importer_, {{Do::kRelease, seen_}, {Do::kClose}});
}

TEST_F(Lifetimes, AnOwnerThatIsKilledLeavesImportersWhatTheyMapped) {
  ImportOne(0x26);
  EXPECT_EQ(Read(importer_, seen_), 0x26u);  // the owner's work has run by then
  owner_.Kill();
  EXPECT_EQ(Read(importer_, seen_), 0x26u);
  SharingProcess other;
  ExpectRefusal(other.Ask({Do::kOpen, 0, 0, ticket_}), COMMPOOL_REMOTE_FAILURE, "its process has ended");
}

TEST_F(Lifetimes, AReadFailsWhereTheOwnerIsKilledWithinAnUpdate) {
  ImportOne(0x27);
  Good(owner_.Ask({Do::kBeginUpdate, block_}));
  importer_.Begin({Do::kBeginRead, seen_});
  owner_.Kill();
  ExpectRefusal(importer_.Answer(), COMMPOOL_REMOTE_FAILURE, "an update was under way");
}

TEST_F(Lifetimes, AReadIsAnsweredWhereTheOwnerIsKilledBeforeItsUpdateHasRun) {
  ImportOne(0x28);
  Carry(owner_, {{Do::kBeginUpdate, block_}, {Do::kHoldStream}, {Do::kEndUpdate, block_}});
  importer_.Begin({Do::kBeginRead, seen_});
  owner_.Kill();
  // On the emulator the record of a killed process is done; on hardware it never is.
  const Outcome answer = importer_.Answer();
  EXPECT_TRUE(answer.status == COMMPOOL_OK || answer.status == COMMPOOL_REMOTE_FAILURE) << answer.text;
}

TEST_F(Lifetimes, AReadFailsAtOnceWhereTheBlockIsFreedWithinAnUpdate) {
  ImportOne(0x28);
  Good(owner_.Ask({Do::kBeginUpdate, block_}));
  BeginReadThatWaits();
  Good(owner_.Ask({Do::kFree, block_}));
  ExpectRefusal(importer_.Answer(), COMMPOOL_REMOTE_FAILURE, "has freed the block within an update");
  EXPECT_EQ(owner_.Ask({Do::kEndUpdate, block_}).status, COMMPOOL_NOT_FOUND);
  ExpectRefusal(importer_.Ask({Do::kBeginRead, seen_}), COMMPOOL_REMOTE_FAILURE, "neither old nor new");
  ReleaseLast();
}

TEST_F(Lifetimes, AReadFailsAtOnceWhereThePoolEndsWithinAnUpdateUntilThatEnds) {
  for (const Do end : {Do::kEndPool, Do::kDestroyPool}) {
    Good(owner_.Ask({Do::kMakePool}));
    ImportOne(0x28);
    Good(owner_.Ask({Do::kBeginUpdate, block_}));
    BeginReadThatWaits();
    Good(owner_.Ask({end}));
    ExpectRefusal(importer_.Answer(), COMMPOOL_REMOTE_FAILURE, "has ended its pool within an update");
    if (end == Do::kDestroyPool) continue;
    Carry(owner_, {{Do::kFill, block_, 0x2b}, {Do::kEndUpdate, block_}});
    EXPECT_EQ(Read(importer_, seen_), 0x2bu);
  }
}

TEST_F(Lifetimes, AReadThatWaitsEndsWhereAnotherThreadClosesTheImport) {
  ShareOne();
  Good(owner_.Ask({Do::kBeginUpdate, block_}));
  SharingWork here;
  for (int round = 0; round < 20; ++round) {
    const commpool_import import = Good(here.Carry({Do::kOpen, 0, 0, ticket_})).number;
    void* const seen = reinterpret_cast<void*>(Good(here.Carry({Do::kBlock, 0, 0, ticket_})).pointer);
    std::atomic<bool> begun{false};
    std::thread reader([&] {
      begun = true;
      EXPECT_EQ(commpool_read_begin(import, seen), COMMPOOL_NOT_FOUND);
    });
    while (!begun) {
    }
    Good(here.Carry({Do::kClose}));
    reader.join();
  }
  Good(owner_.Ask({Do::kEndUpdate, block_}));
}

TEST_F(Lifetimes, AReadFailsAtOnceWhereThePoolEndsAsleep) {
  for (const Do end : {Do::kEndPool, Do::kDestroyPool}) {
    Good(owner_.Ask({Do::kMakePool}));
    ImportSleeper(0x2c);
    Good(owner_.Ask({Do::kSleep}));
    BeginReadThatWaits();
    Good(owner_.Ask({end}));
    ExpectRefusal(importer_.Answer(), COMMPOOL_REMOTE_FAILURE, "ended while it was asleep");
    ExpectRefusal(importer_.Ask({Do::kBeginRead, seen_}), COMMPOOL_REMOTE_FAILURE, "its memory is gone");
    Good(importer_.Ask({Do::kClose}));
  }
}

TEST_F(Lifetimes, AnUpdateUnderALaterTicketIsReadAfterItsOwnerHasEnded) {
  block_ = Allocate();
  seen_ = Import(importer_, Share(block_, COMMPOOL_WRITES_ENDED));
  Share(block_);  // takes the promise back
  // An answer from the owner: the importer has heard all before.
  Good(importer_.Ask({Do::kBlock, 0, 0, Share(Allocate(), COMMPOOL_WRITES_ENDED)}));
  Write(block_, 0x2a);
  Good(owner_.Ask({Do::kFirstByte, block_}));
  owner_.End();
  EXPECT_EQ(Read(importer_, seen_), 0x2au);
}

TEST_F(Lifetimes, AnOwnerDoesNotSleepWhileItIsImported) {
  ImportOne(0x31);
  ExpectRefusal(owner_.Ask({Do::kSleep}), COMMPOOL_FAILED_PRECONDITION, Name() + " has imported it");
  EXPECT_EQ(Read(importer_, seen_), 0x31u);
  Good(importer_.Ask({Do::kClose}));
  while (owner_.Ask({Do::kSleep}).status != COMMPOOL_OK) {  // until its thread has heard of the close
  }
  Good(owner_.Ask({Do::kWake}));
  EXPECT_EQ(Read(importer_, Import(importer_, ticket_)), 0x31u);
}

TEST_F(Lifetimes, ImportsSleepTooAndWakeAtTheSameAddresses) {
  ImportSleeper(0x32);
  for (const uint64_t value : {0x33, 0x34}) {
    Good(owner_.Ask({Do::kSleep}));
    EXPECT_EQ(importer_.Ask({Do::kFirstByte, seen_}).status, COMMPOOL_DRIVER_ERROR) << "it is not mapped";
    BeginReadThatWaits();
    SharingProcess late;
    Good(late.Ask({Do::kOpen, 0, 0, ticket_}));
    ExpectRefusal(late.Ask({Do::kBlock, 0, 0, ticket_}), COMMPOOL_FAILED_PRECONDITION, "is asleep");
    Good(owner_.Ask({Do::kWake}));
    Good(importer_.Answer());
    Good(importer_.Ask({Do::kEndRead, seen_}));
    EXPECT_EQ(Read(importer_, seen_), value - 1) << "kept on the host meanwhile";
    Write(block_, value);
    EXPECT_EQ(Read(importer_, seen_), value) << "and the owner's new memory";
  }
}

// The server's thread answers the importers of all pools, and a sleep waits for the device.
TEST_F(Lifetimes, AnImporterHearsAtOnceThatThePoolFallsAsleep) {
  SharingWork here;
  Good(here.Carry({Do::kMakePool}));
  const auto share = [&here] {
    const uint64_t block = Good(here.Carry({Do::kAllocate, 0, kSegment})).pointer;
    return Good(here.Carry({Do::kShareBlock, block, COMMPOOL_WRITES_GO_ON})).text;
  };
  const std::string first = share(), second = share();
  Good(here.Carry({Do::kAllocate, 0, 4096}));  // so that further ones need no growth, which a sleep lets nobody begin
  Good(here.Carry({Do::kSharePool, 0, COMMPOOL_IMPORTS_SLEEP_TOO}));
  constexpr uint64_t kDeadlineMs = 10000;
  Import(importer_, first, kDeadlineMs);
  Good(here.Carry({Do::kHoldStream}));
  std::thread sleeper([&here] { Good(here.Carry({Do::kSleep})); });
  for (Outcome made; (made = here.Carry({Do::kAllocate, 0, 4096})).status == COMMPOOL_OK;) {
    Good(here.Carry({Do::kFree, made.pointer}));
  }
  for (int again = 0; again < 50 && !HasFailure(); ++again) {
    ExpectRefusal(importer_.Ask({Do::kBlock, 0, 0, second}), COMMPOOL_FAILED_PRECONDITION, "asleep");
  }
  Good(here.Carry({Do::kFreeStream}));
  sleeper.join();
}

// The owner keeps what it cannot name any more: the importer reads on.
TEST_F(Lifetimes, ASleepKeepsWhatImportersHoldAlthoughTheOwnerHasFreedIt) {
  ImportSleeper(0x37);
  Good(owner_.Ask({Do::kFree, block_}));
  for (int sleep = 0; sleep < 2; ++sleep) {
    Carry(owner_, {{Do::kSleep}, {Do::kWake}});
    EXPECT_EQ(Read(importer_, seen_), 0x37u) << sleep;
  }
  ReleaseLast();
  EXPECT_EQ(Allocate(kSegment), block_);
}

TEST_F(Lifetimes, ABlockThatIsFreedInSleepKeepsWhatImportersHold) {
  ImportSleeper(0x38);
  Carry(owner_, {{Do::kSleep}, {Do::kFree, block_}, {Do::kWake}});
  EXPECT_EQ(Read(importer_, seen_), 0x38u);
}

// This process is the importer, and captures a graph with a pool of its own.
TEST_F(Lifetimes, AnOwnerDoesNotSleepWhileAnImporterCaptures) {
  const CudaDriver& cuda = SharedDriver()->cuda;
  ticket_ = Share(Allocate());
  Good(owner_.Ask({Do::kSharePool, 0, COMMPOOL_IMPORTS_SLEEP_TOO}));
  SharingWork here;
  Good(here.Carry({Do::kOpen, 0, 0, ticket_}));
  Pool pool = Pool::create({}).value();
  CUstream stream = nullptr;
  ASSERT_EQ(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  {
    const CaptureScope capture(pool, stream);
    ExpectRefusal(owner_.Ask({Do::kSleep}), COMMPOOL_FAILED_PRECONDITION, "is being captured");
    EXPECT_EQ(cuda.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS) << "the graph is whole";
  }
  Carry(owner_, {{Do::kSleep}, {Do::kWake}});
  if (graph != nullptr) cuda.cuGraphDestroy(graph);
  cuda.cuStreamDestroy(stream);
}

TEST_F(Lifetimes, AnImporterThatDiesInSleepIsForgotten) {
  ImportSleeper(0x35);
  Good(owner_.Ask({Do::kSleep}));
  importer_.Kill();
  Good(owner_.Ask({Do::kWake}));
  Write(block_, 0x36);
}

class ImpatientSleeper : public Lifetimes {
 protected:
  ImpatientSleeper() : Lifetimes("100") {}
};

TEST_F(ImpatientSleeper, StaysAwakeWhereAnImporterReads) {
  ImportSleeper(0x37);
  Good(importer_.Ask({Do::kBeginRead, seen_}));
  ExpectRefusal(owner_.Ask({Do::kSleep}), COMMPOOL_DEADLINE_EXCEEDED, Name());
  EXPECT_EQ(Good(importer_.Ask({Do::kFirstByte, seen_})).number, 0x37u);
  Good(importer_.Ask({Do::kEndRead, seen_}));
  Carry(owner_, {{Do::kSleep}, {Do::kWake}});
  EXPECT_EQ(Read(importer_, seen_), 0x37u);
}

TEST_F(ImpatientSleeper, StaysAwakeWhereAnImportersDeviceIsBusy) {
  ImportSleeper(0x39);
  Good(importer_.Ask({Do::kHoldStream}));
  EXPECT_EQ(owner_.Ask({Do::kSleep}).status, COMMPOOL_DEADLINE_EXCEEDED);
  // The importer goes on meanwhile.
  constexpr uint64_t kDeadlineMs = 10000;
  Import(importer_, Share(Allocate()), kDeadlineMs);
  Good(importer_.Ask({Do::kImport, 0, 1}));
  EXPECT_EQ(importer_.Ask({Do::kAddress, block_}).pointer, seen_);
  Good(importer_.Ask({Do::kFreeStream}));
  EXPECT_EQ(Read(importer_, seen_), 0x39u);
}

// The importer stands still over a sleep that fails, and answers both while the owner falls asleep again.
TEST_F(ImpatientSleeper, TakesALateAnswerForNoOtherSleeps) {
  ImportSleeper(0x38);
  for (int round = 0; round < 20; ++round) {
    importer_.Stop();
    ExpectRefusal(owner_.Ask({Do::kSleep}), COMMPOOL_DEADLINE_EXCEEDED, "does not let the memory go");
    owner_.Begin({Do::kSleep});
    importer_.Continue();
    const Outcome slept = owner_.Answer();
    if (slept.status != COMMPOOL_OK) {
      ExpectRefusal(slept, COMMPOOL_DEADLINE_EXCEEDED, "does not let the memory go");
      continue;
    }
    importer_.Begin({Do::kBeginRead, seen_});
    Good(owner_.Ask({Do::kWake}));
    Good(importer_.Answer());
    Good(importer_.Ask({Do::kEndRead, seen_}));
  }
  EXPECT_EQ(Read(importer_, seen_), 0x38u);
}

class HastySleeper : public Lifetimes {
 protected:
  HastySleeper() : Lifetimes("1") {}
};

TEST_F(HastySleeper, GivesNoBlockToAnImportThatItHasEnded) {
  ShareOne();
  Good(owner_.Ask({Do::kSharePool, 0, COMMPOOL_IMPORTS_SLEEP_TOO}));
  Good(importer_.Ask({Do::kOpen, 0, 0, ticket_}));
  importer_.Stop();
  while (owner_.Ask({Do::kSleep}).status != COMMPOOL_OK) {  // each time two messages, until they are too many
  }
  importer_.Continue();
  EXPECT_EQ(importer_.Ask({Do::kBlock, 0, 0, ticket_}).status, COMMPOOL_REMOTE_FAILURE);
}

}  // namespace
}  // namespace commpool::internal::testing
