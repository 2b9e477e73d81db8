// Devices without links: 2.28.9 answers a window registration with a local handle that poses as a window.
#include <cstdlib>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kUnlinked = setenv("COMMPOOL_EMULATOR", "links=none", 1);

class UnlinkedWindows : public EmulatedNccl {};

// NCCL 2.28.9, src/dev_runtime.cc; NVIDIA/nccl#1963.
TEST_F(UnlinkedWindows, AreLocalRegistrations) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    auto window = ScopedWindow(rank, memory, NCCL_WIN_COLL_SYMMETRIC);
    EXPECT_NE(window.get(), nullptr);
    const auto handle = ScopedHandle(rank, memory);
    EXPECT_EQ(handle.get(), static_cast<void*>(window.get()));
    window.reset();
  });
}

// NCCL 2.28.9, src/dev_runtime.cc: nothing is written then.
TEST_F(UnlinkedWindows, AreNotWrittenWithoutLocalRegistration) {
  const auto expect = [](Rank& rank, const DeviceMemory& memory) {
    auto window = reinterpret_cast<ncclWindow_t>(&rank);
    ASSERT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), memory.bytes(), &window, 0), ncclSuccess);
    EXPECT_EQ(window, reinterpret_cast<ncclWindow_t>(&rank));
  };
  InANewProcessWith("NCCL_LOCAL_REGISTER", "0", [&] { RunRanks(2, expect); });
}

TEST_F(UnlinkedWindows, HaveNoMulticast) {
  const auto expect = [](Rank& rank, const DeviceMemory& memory) {
    const auto handle = ScopedHandle(rank, memory);
    char reason[256] = {};
    EXPECT_EQ(Api().commpoolEmulatorNvls(reinterpret_cast<CUdeviceptr>(memory.data()), reason, sizeof reason), 0);
    EXPECT_STREQ(reason, "not all GPUs reach each other");
  };
  InANewProcessWith("NCCL_SINGLE_PROC_MEM_REG_ENABLE", "1", [&] { RunRanks(3, expect); });
}

}  // namespace
}  // namespace commpool::internal::testing
