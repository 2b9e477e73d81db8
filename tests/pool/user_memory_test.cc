// Memory of a user's functions. What is already in use the pool refuses, and it continues to serve. Where they make
// memory in a stream's order the pool names the stream, and no other stream meets the functions' work.
#include <string>
#include <utility>
#include <vector>

#include "tests/pool/announced_capture.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

// Hands out the memory that the test names, else new memory, which it clears on the stream that asks, or on the default
// stream where it gets none.
struct Functions {
  static void* Allocate(ptrdiff_t bytes, int, CUstream_st* stream, void* context) {
    auto& functions = *static_cast<Functions*>(context);
    functions.streams.push_back(stream);
    CUdeviceptr address = std::exchange(functions.next, 0);
    if (address == 0) {
      EXPECT_EQ(SharedDriver()->cuda.cuMemAlloc(&address, static_cast<size_t>(bytes)), CUDA_SUCCESS);
      Fill(stream, address, static_cast<uint64_t>(bytes), 0);
    }
    return reinterpret_cast<void*>(address);
  }
  static void Free(void* pointer, ptrdiff_t, int, CUstream_st*, void* context) {
    auto& functions = *static_cast<Functions*>(context);
    ++functions.given_back;
    if (reinterpret_cast<CUdeviceptr>(pointer) == functions.borrowed) return;
    EXPECT_EQ(SharedDriver()->cuda.cuMemFree(reinterpret_cast<CUdeviceptr>(pointer)), CUDA_SUCCESS);
  }

  CUdeviceptr next = 0;
  CUdeviceptr borrowed = 0;  // belongs to somebody else
  int given_back = 0;
  std::vector<CUstream> streams;
};

struct WithFunctions {
  Functions functions_;
};

// The pools use the functions until they are gone: bases end from the last to the first.
class UserMemory : protected WithFunctions, public PoolTest {
 protected:
  PoolHandle CreateUser(const char* name) {
    PoolConfiguration configuration = Configured(name);
    configuration.backing.kind = BackingKind::kUser;
    configuration.backing.user = {Functions::Allocate, Functions::Free, &functions_};
    return Create(configuration);
  }
  // The user's function will return this address next, though it is in use already.
  void ExpectRefused(PoolHandle pool, CUdeviceptr address, const char* owner) {
    functions_.next = functions_.borrowed = address;
    const int given_back = functions_.given_back;
    ExpectFailure(Get(pool).mode().Reserve(8 * kMiB), StatusCode::kInvalidArgument,
                  std::string("lie in memory of pool ") + owner);
    EXPECT_EQ(functions_.given_back, given_back + 1) << "each piece goes back to the function that made it";
  }
};

TEST_F(UserMemory, OfAnotherPoolIsRefused) {
  const PoolHandle lender = Create(Configured("lender"));
  const CUdeviceptr block = Allocate(lender, 64 * kMiB);
  const PoolHandle user = CreateUser("user");
  ExpectRefused(user, block, "lender");
  ExpectRefused(user, block + 16 * kMiB, "lender");
  EXPECT_TRUE(Get(user).mode().Reserve(8 * kMiB).ok()) << "the next memory is its own";
}

TEST_F(UserMemory, OfTheSamePoolIsRefused) {
  const PoolHandle user = CreateUser("user");
  const CUdeviceptr block = Allocate(user, 8 * kMiB);
  ExpectRefused(user, block, "user");
  Free(block);
  functions_.borrowed = 0;
}

TEST_F(UserMemory, ThatEndsInAnotherPoolsIsRefused) {
  const PoolHandle lender = CreateUser("lender");
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&memory, 64 * kMiB), CUDA_SUCCESS);
  functions_.next = functions_.borrowed = memory + 2 * kMiB;
  ASSERT_TRUE(Get(lender).mode().Reserve(32 * kMiB).ok());
  const PoolHandle user = CreateUser("user");
  ExpectRefused(user, memory, "lender");
  functions_.borrowed = memory + 2 * kMiB;
  EXPECT_TRUE(Get(lender).Trim(0).ok());
  EXPECT_EQ(cuda().cuMemFree(memory), CUDA_SUCCESS);
}

using StreamOrderedBacking = UserMemory;

TEST_F(StreamOrderedBacking, GetsTheStreamThatAsks) {
  const TestStream stream;
  const PoolHandle pool = CreateUser("ordered");
  Allocate(pool, 2 * kMiB, stream);
  EXPECT_EQ(functions_.streams, std::vector<CUstream>{stream});
}

TEST_F(StreamOrderedBacking, MakesReservedMemoryForNoStream) {
  const PoolHandle pool = CreateUser("ordered");
  EXPECT_TRUE(Get(pool).mode().Reserve(2 * kMiB).ok());
  EXPECT_EQ(functions_.streams, std::vector<CUstream>{nullptr});
}

// The race checker checks the order.
TEST_F(StreamOrderedBacking, HandsPartsOfTheSegmentToOtherStreams) {
  const TestStream first;
  const TestStream second;
  const PoolHandle pool = CreateUser("ordered");
  Allocate(pool, 64 * kKiB, first);
  const CUdeviceptr two = Allocate(pool, 64 * kKiB, second);
  ASSERT_EQ(functions_.streams.size(), 1u) << "both lie in one segment";
  Fill(second, two, 64 * kKiB, 7);
  ExpectBytes(second, two, 64 * kKiB, 7);
}

TEST_F(StreamOrderedBacking, HandsReservedMemoryToAnyStream) {
  const TestStream stream;
  const PoolHandle pool = CreateUser("ordered");
  EXPECT_TRUE(Get(pool).mode().Reserve(2 * kMiB).ok());
  const CUdeviceptr block = Allocate(pool, 2 * kMiB, stream);
  ASSERT_EQ(functions_.streams.size(), 1u) << "it lies in the reserved segment";
  Fill(stream, block, 2 * kMiB, 7);
  Synchronize(stream);
}

TEST_F(StreamOrderedBacking, NeverGetsAStreamThatCaptures) {
  const TestStream captured;
  const TestStream other;
  const PoolHandle pool = CreateUser("ordered");
  const PoolHandle elsewhere = Create(Configured("elsewhere"));
  ASSERT_TRUE(Get(elsewhere).mode().Reserve(2 * kMiB).ok());
  AnnouncedCapture capture;
  ASSERT_TRUE(capture.Begin(runtime(), elsewhere, captured, CU_STREAM_CAPTURE_MODE_RELAXED).ok());
  Allocate(pool, 2 * kMiB, other);
  EXPECT_EQ(functions_.streams, std::vector<CUstream>{nullptr});
  EXPECT_TRUE(capture.End().ok());
}

}  // namespace
}  // namespace commpool::internal::testing
