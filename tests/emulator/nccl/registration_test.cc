// Local registrations and windows: each test names the rule of NCCL that it holds the emulator to.
#include <atomic>
#include <memory>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

constexpr size_t kBytes = 2 << 20;

class LocalRegistration : public EmulatedNccl {};
class WindowRegistration : public EmulatedNccl {};

// NCCL 2.28.9, src/register/register.cc: metadata only, so ranks need not meet.
TEST_F(LocalRegistration, IsLocal) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    if (rank.rank == 1) return;
    EXPECT_NE(ScopedHandle(rank, memory), nullptr);
  });
}

// NCCL 2.28.9, src/register/register.cc: a contained range takes a reference on the slot that covers it.
TEST_F(LocalRegistration, CountsContainedRangesOnOneHandle) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    auto whole = ScopedHandle(rank, memory);
    void* const handle = whole.get();
    EXPECT_EQ(ScopedHandle(rank, memory.data() + 8192, 4096).get(), handle);
    whole.reset();
    EXPECT_EQ(Api().ncclCommDeregister(rank.comm, handle), ncclInvalidUsage);
  });
}

// NCCL 2.28.9, src/register/register.cc: a partial overlap makes a second slot.
TEST_F(LocalRegistration, GivesOverlapsTheirOwnHandle) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    const auto first = ScopedHandle(rank, memory.data(), 8192);
    EXPECT_NE(ScopedHandle(rank, memory.data() + 4096, 8192), first);
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
  ExpectReport("communicator destroyed with live registrations");
}

TEST_F(LocalRegistration, IsHeldWhileRegistered) {
  RunRanks(1, [](Rank& rank) {
    auto memory = std::make_unique<DeviceMemory>(rank.rank, kBytes);
    const auto handle = ScopedHandle(rank, *memory);
    memory.reset();
    ExpectReport("memory unmapped while registered");
  });
}

// NCCL 2.28.9, src/init.cc: the windows' handles are leaked.
TEST_F(WindowRegistration, LeftOnADestroyedCommunicatorIsReported) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    RegisterWindow(rank, memory);
    rank.Destroy();
  });
  ExpectReport("communicator destroyed with live registrations: rank 0: 1 windows");
}

TEST_F(WindowRegistration, IsHeldWhileRegistered) {
  RunRanks(2, [](Rank& rank) {
    auto memory = std::make_unique<DeviceMemory>(rank.rank, kBytes);
    const auto window = ScopedWindow(rank, *memory);
    memory.reset();
  });
  ExpectReport("memory unmapped while registered");
}

TEST_F(WindowRegistration, OnADeadCommunicatorIsReported) {
  const DeviceMemory memory(0, kBytes);
  ncclComm_t dead = nullptr;
  RunRanks(1, [&](Rank& rank) { dead = rank.comm; });
  ncclWindow_t window = nullptr;
  EXPECT_EQ(Api().ncclCommWindowRegister(dead, memory.data(), kBytes, &window, 0), ncclInvalidArgument);
  EXPECT_EQ(Api().ncclCommWindowDeregister(dead, window), ncclInvalidArgument);
  ExpectReport("use of a communicator that does not exist: ncclCommWindowDeregister");
}

TEST_F(WindowRegistration, IsCollective) {
  std::atomic<int> arrived = 0;
  RunRanks(4, [&](Rank& rank, const DeviceMemory& memory) {
    ++arrived;
    const auto window = ScopedWindow(rank, memory, NCCL_WIN_COLL_SYMMETRIC);
    EXPECT_EQ(arrived.load(), 4);
    EXPECT_NE(window.get(), nullptr);
  });
}

// nccl.h, NCCL_WIN_REQUIRED_ALIGNMENT: the offset in the physical handle is a multiple of 4096.
TEST_F(WindowRegistration, RefusesAnUnalignedBuffer) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    ExpectNoWindow(rank, memory.data() + 512, 4096);
    const ncclWindow_t window = RegisterWindow(rank, memory.data() + 4096, 4096);
    EndWindow(rank, window);
    EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclInvalidArgument);
  });
}

// NCCL 2.28.9, src/dev_runtime.cc: the buffer's cuMem handle is retained, which cudaMalloc memory does not have.
TEST_F(WindowRegistration, RefusesPlainMemory) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes, MemoryKind::kPlain);
    ExpectNoWindow(rank, memory.data(), kBytes);
  });
}

// NCCL's user guide: host memory in windows from 2.30.3.
TEST_F(WindowRegistration, RefusesHostMemory) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes, MemoryKind::kVirtual, CU_MEM_LOCATION_TYPE_HOST_NUMA);
    ExpectNoWindow(rank, memory.data(), kBytes);
  });
}

TEST_F(WindowRegistration, RefusesBadArguments) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    ExpectNoWindow(rank, nullptr, kBytes);
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), kBytes, nullptr, 0), ncclInvalidArgument);
    ExpectNoWindow(rank, memory.data(), kBytes, ncclInvalidArgument, 64);
    ExpectNoWindow(rank, memory.data(), 0);
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
  ExpectReport("windows differ between ranks");
}

// NCCL 2.28.9, src/dev_runtime.cc never checks it: what lies beyond the first handle is not in the window.
TEST_F(WindowRegistration, BeyondOnePhysicalHandleIsReportedAndFails) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) { ExpectNoWindow(rank, memory.data(), 2 * kBytes); });
  ExpectReport("window is larger than its physical handle");
}

// NCCL's user guide: host collectives on buffers that are in two windows are undefined.
TEST_F(WindowRegistration, TwiceOnOneHandleIsReported) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    const ncclWindow_t first = RegisterWindow(rank, memory.data(), 4096);
    const ncclWindow_t second = RegisterWindow(rank, memory.data() + 8192, 4096);
    for (const ncclWindow_t window : {first, second}) EndWindow(rank, window);
  });
  ExpectReport("registered as a window twice");
}

TEST_F(WindowRegistration, CarriesSymmetricCollectives) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, std::vector<float>{1.0f, 2.0f});
    const auto window = ScopedWindow(rank, memory, NCCL_WIN_COLL_SYMMETRIC);
    ASSERT_EQ(rank.AllReduce(memory, 2, ncclFloat), ncclSuccess);
    EXPECT_EQ(rank.Result<float>(memory.data(), 2), (std::vector<float>{2.0f, 4.0f}));
  });
}

// NCCL's user guide: one thread that owns several ranks groups their registrations.
TEST_F(WindowRegistration, OfSeveralRanksInOneThreadIsGrouped) {
  ncclComm_t comms[2] = {};
  ASSERT_EQ(Api().ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
  const DeviceMemory memories[] = {{0, kBytes}, {1, kBytes}};
  ncclWindow_t windows[2] = {};
  ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(Api().ncclCommWindowRegister(comms[rank], memories[rank].data(), kBytes, &windows[rank], 0), ncclSuccess);
    EXPECT_EQ(windows[rank], nullptr);
  }
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
  const auto add = [&](void* buffer, size_t bytes, ncclWindow_t& window) {
    EXPECT_EQ(Api().ncclCommWindowRegister(comm, buffer, bytes, &window, 0), ncclSuccess)
        << "window " << (&window - windows);
  };
  ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
  add(memories[0].data(), kBytes, windows[0]);
  add(memories[1].data() + 64, kBytes / 2, windows[1]);  // unaligned
  add(memories[1].data(), kBytes, windows[2]);
  EXPECT_EQ(Api().ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_NE(windows[0], nullptr) << "made before";
  EXPECT_EQ(windows[1], nullptr);
  EXPECT_EQ(windows[2], nullptr);
  add(memories[2].data(), kBytes, windows[3]);
  EXPECT_NE(windows[2], nullptr) << "left in the queue, and made now";
  for (const int made : {0, 2, 3}) {
    EXPECT_NE(windows[made], nullptr);
    EXPECT_EQ(Api().ncclCommWindowDeregister(comm, windows[made]), ncclSuccess);
  }
  EXPECT_EQ(Api().ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace
}  // namespace commpool::internal::testing
