// A communicator whose memory came back without that of its peers: nobody hears it from NCCL (NCCL 2.30.7,
// src/mem_manager.cc). By itself, because the collective that finds it loses the context.
#include <cstdlib>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kNewer = setenv("COMMPOOL_EMULATOR", "nccl=2.30.7", 1);

class FailedImport : public EmulatedNccl {};

TEST_F(FailedImport, IsFoundByTheNextCollectiveAlone) {
  Api().commpoolEmulatorInjectFault("ncclCommResume import", 0, 2, ncclSystemError);
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 4096);
    ASSERT_EQ(Api().ncclCommSuspend(rank.comm, NCCL_SUSPEND_MEM), ncclSuccess);
    ASSERT_EQ(Api().ncclCommResume(rank.comm), ncclSuccess);
    uint64_t suspended = 1;
    EXPECT_EQ(Api().ncclCommMemStats(rank.comm, ncclStatGpuMemSuspended, &suspended), ncclSuccess);
    EXPECT_EQ(suspended, 0u);
    ASSERT_EQ(Api().ncclAllReduce(memory.data(), memory.data(), 1, ncclInt, ncclSum, rank.comm, rank.stream),
              ncclSuccess);
    EXPECT_EQ(Api().cuStreamSynchronize(rank.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    ncclResult_t error = ncclSuccess;
    EXPECT_EQ(Api().ncclCommGetAsyncError(rank.comm, &error), ncclSuccess);
    EXPECT_EQ(error, ncclUnhandledCudaError);
    EXPECT_EQ(Api().ncclCommAbort(rank.comm), ncclSuccess);
    rank.comm = nullptr;
  });
  const std::string reports = TakeReports();
  for (const char* peer : {"0", "1"}) {
    EXPECT_NE(reports.find("the memory of rank " + std::string(peer) + " did not come back"), std::string::npos)
        << reports;
  }
}

}  // namespace
}  // namespace commpool::internal::testing
