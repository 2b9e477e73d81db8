// As release 2.19: local registrations, and no windows.
#include <cstdlib>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kOld = setenv("COMMPOOL_EMULATOR", "nccl=2.19.3", 1);

constexpr size_t kBytes = 2 << 20;

class OldRelease : public EmulatedNccl {};

TEST_F(OldRelease, TellsItsVersion) {
  int version = 0;
  ASSERT_EQ(Api().ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 21903);
}

// A library of that release lacks the symbols. Here they return errors, and src/library/driver hides them.
TEST_F(OldRelease, RefusesWhatCameLater) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    ncclWindow_t window = nullptr;
    ncclComm_t child = nullptr;
    int excluded[] = {1};
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), kBytes, &window, 0), ncclInvalidUsage);
    EXPECT_EQ(window, nullptr);
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, nullptr), ncclInvalidUsage);
    EXPECT_EQ(Api().ncclCommShrink(rank.comm, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclInvalidUsage);
    EXPECT_EQ(Api().ncclCommRevoke(rank.comm, NCCL_REVOKE_DEFAULT), ncclInvalidUsage);
    EXPECT_EQ(Api().ncclCommSuspend(rank.comm, NCCL_SUSPEND_MEM), ncclInvalidUsage);
    EXPECT_EQ(Api().ncclCommResume(rank.comm), ncclInvalidUsage);
    uint64_t bytes = 0;
    EXPECT_EQ(Api().ncclCommMemStats(rank.comm, ncclStatGpuMemTotal, &bytes), ncclInvalidUsage);
    EXPECT_EQ(Api().ncclCommGrow(rank.comm, 2, nullptr, -1, &child, nullptr), ncclInvalidUsage);
    EXPECT_NE(LastError().find("has no ncclCommGrow"), std::string::npos);
    EXPECT_EQ(Api().ncclAlltoAll(memory.data(), memory.data(), 1, ncclInt, rank.comm, rank.stream), ncclInvalidUsage);
  });
}

TEST_F(OldRelease, HasLocalRegistrationsAndSplits) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    EXPECT_NE(ScopedHandle(rank, memory), nullptr);
    EXPECT_NE(ScopedChild(rank.comm).get(), nullptr);
  });
}

}  // namespace
}  // namespace commpool::internal::testing
