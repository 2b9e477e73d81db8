// Differences between releases, and windows that are not supported.
#include <cstdlib>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kNewer = setenv("COMMPOOL_EMULATOR", "nccl=2.30.7,windows=no", 1);

constexpr size_t kBytes = 2 << 20;

class Version : public EmulatedNccl {};

TEST_F(Version, IsTheOneOfTheDescription) {
  int version = 0;
  ASSERT_EQ(Api().ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 23007);
}

// NCCL 2.30.7, src/dev_runtime.cc: success with a null window where symmetric memory is not supported.
TEST_F(Version, UnsupportedWindowsAreNullWithSuccess) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    auto window = reinterpret_cast<ncclWindow_t>(&rank);
    ASSERT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), kBytes, &window, NCCL_WIN_COLL_SYMMETRIC),
              ncclSuccess);
    EXPECT_EQ(window, nullptr);
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
  });
}

// NCCL 2.30.7, src/register/register.cc: success for CPU memory, and the handle is left as it was.
TEST_F(Version, HostMemoryIsNotRegisteredAndTheHandleNotWritten) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes, MemoryKind::kVirtual, CU_MEM_LOCATION_TYPE_HOST_NUMA);
    void* handle = &rank;
    ASSERT_EQ(Api().ncclCommRegister(rank.comm, memory.data(), kBytes, &handle), ncclSuccess);
    EXPECT_EQ(handle, &rank);
  });
}

}  // namespace
}  // namespace commpool::internal::testing
