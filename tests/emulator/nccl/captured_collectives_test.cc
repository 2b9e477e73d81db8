// Collectives in graphs: every rank captures them; each launch of the graph replays them. They reach for memory by
// windows and registrations: right as long as these are where they were, reported and failed once they are not.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

constexpr size_t kUnit = 2 << 20;
constexpr size_t kCount = 100;

using Graph = std::shared_ptr<CUgraphExec_st>;

class CapturedCollectives : public EmulatedNccl {
 protected:
  static void Add(const Rank& rank, const DeviceMemory& memory, ncclResult_t expected = ncclSuccess,
                  const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    const ::testing::ScopedTrace caller(file, line, "Add");
    EXPECT_EQ(rank.AllReduce(memory, kCount, ncclInt32), expected);
  }
};

TEST_F(CapturedCollectives, RunOnceForEachLaunchOfTheirGraph) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, std::vector<int>(kCount, 1));
    const auto executable = Capture(rank, [&] { Add(rank, memory); });
    EXPECT_EQ(Download<int>(memory.data(), kCount), std::vector<int>(kCount, 1)) << "captured, not run";
    for (int round = 0; round < 3; ++round) ASSERT_EQ(Api().cuGraphLaunch(executable.get(), rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(rank.Result<int>(memory.data(), kCount), std::vector<int>(kCount, 8));
  });
}

TEST_F(CapturedCollectives, TakeTheirPlaceAmongOthers) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, std::vector<int>(kCount, 1));
    const auto executable = Capture(rank, [&] {
      Add(rank, memory);
      Add(rank, memory);
    });
    Add(rank, memory);
    ASSERT_EQ(Api().cuGraphLaunch(executable.get(), rank.stream), CUDA_SUCCESS);
    Add(rank, memory);
    EXPECT_EQ(rank.Result<int>(memory.data(), kCount), std::vector<int>(kCount, 16));
  });
}

TEST_F(CapturedCollectives, OfADestroyedCommunicatorAreReportedAndLeftOut) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, std::vector<int>(kCount, 1));
    const auto executable = Capture(rank, [&] { Add(rank, memory); });
    rank.Destroy();
    ASSERT_EQ(Api().cuGraphLaunch(executable.get(), rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(rank.Result<int>(memory.data(), kCount), std::vector<int>(kCount, 1));
  });
  ExpectReport("a graph repeats what is gone: ncclAllReduce");
}

TEST_F(CapturedCollectives, AreRefusedByABrokenCapture) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    ASSERT_EQ(Api().cuStreamBeginCapture(rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(Api().cuStreamQuery(rank.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    Add(rank, memory, ncclUnhandledCudaError);
    CUgraph graph = nullptr;
    EXPECT_EQ(Api().cuStreamEndCapture(rank.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  });
}

ncclWindow_t Register(const Rank& rank, const DeviceMemory& memory, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  return RegisterWindow(rank, memory, NCCL_WIN_COLL_SYMMETRIC, file, line);
}

Graph CaptureSum(const Rank& rank, const void* send, void* receive, ncclDataType_t type = ncclFloat) {
  return Capture(rank, [&] { EXPECT_EQ(rank.AllReduce(send, receive, kCount, type), ncclSuccess); });
}

class CapturedWindows : public EmulatedNccl {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  // Replays on two ranks, in a process of its own, what `change` has made of the windows; exits with 0 where every
  // rank's context is lost by it.
  using Change = std::function<void(const Rank& rank, ncclWindow_t first, ncclWindow_t second)>;
  using Capturing = std::function<Graph(const Rank& rank, const DeviceMemory& memory)>;
  static Graph CaptureSumInPlace(const Rank& rank, const DeviceMemory& memory) {
    return CaptureSum(rank, memory.data(), memory.data());
  }
  [[noreturn]] static void ReplayAfter(const Change& change, const Capturing& capture = CaptureSumInPlace) {
    std::atomic<int> failed = 0;
    RunRanks(2, [&](Rank& rank) {
      // They outlive the process.
      const auto* first = new DeviceMemory(rank.rank, kUnit);
      const auto* second = new DeviceMemory(rank.rank, 2 * kUnit);
      const ncclWindow_t windows[] = {Register(rank, *first), Register(rank, *second)};
      const auto graph = capture(rank, *first);
      change(rank, windows[0], windows[1]);
      Api().cuGraphLaunch(graph.get(), rank.stream);
      if (Api().cuStreamSynchronize(rank.stream) == CUDA_ERROR_ILLEGAL_ADDRESS) ++failed;
      rank.Abort();
    });
    _exit(failed.load() == 2 ? 0 : 1);
  }
};

// NCCL 2.28.9 and 2.30.7, src/dev_runtime.cc, src/allocator.cc; confirmed by graphs on two H200s.
TEST_F(CapturedWindows, AreRightAfterWindowsCameBackInTheirOrder) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory first(rank.rank, kUnit);
    const DeviceMemory second(rank.rank, 2 * kUnit);
    const std::vector<ncclWindow_t> windows = {Register(rank, first), Register(rank, second)};
    const auto graph = CaptureSum(rank, second.data(), second.data() + kUnit);
    for (int round = 0; round < 3; ++round) {
      for (const ncclWindow_t window : windows) EndWindow(rank, window);
      EXPECT_EQ((std::vector{Register(rank, first), Register(rank, second)}), windows);
      Upload(second.data(), std::vector<float>(kCount, static_cast<float>(round)));
      ASSERT_EQ(Api().cuGraphLaunch(graph.get(), rank.stream), CUDA_SUCCESS);
      EXPECT_EQ(rank.Result<float>(second.data() + kUnit, kCount),
                std::vector<float>(kCount, 2.0f * static_cast<float>(round)));
    }
    for (const ncclWindow_t window : windows) EndWindow(rank, window);
  });
}

TEST_F(CapturedWindows, FailWhereTheWindowHasEnded) {
  EXPECT_EXIT(ReplayAfter([](const Rank& rank, ncclWindow_t first, ncclWindow_t) { EndWindow(rank, first); }),
              ::testing::ExitedWithCode(0),
              "a collective reaches for memory where it was.*window 1 . 0: nothing is mapped at its place");
}

TEST_F(CapturedWindows, FailWhereAnotherWindowCameFirst) {
  EXPECT_EXIT(ReplayAfter([](const Rank& rank, ncclWindow_t first, ncclWindow_t second) {
                EndWindow(rank, first);
                EndWindow(rank, second);
                const auto* stranger = new DeviceMemory(rank.rank, kUnit);
                Register(rank, *stranger);
              }),
              ::testing::ExitedWithCode(0),
              "a collective reaches for memory where it was.*window 1 . 0: other memory is at its place");
}

// A communicator that uses no SMs gathers by copy engines. A graph of its gathers has the addresses of the receive
// buffer on all ranks, and no record (NCCL 2.28.9, src/ce_coll.cc).
class CapturedCopies : public CapturedWindows {
 protected:
  void SetUp() override {
    setenv("NCCL_CTA_POLICY", "2", 1);
    CapturedWindows::SetUp();
  }
  void TearDown() override {
    unsetenv("NCCL_CTA_POLICY");
    CapturedWindows::TearDown();
  }
  static Graph CaptureGather(const Rank& rank, const DeviceMemory& memory) {
    return Capture(rank, [&] {
      char* const all = memory.data() + kCount * sizeof(float);
      EXPECT_EQ(Api().ncclAllGather(memory.data(), all, kCount, ncclFloat, rank.comm, rank.stream), ncclSuccess);
    });
  }
  static void ExpectGathered(const Rank& rank, const DeviceMemory& memory, const Graph& graph, float base) {
    Upload(memory.data(), std::vector<float>(kCount, base + static_cast<float>(rank.rank)));
    ASSERT_EQ(Api().cuGraphLaunch(graph.get(), rank.stream), CUDA_SUCCESS);
    std::vector<float> all(2 * kCount, base);
    std::fill(all.begin() + kCount, all.end(), base + 1);
    EXPECT_EQ(rank.Result<float>(memory.data() + kCount * sizeof(float), 2 * kCount), all);
  }
};

TEST_F(CapturedCopies, AreRightAfterTheWindowCameBackToItsPlaceThoughItsRecordIsAnothers) {
  const auto replay = [](Rank& rank) {
    const DeviceMemory first(rank.rank, kUnit);
    const DeviceMemory second(rank.rank, 2 * kUnit);
    const DeviceMemory third(rank.rank, 2 * kUnit);
    ncclWindow_t windows[] = {Register(rank, first), Register(rank, second), nullptr};
    const ncclWindow_t before = windows[0];
    const auto graph = CaptureGather(rank, first);
    ExpectGathered(rank, first, graph, 1);
    EndWindow(rank, windows[0]);
    windows[2] = Register(rank, third);  // too large for the gap
    EXPECT_EQ(windows[2], before);
    windows[0] = Register(rank, first);
    ExpectGathered(rank, first, graph, 5);
    for (const ncclWindow_t window : windows) EndWindow(rank, window);
  };
  InANewProcess([&] { RunRanks(2, replay); });
}

TEST_F(CapturedCopies, FailWhereTheWindowHasEnded) {
  EXPECT_EXIT(
      ReplayAfter([](const Rank& rank, ncclWindow_t first, ncclWindow_t) { EndWindow(rank, first); }, CaptureGather),
      ::testing::ExitedWithCode(0),
      "a collective reaches for memory where it was.*AllGather: recvbuff, window 1 . 400: nothing is mapped");
}

TEST_F(CapturedCopies, FailWhereTheWindowCameElsewhere) {
  const auto move = [](const Rank& rank, ncclWindow_t first, ncclWindow_t) {
    void* memory = nullptr;
    ASSERT_EQ(Api().ncclMemAlloc(&memory, kUnit), ncclSuccess);
    EndWindow(rank, first);
    RegisterWindow(rank, memory, kUnit, NCCL_WIN_COLL_SYMMETRIC);
  };
  EXPECT_EXIT(ReplayAfter(move, CaptureGather), ::testing::ExitedWithCode(0),
              "a collective reaches for memory where it was.*AllGather: recvbuff, window 1 . 400: other memory is");
}

TEST_F(CapturedCopies, LeaveTheirPlaceToNobody) {
  const auto replay = [](Rank& rank) {
    const DeviceMemory first(rank.rank, kUnit);
    const ncclWindow_t window = Register(rank, first);
    const auto graph = CaptureGather(rank, first);
    ExpectGathered(rank, first, graph, 1);
    const DeviceMemory second(rank.rank, kUnit);
    const ncclWindow_t next = Register(rank, second);
    // The records of NCCL's own windows are between them.
    EXPECT_EQ(reinterpret_cast<uint64_t>(next) - reinterpret_cast<uint64_t>(window), 2 * 72u);
    for (const ncclWindow_t one : {window, next}) EndWindow(rank, one);
  };
  InANewProcess([&] { RunRanks(2, replay); });
}

// A ring's peers import a registered buffer, and a graph's buffers register themselves: the graph goes on with the
// memory that was there. Windows need none of it: ncclCommRegister answers with no handle, and src/dev_runtime.cc goes
// on without it.
class CapturedRegistrations : public CapturedWindows {
 protected:
  // Replays on memory that was mapped anew in a process of its own; exits with 0 where nothing is reported of that.
  [[noreturn]] static void ReplayOnOtherMemory(ncclDataType_t type) {
    RunRanks(2, [&](Rank& rank, const DeviceMemory& memory) {
      ncclWindow_t window = Register(rank, memory);
      const auto graph = CaptureSum(rank, memory.data(), memory.data(), type);
      EndWindow(rank, window);
      const auto address = reinterpret_cast<CUdeviceptr>(memory.data());
      EXPECT_EQ(Api().cuMemUnmap(address, kUnit), CUDA_SUCCESS);
      MapNewMemory(rank.rank, address, kUnit);
      window = Register(rank, memory);
      Upload(memory.data(), std::vector<float>(kCount, 0.0f));
      EXPECT_EQ(Api().cuGraphLaunch(graph.get(), rank.stream), CUDA_SUCCESS);
      rank.Synchronize();
      EndWindow(rank, window);
    });
    const bool reported = TakeReports().find("memory that was mapped anew") != std::string::npos;
    _exit(HasFailure() ? 2 : reported ? 1 : 0);
  }
};

TEST_F(CapturedRegistrations, OfSymmetricKernelsHoldNoMemory) {
  EXPECT_EXIT(ReplayOnOtherMemory(ncclFloat), ::testing::ExitedWithCode(0), "");
}

TEST_F(CapturedRegistrations, OfOtherKernelsMayHoldWhatWasThere) {
  EXPECT_EXIT(ReplayOnOtherMemory(ncclInt32), ::testing::ExitedWithCode(1), "");
}

TEST_F(CapturedRegistrations, AreNoneWithNcclsVariablesOff) {
  const auto replay = [](const char* local, const char* graph) {
    setenv("NCCL_LOCAL_REGISTER", local, 1);
    setenv("NCCL_GRAPH_REGISTER", graph, 1);
    ReplayOnOtherMemory(ncclInt32);
  };
  EXPECT_EXIT(replay("0", "0"), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(replay("1", "0"), ::testing::ExitedWithCode(1), "");
  EXPECT_EXIT(replay("0", "1"), ::testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace commpool::internal::testing
