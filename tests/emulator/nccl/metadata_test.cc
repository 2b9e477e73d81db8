// The parts without a driver: registration tables, the comparison of headers, the log's settings.
#include <gtest/gtest.h>

#include "src/emulator/nccl/collective.h"
#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/registration.h"

namespace commpool::internal::emulated_nccl {
namespace {

void* Address(uintptr_t value) { return reinterpret_cast<void*>(value); }

TEST(RegistrationCache, RoundsToPages) {
  RegistrationCache cache;
  const RegistrationCache::Added added = cache.Add(Address(0x10010), 16);
  EXPECT_TRUE(added.created);
  EXPECT_EQ(cache.Find(Address(0x10000), 4096), added.slot);
  EXPECT_EQ(cache.Find(Address(0x10000), 4097), nullptr);
}

TEST(RegistrationCache, FindsTheFirstSlotThatCovers) {
  RegistrationCache cache;
  LocalRegistration* high = cache.Add(Address(0x11000), 0x2000).slot;
  LocalRegistration* low = cache.Add(Address(0x10000), 0x2000).slot;
  EXPECT_EQ(cache.Find(Address(0x11000), 0x1000), low);
  EXPECT_EQ(cache.Find(Address(0x12000), 0x1000), high);
  EXPECT_FALSE(cache.Holds(nullptr));
}

TEST(RegistrationCache, HandsTheSlotBackWithItsLastReference) {
  RegistrationCache cache;
  LocalRegistration* slot = cache.Add(Address(0x10000), 0x2000).slot;
  EXPECT_FALSE(cache.Add(Address(0x10000), 0x2000).created);
  EXPECT_EQ(cache.Release(slot), nullptr);
  EXPECT_NE(cache.Release(slot), nullptr);
  EXPECT_TRUE(cache.slots().empty());
}

TEST(CommunicatorWindows, FindsWindowsByAddressAndByMemory) {
  CommunicatorWindows table;
  const auto handle = reinterpret_cast<ncclWindow_t>(Address(0x400));
  const EmulatedWindow* window =
      table.Add({.number = 1, .buffer = 0x20000, .bytes = 0x1000, .physical = 7, .handle = handle});
  EXPECT_EQ(table.Find(Address(0x20fff)), window);
  EXPECT_EQ(table.Find(Address(0x21000)), nullptr);
  EXPECT_EQ(table.FindPhysical(7), window);
  EXPECT_EQ(table.FindPhysical(8), nullptr);
  EXPECT_EQ(table.OfHandle(handle), window);
  table.Remove(window);
  EXPECT_EQ(table.OfHandle(handle), nullptr);
  EXPECT_EQ(table.Find(Address(0x20000)), nullptr);
}

std::vector<CollectiveHeader> Headers(size_t ranks) {
  CollectiveHeader header;
  header.sequence = 3;
  header.count = 10;
  return std::vector<CollectiveHeader>(ranks, header);
}

TEST(FindMismatch, IsSilentWhereAllAgree) { EXPECT_EQ(FindMismatch(Headers(4)), std::nullopt); }

TEST(FindMismatch, NamesTheRankThatDiffers) {
  const auto differs = [](const auto& change) {
    std::vector<CollectiveHeader> headers = Headers(3);
    change(headers[2]);
    const std::optional<Mismatch> mismatch = FindMismatch(headers);
    return mismatch && mismatch->rule == "collectives differ between ranks" &&
           mismatch->details.find("rank 0: ") == 0 && mismatch->details.find("; rank 2: ") != std::string::npos;
  };
  EXPECT_TRUE(differs([](CollectiveHeader& header) { header.count = 11; }));
  EXPECT_TRUE(differs([](CollectiveHeader& header) { header.sequence = 4; }));
  EXPECT_TRUE(differs([](CollectiveHeader& header) { header.kind = CollectiveKind::kBroadcast; }));
  EXPECT_TRUE(differs([](CollectiveHeader& header) { header.type = ncclInt8 + 1; }));
  EXPECT_TRUE(differs([](CollectiveHeader& header) { header.operation = ncclMax; }));
  EXPECT_TRUE(differs([](CollectiveHeader& header) { header.root = 1; }));
}

TEST(FindMismatch, ComparesOffsetsOfSymmetricKernelsOnly) {
  std::vector<CollectiveHeader> headers = Headers(2);
  headers[1].send = {1, 512};
  EXPECT_EQ(FindMismatch(headers), std::nullopt);
  headers[0].route = Route::kSymmetricKernel;
  EXPECT_EQ(FindMismatch(headers)->rule, "window offsets differ between ranks");
  headers[1].route = Route::kCopyEngines;
  EXPECT_EQ(FindMismatch(headers)->rule, "window offsets differ between ranks");
  headers[1].route = Route::kSymmetricKernel;
  EXPECT_EQ(FindMismatch(headers)->rule, "window offsets differ between ranks");
  headers[0].send = {1, 512};
  EXPECT_EQ(FindMismatch(headers), std::nullopt);
}

TEST(FindMismatch, LeavesToEachRankWhereItsOwnPartLiesInPlace) {
  std::vector<CollectiveHeader> headers = Headers(2);
  for (CollectiveHeader& header : headers) header.route = Route::kSymmetricKernel;
  const auto set_kind = [&headers](CollectiveKind kind) {
    for (CollectiveHeader& header : headers) header.kind = kind;
    return FindMismatch(headers);
  };
  headers[1].send = {1, 512};
  EXPECT_EQ(set_kind(CollectiveKind::kAllGather), std::nullopt);
  EXPECT_NE(set_kind(CollectiveKind::kReduceScatter), std::nullopt);
  headers[1].send = {};
  headers[1].receive = {1, 512};
  EXPECT_EQ(set_kind(CollectiveKind::kReduceScatter), std::nullopt);
  EXPECT_NE(set_kind(CollectiveKind::kAllGather), std::nullopt);
}

TEST(LogSettings, ParseLevels) {
  EXPECT_EQ(ParseLogLevel(""), NcclLogLevel::kNone);
  EXPECT_EQ(ParseLogLevel("loud"), NcclLogLevel::kNone);
  EXPECT_EQ(ParseLogLevel("VERSION"), NcclLogLevel::kVersion);
  EXPECT_EQ(ParseLogLevel("INFO"), NcclLogLevel::kInfo);
}

TEST(LogSettings, ParseSubjects) {
  const auto has = [](const char* text, Subject subject) {
    return (ParseSubjects(text) & static_cast<uint32_t>(subject)) != 0;
  };
  EXPECT_TRUE(has("", Subject::kInit));
  EXPECT_FALSE(has("", Subject::kTuning));
  EXPECT_TRUE(has("TUNING,REG", Subject::kRegistration));
  EXPECT_FALSE(has("TUNING,REG", Subject::kInit));
  EXPECT_TRUE(has("ALL", Subject::kTuning));
  EXPECT_FALSE(has("^REG", Subject::kRegistration));
  EXPECT_TRUE(has("^REG", Subject::kTuning));
}

TEST(LogSettings, ExpandFileNames) {
  EXPECT_EQ(ExpandFileName("log.%h.%p", "node", 42), "log.node.42");
  EXPECT_EQ(ExpandFileName("100%%", "node", 42), "100%");
  EXPECT_EQ(ExpandFileName("%x%", "node", 42), "%x%");
  EXPECT_EQ(ExpandFileName("", "node", 42), "");
}

}  // namespace
}  // namespace commpool::internal::emulated_nccl
