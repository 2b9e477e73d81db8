// Symmetric pools of programs whose streams die: no rank asks a stream, and none takes another block than the others.
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricStreams : public SymmetricTest {
 protected:
  static void MayDie(const Rank&, PoolConfiguration& configuration) { configuration.streams = Streams::kMayDie; }
  static CUstream NewStream() {
    CUstream stream = nullptr;
    EXPECT_EQ(SharedDriver()->cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
  }
  static void Destroy(CUstream stream) { EXPECT_EQ(SharedDriver()->cuda.cuStreamDestroy(stream), CUDA_SUCCESS); }
  // Allocates on a stream, writes, destroys the stream and frees, in this order.
  Status UseOnce(const Rank& rank) {
    const CUstream stream = NewStream();
    const Result<CUdeviceptr> block = runtime().AllocateFrom(HandleOf(rank), kMiB, stream);
    if (block.ok()) {
      EXPECT_EQ(driver().cuda.cuMemsetD8Async(*block, 1, kMiB, stream), CUDA_SUCCESS);
    }
    Destroy(stream);
    return block.ok() ? runtime().Free(*block) : block.status();
  }
};

TEST_F(SymmetricStreams, ThatDiedGiveTheirMemoryInAReclaimThatWaits) {
  CreateAndReserve(2 * kMiB, MayDie);
  for (int step = 0; step < 5; ++step) {
    ExpectOk(Run([&](Rank& rank) { return UseOnce(rank); }));
    ExpectOk(Reclaim());
    for (const CUdeviceptr whole : Allocate(2 * kMiB)) EXPECT_TRUE(runtime().Free(whole).ok());
    ExpectOk(Reclaim());
  }
}

TEST_F(SymmetricStreams, ThatWereRecordedForABlockAndDiedAreWaitedForTheSameWay) {
  CreateAndReserve(2 * kMiB, MayDie);
  const std::vector<CUdeviceptr> blocks = Allocate(2 * kMiB);
  ExpectOk(Run([&](Rank& rank) {
    const CUdeviceptr block = blocks[static_cast<size_t>(rank.number)];
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    const CUstream reader = NewStream();
    EXPECT_EQ(driver().cuda.cuMemsetD8Async(block, 1, kMiB, reader), CUDA_SUCCESS);
    Status status = runtime().RecordStream(block, reader);
    Destroy(reader);
    return status.ok() ? runtime().Free(block) : status;
  }));
  ExpectOk(Reclaim());
  Free(Allocate(2 * kMiB));
}

TEST_F(SymmetricStreams, HaveToBePromisedWhereFreesAreOrdered) {
  CreateAndReserve(2 * kMiB, [](const Rank& rank, PoolConfiguration& configuration) {
    MayDie(rank, configuration);
    configuration.frees = engine::FreeOrder::kOrdered;
  });
  for (const Status& status : Run([&](Rank& rank) { return UseOnce(rank); })) {
    ExpectFailure(status, StatusCode::kFailedPrecondition, "make the pool with the option streams = outlive");
  }
  ExpectOk(Run([&](Rank& rank) {
    const CUstream stream = NewStream();
    EXPECT_TRUE(runtime().PromiseStream(stream).ok());
    const Result<CUdeviceptr> block = runtime().AllocateFrom(HandleOf(rank), kMiB, stream);
    Status status = block.ok() ? runtime().Free(*block) : block.status();
    EXPECT_TRUE(runtime().ReleaseStream(stream).ok());
    Destroy(stream);
    return status;
  }));
}

}  // namespace
}  // namespace commpool::internal::testing
