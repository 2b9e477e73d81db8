// Devices without links: 2.28.9 answers a window registration with a local handle that poses as a window.
#include <cstdlib>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kUnlinked = setenv("COMMPOOL_EMULATOR", "links=none", 1);

class UnlinkedWindows : public EmulatedNccl {};

// NCCL 2.28.9, src/dev_runtime.cc; NVIDIA/nccl#1963.
TEST_F(UnlinkedWindows, AreLocalRegistrations) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 2 << 20);
    const ncclWindow_t window = RegisterWindow(rank, memory.data(), memory.bytes(), NCCL_WIN_COLL_SYMMETRIC);
    EXPECT_NE(window, nullptr);
    void* handle = nullptr;
    ASSERT_EQ(Api().ncclCommRegister(rank.comm, memory.data(), memory.bytes(), &handle), ncclSuccess);
    EXPECT_EQ(handle, static_cast<void*>(window));
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
    EXPECT_EQ(Api().ncclCommDeregister(rank.comm, handle), ncclSuccess);
  });
}

// NCCL 2.28.9, src/dev_runtime.cc: nothing is written then.
TEST_F(UnlinkedWindows, AreNotWrittenWithoutLocalRegistration) {
  setenv("NCCL_LOCAL_REGISTER", "0", 1);
  const auto expect = [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 2 << 20);
    auto window = reinterpret_cast<ncclWindow_t>(&rank);
    ASSERT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), memory.bytes(), &window, 0), ncclSuccess);
    EXPECT_EQ(window, reinterpret_cast<ncclWindow_t>(&rank));
  };
  InANewProcess([&] { RunRanks(2, expect); });
  unsetenv("NCCL_LOCAL_REGISTER");
}

TEST_F(UnlinkedWindows, HaveNoMulticast) {
  setenv("NCCL_SINGLE_PROC_MEM_REG_ENABLE", "1", 1);
  const auto expect = [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 2 << 20);
    void* handle = nullptr;
    ASSERT_EQ(Api().ncclCommRegister(rank.comm, memory.data(), memory.bytes(), &handle), ncclSuccess);
    char reason[256] = {};
    EXPECT_EQ(Api().commpoolEmulatorNvls(reinterpret_cast<CUdeviceptr>(memory.data()), reason, sizeof reason), 0);
    EXPECT_STREQ(reason, "not all GPUs reach each other");
    EXPECT_EQ(Api().ncclCommDeregister(rank.comm, handle), ncclSuccess);
  };
  InANewProcess([&] { RunRanks(3, expect); });
  unsetenv("NCCL_SINGLE_PROC_MEM_REG_ENABLE");
}

}  // namespace
}  // namespace commpool::internal::testing
