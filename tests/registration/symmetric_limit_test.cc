// A device's limit also holds for symmetric pools: a rank without room fails the step on all ranks.
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricLimit : public SymmetricTest {
 protected:
  MemoryAccount& Account(int device) { return runtime().devices().Get(device).value()->account(); }
  // Of every rank's device.
  void SetLimits(uint64_t bytes) {
    for (int rank = 0; rank <= last(); ++rank) Account(rank).SetLimit(bytes);
  }
  void ExpectRoom(uint64_t bytes) {
    for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(Account(rank).Room(), bytes) << "rank " << rank;
  }
};

TEST_F(SymmetricLimit, OfOneRankFailsAReserveOnAllAndThePoolIsAsBefore) {
  ExpectOk(Create());
  SetLimits(32 * kMiB);
  ExpectOk(Reserve(4 * kMiB));
  Account(last()).SetLimit(8 * kMiB);
  ExpectFailure(Reserve(16 * kMiB), StatusCode::kOutOfMemory, "the limit of device " + std::to_string(last()));
  for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(ReservedBytes(rank), 4 * kMiB);
  EXPECT_EQ(Account(0).Room(), 28 * kMiB);
  Account(last()).SetLimit(32 * kMiB);
  ExpectOk(Reserve(16 * kMiB));
  ExpectRoom(12 * kMiB);
}

TEST_F(SymmetricLimit, IsSharedWithFixedPools) {
  ExpectOk(Create());
  SetLimits(32 * kMiB);
  ExpectOk(Reserve(24 * kMiB));
  PoolConfiguration configuration;
  configuration.name = "fixed";
  const PoolHandle fixed = runtime().CreatePool(configuration).value();
  ExpectFailure(runtime().AllocateFrom(fixed, 16 * kMiB, nullptr).status(), StatusCode::kOutOfMemory,
                "the limit of device 0");
  ExpectOk(Trim(0));
  Result<CUdeviceptr> block = runtime().AllocateFrom(fixed, 16 * kMiB, nullptr);
  ASSERT_TRUE(block.ok()) << block.status().message();
  ExpectFailure(Reserve(24 * kMiB), StatusCode::kOutOfMemory, "the limit of device 0");
  ExpectOk({runtime().Free(*block), runtime().DestroyPool(fixed)});
}

TEST_F(SymmetricLimit, GetsBackWhatCloseGivesBack) {
  ExpectOk(Create());
  SetLimits(32 * kMiB);
  ExpectOk(Reserve(24 * kMiB));
  ExpectOk(Close());
  ExpectRoom(32 * kMiB);
}

TEST_F(SymmetricLimit, LosesNothingByAStepThatFails) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  ExpectOk(Create());
  SetLimits(32 * kMiB);
  {
    const InjectedFault one({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY, .skip = 1});
    ExpectFailure(Reserve(4 * kMiB), StatusCode::kOutOfMemory, "making a segment of 4 MiB failed on rank ");
  }
  ExpectRoom(32 * kMiB);
  {
    const InjectedFault all({.call = "ncclCommWindowRegister", .result = ncclInternalError, .count = group().size()});
    ExpectFailure(Reserve(4 * kMiB), StatusCode::kCommunicatorError, "registering a segment of 4 MiB failed on rank ");
  }
  ExpectRoom(32 * kMiB);
}

}  // namespace
}  // namespace commpool::internal::testing
