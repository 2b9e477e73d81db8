// Which version of NCCL registers which memory. Needs no driver.
#include <gtest/gtest.h>

#include "src/library/backing/backing.h"

namespace commpool::internal {
namespace {

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
