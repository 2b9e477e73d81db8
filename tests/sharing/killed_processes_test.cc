// Each side is killed again and again, whatever it is doing: nobody hangs, and nothing is left.
#include "tests/sharing/sharing_test.h"

namespace commpool::internal::testing {
namespace {

constexpr int kTimes = 100;

using KilledProcesses = SharingTest;

// Gives the process an order and does not wait for the answer: it carries the order out when the signal comes.
void BeginSomething(SharingProcess& importer, int time, const std::string& ticket, uint64_t seen) {
  switch (time % 5) {
    case 0:
      return importer.Begin({Do::kOpen, 0, 0, ticket});
    case 1:
      return importer.Begin({Do::kBeginRead, seen});
    case 2:
      Carry(importer, {{Do::kBeginRead, seen}, {Do::kHoldStream}});
      return importer.Begin({Do::kEndRead, seen});
    case 3:
      return importer.Begin({Do::kRelease, seen});
    default:
      return importer.Begin({Do::kClose});
  }
}

TEST_F(KilledProcesses, ThatImportHoldNobodyAndLeaveNothing) {
  const auto [block, ticket] = ShareABlock();
  Import(importer_, ticket);
  const uint64_t before = Good(owner_.Ask({Do::kDescriptors})).number;
  for (int time = 0; time < kTimes; ++time) {
    SharingProcess importer;
    const uint64_t seen = Import(importer, ticket);
    BeginSomething(importer, time, ticket, seen);
    importer.Kill();
    Write(block, static_cast<uint64_t>(time));
  }
  while (Good(owner_.Ask({Do::kDescriptors})).number > before) {  // until its thread has heard of the last one
  }
  Good(importer_.Ask({Do::kClose}));
  Good(owner_.Ask({Do::kFree, block}));
  AwaitPending(0);
  EXPECT_EQ(Sockets().size(), 1u) << "the owner's own";
}

TEST_F(KilledProcesses, ThatOwnHoldNobodyAndLeaveNothing) {
  uint64_t before = 0;
  for (int time = 0; time < kTimes; ++time) {
    // The driver opens some for itself when it imports its first segments.
    if (time == 3) before = Good(importer_.Ask({Do::kDescriptors})).number;
    SharingProcess owner;
    Good(owner.Ask({Do::kMakePool}));
    const uint64_t block = Good(owner.Ask({Do::kAllocate, 0, 1 << 20})).pointer;
    const std::string ticket = Good(owner.Ask({Do::kShareBlock, block})).text;
    const uint64_t seen = Import(importer_, ticket);
    if (time % 3 == 1) Good(owner.Ask({Do::kBeginUpdate, block}));
    if (time % 3 == 2) owner.Begin({Do::kFree, block});
    importer_.Begin({Do::kBeginRead, seen});
    owner.Kill();
    const Outcome read = importer_.Answer();
    if (read.status == COMMPOOL_OK) Good(importer_.Ask({Do::kEndRead, seen}));
    const commpool_status expected = time % 3 == 1 ? COMMPOOL_REMOTE_FAILURE : COMMPOOL_OK;
    EXPECT_EQ(read.status, expected) << read.text;
    Carry(importer_, {{Do::kRelease, seen}, {Do::kClose}});
  }
  EXPECT_LE(Good(importer_.Ask({Do::kDescriptors})).number, before);
  Good(owner_.Ask({Do::kSharePool}));  // sweeps what nobody else has noticed
  EXPECT_EQ(Sockets().size(), 1u);
}

}  // namespace
}  // namespace commpool::internal::testing
