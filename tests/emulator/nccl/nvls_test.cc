// Which windows NVLink multicast could serve, and the reasons against the others.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <optional>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kMachine = setenv("COMMPOOL_EMULATOR", "devices=4,multicast_granularity=4MiB", 1);
const char* const kLogFile = "nvls.log";
[[maybe_unused]] const int kLog =
    setenv("NCCL_DEBUG_FILE", kLogFile, 1) + setenv("NCCL_DEBUG", "INFO", 1) + setenv("NCCL_DEBUG_SUBSYS", "REG", 1);

constexpr size_t kGood = 4 << 20;
const char* const kSingleProcess = "NCCL_SINGLE_PROC_MEM_REG_ENABLE";

class Nvls : public EmulatedNccl {
 protected:
  // Why NVLS cannot use the memory, empty where it can; nothing where no window is known.
  static std::optional<std::string> WhyNot(const char* address) {
    char reason[256] = {};
    const int state = Api().commpoolEmulatorNvls(reinterpret_cast<CUdeviceptr>(address), reason, sizeof reason);
    if (state < 0) return std::nullopt;
    EXPECT_EQ(state == 1, reason[0] == '\0');
    return reason;
  }

  // The log of every rank about a window of so many bytes.
  static void ExpectWindows(int ranks, size_t bytes, const std::string& expected) {
    RunRanks(ranks, [&](Rank& rank) {
      const DeviceMemory memory(rank.rank, bytes);
      const ncclWindow_t window = RegisterWindow(rank, memory.data(), bytes, NCCL_WIN_COLL_SYMMETRIC);
      EXPECT_EQ(WhyNot(memory.data() + bytes - 1), expected);
      EndWindow(rank, window);
      EXPECT_EQ(WhyNot(memory.data()), std::nullopt);
    });
  }

  // In a process, because NCCL keeps the memory of aborted windows.
  [[noreturn]] static void ExitAfterAborts() {
    std::atomic<int> unbound = 0;
    RunRanks(3, [&](Rank& rank) {
      const DeviceMemory memory(rank.rank, kGood);
      RegisterWindow(rank, memory);
      const bool bound = WhyNot(memory.data()) == std::string();
      rank.Abort();
      if (bound && WhyNot(memory.data()) == std::nullopt) ++unbound;
    });
    _exit(unbound.load() == 3 ? 0 : 1);
  }
};

TEST_F(Nvls, ServesWindowsWhoseMemoryFits) {
  ExpectWindows(3, kGood, "");
  EXPECT_NE(Read(kLogFile).find("is bound for NVLS multicast"), std::string::npos);
}

TEST_F(Nvls, DoesNotServeMemoryOfTheWrongSize) {
  ExpectWindows(3, kGood / 2, "its size is no multiple of 4194304 bytes");
  EXPECT_NE(Read(kLogFile).find("cannot use NVLS multicast: its size"), std::string::npos);
}

// NCCL 2.28.9, src/transport/nvls.cc.
TEST_F(Nvls, NeedsMoreThanTwoGpus) { ExpectWindows(2, kGood, "NVLS needs more than 2 GPUs"); }

TEST_F(Nvls, IsTurnedOffByItsVariable) {
  InANewProcessWith("NCCL_NVLS_ENABLE", "0", [] { ExpectWindows(3, kGood, "NCCL_NVLS_ENABLE is 0"); });
  InANewProcessWith("NCCL_NVLS_ENABLE", "1", [] { ExpectWindows(3, kGood, ""); });
}

TEST_F(Nvls, ServesNobodyWhereOneRanksMemoryCannot) {
  RunRanks(3, [&](Rank& rank) {
    const CUmemAllocationHandleType types =
        rank.rank == 1 ? CU_MEM_HANDLE_TYPE_NONE : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const DeviceMemory memory(rank.rank, kGood, MemoryKind::kVirtual, CU_MEM_LOCATION_TYPE_DEVICE, types);
    const auto window = ScopedWindow(rank, memory);
    EXPECT_EQ(WhyNot(memory.data()),
              rank.rank == 1 ? "its memory has no handle that can be exported as a file descriptor" : "not on rank 1");
  });
}

TEST_F(Nvls, AFailedBindLeavesAnOrdinaryWindow) {
  Api().commpoolEmulatorInjectFault("cuMulticastBindMem", 0, 3, CUDA_ERROR_OUT_OF_MEMORY);
  ExpectWindows(3, kGood, "cuMulticastBindMem failed with error 2");
}

using NvlsDeathTest = Nvls;  // runs first, before there are threads

TEST_F(NvlsDeathTest, IsOverWhenTheCommunicatorIsAborted) {
  EXPECT_EXIT(ExitAfterAborts(), ::testing::ExitedWithCode(0), "");
}

TEST_F(Nvls, WantsLocalRegistrationsAligned) {
  const auto expect = [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 2 * kGood);
    const auto handle = ScopedHandle(rank, memory.data() + 4096, kGood);
    EXPECT_EQ(WhyNot(memory.data() + 4096), "its address is no multiple of 2097152 bytes");
  };
  InANewProcessWith(kSingleProcess, "1", [&] { RunRanks(3, expect); });
}

// NVIDIA/nccl#1377, #1542: two ranks of one process have no NVLS for local registrations, unless they ask for it.
TEST_F(Nvls, OfLocalRegistrationsWantsAProcessForEachRank) {
  const auto expect = [](const std::string& expected) {
    RunRanks(3, [&](Rank& rank) {
      const DeviceMemory memory(rank.rank, kGood);
      auto handle = ScopedHandle(rank, memory);
      if (rank.rank == 2) {
        EXPECT_EQ(WhyNot(memory.data()), expected);
      }
      handle.reset();
      EXPECT_EQ(WhyNot(memory.data()), std::nullopt);
    });
  };
  InANewProcessWith(kSingleProcess, "1", [&] { expect(""); });
  expect("ranks 0 and 2 share a process");
  setenv(kSingleProcess, "1", 1);
  expect("ranks 0 and 2 share a process");  // NCCL has read the variable
  unsetenv(kSingleProcess);
}

}  // namespace
}  // namespace commpool::internal::testing
