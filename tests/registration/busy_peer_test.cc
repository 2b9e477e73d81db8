// A peer's work never ends, because a rank stays away from its collective. A revoke waits for it no longer than the
// pool's deadline.
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class BusyPeer : public SymmetricTest {
 protected:
  Status SumOn(Rank& rank) {
    CUdeviceptr& memory = memory_[static_cast<size_t>(rank.number)];
    EXPECT_EQ(driver().cuda.cuMemAlloc(&memory, kKiB), CUDA_SUCCESS);
    auto* const data = reinterpret_cast<void*>(memory);
    EXPECT_EQ(driver().nccl.ncclAllReduce(data, data, kKiB / sizeof(float), ncclFloat, ncclSum, rank.communicator,
                                          rank.stream),
              ncclSuccess);
    return Status();
  }

  std::vector<CUdeviceptr> memory_ = std::vector<CUdeviceptr>(8);
};

TEST_F(BusyPeer, FailsARevokeAtTheDeadline) {
  COMMPOOL_REQUIRE_EMULATOR("NCCL's first collective connects the ranks, so those on time wait on the host");
  AllowLeak("primary context");  // the peer's: a thread still waits in it
  PoolConfiguration configuration;
  configuration.name = "shared";
  configuration.deadline_ms = 200;
  const PoolHandle handle = runtime().CreatePool(configuration).value();
  const std::shared_ptr<Pool> pool = runtime().pools().Find(handle).value();
  if (!pool->segments().peers.Grant({1}).ok()) GTEST_SKIP() << "needs a link between devices 0 and 1";
  ExpectOk(Run([&](Rank& rank) { return rank.number == 0 ? Status() : SumOn(rank); }));
  ExpectFailure(pool->segments().peers.Revoke({1}), StatusCode::kDeadlineExceeded,
                "device 1 is still busy after 200 ms");
  ExpectOk(Run([&](Rank& rank) { return rank.number == 0 ? SumOn(rank) : Status(); }));
  ExpectOk(Run([&](Rank& rank) {
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuMemFree(memory_[static_cast<size_t>(rank.number)]), CUDA_SUCCESS);
    return Status();
  }));
  ExpectOk({pool->segments().peers.Revoke({1}), runtime().DestroyPool(handle)});
}

}  // namespace
}  // namespace commpool::internal::testing
