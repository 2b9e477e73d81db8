// A user's functions make memory in a stream's order: the pool names the stream, and no other stream meets the
// functions' work.
#include <cstring>
#include <vector>

#include "tests/pool/announced_capture.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/launch.h"

namespace commpool::internal::testing {
namespace {

// Allocates, and clears the memory on the asking stream, or on the default stream where it gets none.
struct StreamOrdered {
  static void* Allocate(ptrdiff_t bytes, int, CUstream_st* stream, void* context) {
    static_cast<StreamOrdered*>(context)->streams.push_back(stream);
    CUdeviceptr address = 0;
    EXPECT_EQ(SharedDriver()->cuda.cuMemAlloc(&address, static_cast<size_t>(bytes)), CUDA_SUCCESS);
    Fill(stream, address, static_cast<uint64_t>(bytes), 0);
    return reinterpret_cast<void*>(address);
  }
  static void Free(void* pointer, ptrdiff_t, int, CUstream_st*, void*) {
    EXPECT_EQ(SharedDriver()->cuda.cuMemFree(reinterpret_cast<CUdeviceptr>(pointer)), CUDA_SUCCESS);
  }

  std::vector<CUstream> streams;
};

class StreamOrderedBacking : public PoolTest {
 protected:
  PoolHandle CreateOrdered() {
    PoolConfiguration configuration = Configured("ordered");
    configuration.backing.kind = BackingKind::kUser;
    configuration.backing.user = {StreamOrdered::Allocate, StreamOrdered::Free, &functions_};
    return Create(configuration);
  }

  StreamOrdered functions_;
};

TEST_F(StreamOrderedBacking, GetsTheStreamThatAsks) {
  const TestStream stream;
  const PoolHandle pool = CreateOrdered();
  const CUdeviceptr block = runtime().AllocateFrom(pool, 2 * kMiB, stream.get()).value();
  EXPECT_EQ(functions_.streams, std::vector<CUstream>{stream.get()});
  EXPECT_TRUE(runtime().Free(block).ok());
}

TEST_F(StreamOrderedBacking, MakesReservedMemoryForNoStream) {
  const PoolHandle pool = CreateOrdered();
  EXPECT_TRUE(Get(pool).mode().Reserve(2 * kMiB).ok());
  EXPECT_EQ(functions_.streams, std::vector<CUstream>{nullptr});
}

// The race checker checks the order.
TEST_F(StreamOrderedBacking, HandsPartsOfTheSegmentToOtherStreams) {
  const TestStream first;
  const TestStream second;
  const PoolHandle pool = CreateOrdered();
  const CUdeviceptr one = runtime().AllocateFrom(pool, 64 * kKiB, first.get()).value();
  const CUdeviceptr two = runtime().AllocateFrom(pool, 64 * kKiB, second.get()).value();
  ASSERT_EQ(functions_.streams.size(), 1u) << "both lie in one segment";
  Fill(second.get(), two, 64 * kKiB, 7);
  uint64_t wrong = 0;
  Compare(second.get(), two, 64 * kKiB, 7, &wrong);
  EXPECT_EQ(cuda().cuStreamSynchronize(second.get()), CUDA_SUCCESS);
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(runtime().Free(one).ok());
  EXPECT_TRUE(runtime().Free(two).ok());
}

TEST_F(StreamOrderedBacking, HandsReservedMemoryToAnyStream) {
  const TestStream stream;
  const PoolHandle pool = CreateOrdered();
  EXPECT_TRUE(Get(pool).mode().Reserve(2 * kMiB).ok());
  const CUdeviceptr block = runtime().AllocateFrom(pool, 2 * kMiB, stream.get()).value();
  ASSERT_EQ(functions_.streams.size(), 1u) << "it lies in the reserved segment";
  Fill(stream.get(), block, 2 * kMiB, 7);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream.get()), CUDA_SUCCESS);
  EXPECT_TRUE(runtime().Free(block).ok());
}

TEST_F(StreamOrderedBacking, NeverGetsAStreamThatCaptures) {
  const TestStream captured;
  const TestStream other;
  const PoolHandle pool = CreateOrdered();
  const PoolHandle elsewhere = Create(Configured("elsewhere"));
  ASSERT_TRUE(Get(elsewhere).mode().Reserve(2 * kMiB).ok());
  AnnouncedCapture capture;
  ASSERT_TRUE(capture.Begin(runtime(), elsewhere, captured.get(), CU_STREAM_CAPTURE_MODE_RELAXED).ok());
  const CUdeviceptr block = runtime().AllocateFrom(pool, 2 * kMiB, other.get()).value();
  EXPECT_EQ(functions_.streams, std::vector<CUstream>{nullptr});
  EXPECT_TRUE(capture.End().ok());
  capture.DestroyGraph();
  EXPECT_TRUE(runtime().Free(block).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
