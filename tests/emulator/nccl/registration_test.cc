// Local registrations and windows: each test names the rule of NCCL that it holds the emulator to.
#include <atomic>
#include <memory>
#include <thread>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

constexpr size_t kBytes = 2 << 20;

class LocalRegistration : public EmulatedNccl {};
class WindowRegistration : public EmulatedNccl {};

// NCCL 2.28.9, src/register/register.cc: metadata only, so ranks need not meet.
TEST_F(LocalRegistration, IsLocal) {
  RunRanks(2, [](Rank& rank) {
    if (rank.rank == 1) return;
    const DeviceMemory memory(rank.rank, kBytes);
    void* handle = nullptr;
    ASSERT_EQ(Api().ncclCommRegister(rank.comm, memory.data(), kBytes, &handle), ncclSuccess);
    ASSERT_NE(handle, nullptr);
    EXPECT_EQ(Api().ncclCommDeregister(rank.comm, handle), ncclSuccess);
  });
}

// NCCL 2.28.9, src/register/register.cc: a contained range takes a reference on the slot that covers it.
TEST_F(LocalRegistration, CountsContainedRangesOnOneHandle) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes);
    void* whole = nullptr;
    void* part = nullptr;
    ASSERT_EQ(Api().ncclCommRegister(rank.comm, memory.data(), kBytes, &whole), ncclSuccess);
    ASSERT_EQ(Api().ncclCommRegister(rank.comm, memory.data() + 8192, 4096, &part), ncclSuccess);
    EXPECT_EQ(whole, part);
    EXPECT_EQ(Api().ncclCommDeregister(rank.comm, whole), ncclSuccess);
    EXPECT_EQ(Api().ncclCommDeregister(rank.comm, part), ncclSuccess);
    EXPECT_EQ(Api().ncclCommDeregister(rank.comm, part), ncclInvalidUsage);
  });
}

// NCCL 2.28.9, src/register/register.cc: a partial overlap makes a second slot.
TEST_F(LocalRegistration, GivesOverlapsTheirOwnHandle) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes);
    void* first = nullptr;
    void* second = nullptr;
    ASSERT_EQ(Api().ncclCommRegister(rank.comm, memory.data(), 8192, &first), ncclSuccess);
    ASSERT_EQ(Api().ncclCommRegister(rank.comm, memory.data() + 4096, 8192, &second), ncclSuccess);
    EXPECT_NE(first, second);
    EXPECT_EQ(Api().ncclCommDeregister(rank.comm, first), ncclSuccess);
    EXPECT_EQ(Api().ncclCommDeregister(rank.comm, second), ncclSuccess);
  });
}

TEST_F(LocalRegistration, RefusesWhatIsNoDeviceMemory) {
  RunRanks(1, [](Rank& rank) {
    int on_host = 0;
    void* handle = nullptr;
    EXPECT_EQ(Api().ncclCommRegister(rank.comm, &on_host, 4, &handle), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommRegister(rank.comm, nullptr, 4, &handle), ncclInvalidArgument);
    EXPECT_EQ(handle, nullptr);
    EXPECT_EQ(Api().ncclCommDeregister(rank.comm, &on_host), ncclInvalidUsage);
    EXPECT_EQ(Api().ncclCommDeregister(rank.comm, nullptr), ncclSuccess);
  });
}

// NVIDIA/nccl#1115: buffers are deregistered before their communicator is destroyed.
TEST_F(LocalRegistration, LeftOnADestroyedCommunicatorIsReported) {
  const DeviceMemory memory(0, kBytes);
  RunRanks(1, [&](Rank& rank) {
    void* handle = nullptr;
    ASSERT_EQ(Api().ncclCommRegister(rank.comm, memory.data(), kBytes, &handle), ncclSuccess);
  });
  EXPECT_NE(TakeReports().find("communicator destroyed with live registrations"), std::string::npos);
}

TEST_F(LocalRegistration, IsHeldWhileRegistered) {
  RunRanks(1, [](Rank& rank) {
    auto memory = std::make_unique<DeviceMemory>(rank.rank, kBytes);
    void* handle = nullptr;
    ASSERT_EQ(Api().ncclCommRegister(rank.comm, memory->data(), kBytes, &handle), ncclSuccess);
    memory.reset();
    EXPECT_NE(TakeReports().find("memory unmapped while registered"), std::string::npos);
    EXPECT_EQ(Api().ncclCommDeregister(rank.comm, handle), ncclSuccess);
  });
}

// NCCL 2.28.9, src/init.cc: the windows' handles are leaked.
TEST_F(WindowRegistration, LeftOnADestroyedCommunicatorIsReported) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes);
    RegisterWindow(rank, memory.data(), kBytes);
    EXPECT_EQ(Api().ncclCommDestroy(rank.comm), ncclSuccess);
    rank.comm = nullptr;
  });
  EXPECT_NE(TakeReports().find("communicator destroyed with live registrations: rank 0: 1 windows"), std::string::npos);
}

TEST_F(WindowRegistration, IsHeldWhileRegistered) {
  RunRanks(2, [](Rank& rank) {
    auto memory = std::make_unique<DeviceMemory>(rank.rank, kBytes);
    const ncclWindow_t window = RegisterWindow(rank, memory->data(), kBytes);
    memory.reset();
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
  });
  EXPECT_NE(TakeReports().find("memory unmapped while registered"), std::string::npos);
}

TEST_F(WindowRegistration, OnADeadCommunicatorIsReported) {
  const DeviceMemory memory(0, kBytes);
  ncclComm_t dead = nullptr;
  RunRanks(1, [&](Rank& rank) { dead = rank.comm; });
  ncclWindow_t window = nullptr;
  EXPECT_EQ(Api().ncclCommWindowRegister(dead, memory.data(), kBytes, &window, 0), ncclInvalidArgument);
  EXPECT_EQ(Api().ncclCommWindowDeregister(dead, window), ncclInvalidArgument);
  EXPECT_NE(TakeReports().find("use of a communicator that does not exist: ncclCommWindowDeregister"),
            std::string::npos);
}

TEST_F(WindowRegistration, IsCollective) {
  std::atomic<int> arrived = 0;
  RunRanks(4, [&](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes);
    ncclWindow_t window = nullptr;
    ++arrived;
    ASSERT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), kBytes, &window, NCCL_WIN_COLL_SYMMETRIC),
              ncclSuccess);
    EXPECT_EQ(arrived.load(), 4);
    EXPECT_NE(window, nullptr);
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
  });
}

// nccl.h, NCCL_WIN_REQUIRED_ALIGNMENT: the offset in the physical handle is a multiple of 4096.
TEST_F(WindowRegistration, RefusesAnUnalignedBuffer) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data() + 512, 4096, &window, 0), ncclInvalidArgument);
    EXPECT_EQ(window, nullptr);
    ASSERT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data() + 4096, 4096, &window, 0), ncclSuccess);
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclInvalidArgument);
  });
}

// NCCL 2.28.9, src/dev_runtime.cc: the buffer's cuMem handle is retained, which cudaMalloc memory does not have.
TEST_F(WindowRegistration, RefusesPlainMemory) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes, MemoryKind::kPlain);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), kBytes, &window, 0), ncclInvalidArgument);
    EXPECT_EQ(window, nullptr);
  });
}

// NCCL's user guide: host memory in windows from 2.30.3.
TEST_F(WindowRegistration, RefusesHostMemory) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes, MemoryKind::kVirtual, CU_MEM_LOCATION_TYPE_HOST_NUMA);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), kBytes, &window, 0), ncclInvalidArgument);
  });
}

TEST_F(WindowRegistration, RefusesBadArguments) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, nullptr, kBytes, &window, 0), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), kBytes, nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), kBytes, &window, 64), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), 0, &window, 0), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, nullptr), ncclSuccess);
  });
}

// NCCL 2.28.9, src/dev_runtime.cc: equal sizes before 2.30.7.
TEST_F(WindowRegistration, OfUnequalSizesIsReportedAndFails) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes * static_cast<size_t>(rank.rank + 1));
    ncclWindow_t window = nullptr;
    EXPECT_NE(Api().ncclCommWindowRegister(rank.comm, memory.data(), memory.bytes(), &window, 0), ncclSuccess);
    EXPECT_EQ(window, nullptr);
  });
  EXPECT_NE(TakeReports().find("windows differ between ranks"), std::string::npos);
}

// NCCL 2.28.9, src/dev_runtime.cc never checks it: what lies beyond the first handle is not in the window.
TEST_F(WindowRegistration, BeyondOnePhysicalHandleIsReportedAndFails) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), 2 * kBytes, &window, 0), ncclInvalidArgument);
  });
  EXPECT_NE(TakeReports().find("window is larger than its physical handle"), std::string::npos);
}

// NCCL's user guide: host collectives on buffers that are in two windows are undefined.
TEST_F(WindowRegistration, TwiceOnOneHandleIsReported) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes);
    ncclWindow_t first = nullptr;
    ncclWindow_t second = nullptr;
    ASSERT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), 4096, &first, 0), ncclSuccess);
    ASSERT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data() + 8192, 4096, &second, 0), ncclSuccess);
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, first), ncclSuccess);
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, second), ncclSuccess);
  });
  EXPECT_NE(TakeReports().find("registered as a window twice"), std::string::npos);
}

TEST_F(WindowRegistration, CarriesSymmetricCollectives) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes);
    const ncclWindow_t window = RegisterWindow(rank, memory.data(), kBytes, NCCL_WIN_COLL_SYMMETRIC);
    Upload(memory.data(), std::vector<float>{1.0f, 2.0f});
    ASSERT_EQ(Api().ncclAllReduce(memory.data(), memory.data(), 2, ncclFloat, ncclSum, rank.comm, rank.stream),
              ncclSuccess);
    rank.Synchronize();
    EXPECT_EQ(Download<float>(memory.data(), 2), (std::vector<float>{2.0f, 4.0f}));
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
  });
}

// NCCL's user guide: one thread that owns several ranks groups their registrations.
TEST_F(WindowRegistration, OfSeveralRanksInOneThreadIsGrouped) {
  ncclComm_t comms[2] = {};
  ASSERT_EQ(Api().ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
  const DeviceMemory first(0, kBytes);
  const DeviceMemory second(1, kBytes);
  ncclWindow_t windows[2] = {};
  ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(Api().ncclCommWindowRegister(comms[0], first.data(), kBytes, &windows[0], 0), ncclSuccess);
  ASSERT_EQ(Api().ncclCommWindowRegister(comms[1], second.data(), kBytes, &windows[1], 0), ncclSuccess);
  EXPECT_EQ(windows[0], nullptr);
  ASSERT_EQ(Api().ncclGroupEnd(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_NE(windows[rank], nullptr);
    EXPECT_EQ(Api().ncclCommWindowDeregister(comms[rank], windows[rank]), ncclSuccess);
    EXPECT_EQ(Api().ncclCommDestroy(comms[rank]), ncclSuccess);
  }
}

// NCCL 2.28.3 to 2.30.7, src/group.cc: a failed group says nothing of the windows behind the one that failed.
TEST_F(WindowRegistration, OfAFailedGroupGoesOnInTheNextCall) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(Api().ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  const DeviceMemory memories[] = {{0, kBytes}, {0, kBytes}, {0, kBytes}};
  ncclWindow_t windows[4] = {};
  ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(Api().ncclCommWindowRegister(comm, memories[0].data(), kBytes, &windows[0], 0), ncclSuccess);
  void* const unaligned = static_cast<char*>(memories[1].data()) + 64;
  ASSERT_EQ(Api().ncclCommWindowRegister(comm, unaligned, kBytes / 2, &windows[1], 0), ncclSuccess);
  ASSERT_EQ(Api().ncclCommWindowRegister(comm, memories[1].data(), kBytes, &windows[2], 0), ncclSuccess);
  EXPECT_EQ(Api().ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_NE(windows[0], nullptr) << "made before";
  EXPECT_EQ(windows[1], nullptr);
  EXPECT_EQ(windows[2], nullptr);
  EXPECT_EQ(Api().ncclCommWindowRegister(comm, memories[2].data(), kBytes, &windows[3], 0), ncclSuccess);
  EXPECT_NE(windows[2], nullptr) << "left in the queue, and made now";
  for (const int made : {0, 2, 3}) {
    EXPECT_NE(windows[made], nullptr);
    EXPECT_EQ(Api().ncclCommWindowDeregister(comm, windows[made]), ncclSuccess);
  }
  EXPECT_EQ(Api().ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace
}  // namespace commpool::internal::testing
