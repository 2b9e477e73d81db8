// An owner and an importer, each a process of its own.
#pragma once

#include <string>
#include <utility>

#include "tests/driver/emulator_fixture.h"
#include "tests/sharing/sharing_process.h"

namespace commpool::internal::testing {

class SharingTest : public ::testing::Test {
 protected:
  // `deadline_ms`: of the owner's waits. `emulator`: the processes' COMMPOOL_EMULATOR, where that is another.
  explicit SharingTest(const std::string& deadline_ms = {}, const char* emulator = nullptr)
      : owner_(emulator), importer_(emulator) {
    Good(owner_.Ask({Do::kMakePool, 0, 0, deadline_ms}));
  }

  uint64_t Allocate(uint64_t bytes = 1 << 20) { return Good(owner_.Ask({Do::kAllocate, 0, bytes})).pointer; }
  std::string Share(uint64_t block, commpool_writes writes = COMMPOOL_WRITES_GO_ON) {
    return Good(owner_.Ask({Do::kShareBlock, block, writes})).text;
  }
  // A block and its ticket.
  std::pair<uint64_t, std::string> ShareABlock() {
    const uint64_t block = Allocate();
    return {block, Share(block)};
  }
  // A block, and where the importer has it.
  std::pair<uint64_t, uint64_t> ImportABlock() {
    const auto [block, ticket] = ShareABlock();
    return {block, Import(importer_, ticket)};
  }
  void Write(uint64_t block, uint64_t value) {
    Carry(owner_, {{Do::kBeginUpdate, block}, {Do::kFill, block, value}, {Do::kEndUpdate, block}});
  }
  // Imports the block of a ticket; returns where it is there.
  static uint64_t Import(SharingProcess& importer, const std::string& ticket, uint64_t deadline_ms = 0) {
    Good(importer.Ask({Do::kOpen, deadline_ms, COMMPOOL_ADDRESSES_ANY, ticket}));
    return Good(importer.Ask({Do::kBlock, 0, 0, ticket})).pointer;
  }
  static uint64_t Read(SharingProcess& importer, uint64_t block) {
    Good(importer.Ask({Do::kBeginRead, block}));
    const uint64_t value = Good(importer.Ask({Do::kFirstByte, block})).number;
    Good(importer.Ask({Do::kEndRead, block}));
    return value;
  }
  static uint64_t Calls(SharingProcess& process, const char* call) {
    return Good(process.Ask({Do::kCalls, 0, 0, call})).number;
  }
  // Expects nothing on hardware, which counts no calls.
  static void ExpectCalls(SharingProcess& process, const char* call, uint64_t expected, const char* why = "") {
    if (OnEmulator()) {
      EXPECT_EQ(Calls(process, call), expected) << call << " " << why;
    }
  }
  // As a refusal of the owner's names the importer.
  std::string Name() const { return "process " + std::to_string(importer_.process()); }
  uint64_t Pending() { return Good(owner_.Ask({Do::kPendingBlocks})).number; }
  // The owner hears of a block's release when its importer's thread tells it.
  void AwaitPending(uint64_t blocks) {
    while (Pending() != blocks) {
    }
  }

  SharingProcess owner_;
  SharingProcess importer_;
};

}  // namespace commpool::internal::testing
