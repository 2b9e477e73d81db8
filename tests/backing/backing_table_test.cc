// The table of backings, and which version of NCCL registers which memory. Needs no driver.
#include "src/library/backing/backing_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "src/library/backing/backing.h"

namespace commpool::internal {
namespace {

TEST(BackingTable, NumbersAreThoseOfTheCAbi) {
  EXPECT_STREQ(FindBacking(COMMPOOL_BACKING_VMM)->name, "vmm");
  EXPECT_STREQ(FindBacking(COMMPOOL_BACKING_CUDA)->name, "cuda");
  EXPECT_STREQ(FindBacking(COMMPOOL_BACKING_NCCL)->name, "nccl");
  EXPECT_STREQ(FindBacking(COMMPOOL_BACKING_USER)->name, "user");
  EXPECT_STREQ(FindBacking(COMMPOOL_BACKING_PINNED)->name, "pinned");
}

TEST(BackingTable, FindsEachRowByNumberAndByName) {
  std::set<std::string> names;
  for (const BackingRow* row : AllBackings()) {
    EXPECT_EQ(FindBacking(row->kind), row);
    EXPECT_EQ(FindBacking(row->name), row);
    EXPECT_STREQ(Name(row->kind), row->name);
    names.insert(row->name);
  }
  EXPECT_EQ(names.size(), AllBackings().size()) << "no two share a name";
}

TEST(BackingTable, HasNoRowForAnUnknownBacking) {
  EXPECT_EQ(FindBacking(17), nullptr);
  EXPECT_EQ(FindBacking(-1), nullptr);
  EXPECT_EQ(FindBacking("vm"), nullptr);
  EXPECT_EQ(FindBacking(""), nullptr);
  EXPECT_STREQ(Name(static_cast<BackingKind>(17)), "unknown");
}

TEST(BackingTable, NamesThoseThatFit) {
  EXPECT_EQ(NamesOfBackings([](const BackingRow&) { return true; }), "vmm, nccl, cuda, pinned, user");
  EXPECT_EQ(NamesOfBackings([](const BackingRow& row) { return row.maker == Maker::kProgram; }), "user");
  EXPECT_EQ(NamesOfBackings([](const BackingRow&) { return false; }), "");
}

constexpr MemoryKind kKinds[] = {MemoryKind::kVirtual, MemoryKind::kHostVirtual, MemoryKind::kUnshareable,
                                 MemoryKind::kLinear, MemoryKind::kForeign};

// A library of that version, with the functions of that version.
NcclLibrary Library(int version) {
  NcclLibrary nccl;
  nccl.version = version;
  if (version >= 21900) {
    nccl.ncclMemAlloc = [](void**, size_t) { return ncclInternalError; };
    nccl.ncclCommRegister = [](const ncclComm_t, void*, size_t, void**) { return ncclInternalError; };
  }
  if (version >= 22700) {
    nccl.ncclCommWindowRegister = [](ncclComm_t, void*, size_t, ncclWindow_t*, int) { return ncclInternalError; };
  }
  return nccl;
}

TEST(NcclSupport, WithoutNcclNothingRegisters) {
  NcclLibrary none;
  none.why_missing = "no libnccl.so.2";
  for (const MemoryKind kind : kKinds) {
    EXPECT_FALSE(CanRegisterLocalMemory(none, kind).ok());
    EXPECT_FALSE(CanRegisterWindowMemory(none, kind).ok());
  }
}

TEST(NcclSupport, OldLibrariesAreNamed) {
  EXPECT_NE(CanRegisterLocalMemory(Library(21805), MemoryKind::kVirtual).message().find("2.18.5"), std::string::npos);
  EXPECT_NE(CanRegisterWindowMemory(Library(22602), MemoryKind::kVirtual).message().find("2.26.2"), std::string::npos);
}

TEST(NcclSupport, LocalRegistrationTakesAllDeviceMemory) {
  for (const MemoryKind kind : kKinds) {
    EXPECT_EQ(CanRegisterLocalMemory(Library(22809), kind).ok(), kind != MemoryKind::kHostVirtual);
  }
}

TEST(NcclSupport, WindowsTakeOneShareableHandle) {
  for (const MemoryKind kind : kKinds) {
    EXPECT_EQ(CanRegisterWindowMemory(Library(22809), kind).ok(), kind == MemoryKind::kVirtual);
  }
}

TEST(NcclSupport, WindowsOverHostMemoryCameLater) {
  EXPECT_NE(CanRegisterWindowMemory(Library(22809), MemoryKind::kHostVirtual).message().find("2.30.3"),
            std::string::npos);
  EXPECT_TRUE(CanRegisterWindowMemory(Library(23003), MemoryKind::kHostVirtual).ok());
}

TEST(NcclSupport, GivesAReasonExactlyForWhatIsNotAvailable) {
  for (const int version : {0, 21805, 21903, 22705, 22809, 23007}) {
    for (const MemoryKind kind : kKinds) {
      const Status local = CanRegisterLocalMemory(Library(version), kind);
      const Status window = CanRegisterWindowMemory(Library(version), kind);
      EXPECT_EQ(local.ok(), local.message().empty());
      EXPECT_EQ(window.ok(), window.message().empty());
    }
  }
}

}  // namespace
}  // namespace commpool::internal
