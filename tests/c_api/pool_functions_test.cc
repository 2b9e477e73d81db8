// Function pairs without a context, as frameworks take them.
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "src/library/driver/handles.h"
#include "tests/c_api/c_abi.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr size_t kFunctions = 256;

struct Pair {
  commpool_plain_allocate allocate = nullptr;
  commpool_plain_free release = nullptr;
};

Pair FunctionsOf(commpool_pool pool) {
  Pair pair;
  ExpectOk(commpool_pool_functions(pool, &pair.allocate, &pair.release));
  return pair;
}

TEST(PoolFunctions, AllocateFromTheirPoolUnderAnyScope) {
  const OwnedPool pool;
  const OwnedPool other;
  const Pair pair = FunctionsOf(pool);
  const OpenScope scope(other);
  void* const pointer = pair.allocate(4096, 0, nullptr);
  EXPECT_NE(pointer, nullptr) << commpool_last_error();
  EXPECT_EQ(BlocksOf(pool), 1u);
  EXPECT_EQ(BlocksOf(other), 0u);
  pair.release(pointer, 4096, 0, nullptr);
  EXPECT_EQ(BlocksOf(pool), 0u);
}

TEST(PoolFunctions, AreAPoolsOwnAndTheSameEachTime) {
  const OwnedPool pool;
  const OwnedPool other;
  EXPECT_EQ(FunctionsOf(pool).allocate, FunctionsOf(pool).allocate);
  EXPECT_NE(FunctionsOf(pool).allocate, FunctionsOf(other).allocate);
  EXPECT_EQ(FunctionsOf(pool).release, FunctionsOf(other).release);
}

TEST(PoolFunctions, ReturnNullForRequestsThatTheirPoolCannotServe) {
  const commpool_pool pool = MakePool();
  const Pair pair = FunctionsOf(pool);
  EXPECT_EQ(pair.allocate(0, 0, nullptr), nullptr);
  EXPECT_EQ(pair.allocate(size_t{1} << 50, 0, nullptr), nullptr);
  EXPECT_NE(std::string(commpool_last_error()).find("no memory for 1 PiB"), std::string::npos) << commpool_last_error();
  EXPECT_EQ(pair.allocate(4096, 1, nullptr), nullptr);
  EXPECT_NE(std::string(commpool_last_error()).find("is of device 0"), std::string::npos) << commpool_last_error();
  Destroy(pool);
  EXPECT_EQ(pair.allocate(4096, 0, nullptr), nullptr) << "its pool is gone";
  EXPECT_NE(std::string(commpool_last_error()).find("pool " + std::to_string(pool)), std::string::npos);
}

// Memory of the host serves every device's streams. The calls name device 0, so a null stream is that one's.
TEST(PoolFunctions, MeanTheDefaultStreamOfTheirDeviceWhicheverIsCurrent) {
  const commpool::internal::CudaDriver& cuda = SharedDriver()->cuda;
  const PrimaryContext near = PrimaryContext::Retain(*SharedDriver(), 0).value();
  const PrimaryContext far = PrimaryContext::Retain(*SharedDriver(), 1).value();
  auto options = Initialised(commpool_pool_options_init);
  options.location = COMMPOOL_LOCATION_HOST_NUMA;
  const int peer = 1;
  options.peers = &peer;
  options.peer_count = 1;
  options.limit_bytes = 2 << 20;
  const OwnedPool pool(options);
  const Pair pair = FunctionsOf(pool);
  std::promise<void> end;
  const ContextGuard current(*SharedDriver(), far);
  void* const used = pair.allocate(2 << 20, 0, nullptr);
  {
    const ContextGuard there(*SharedDriver(), near);
    const auto wait = [](void* held) { static_cast<std::promise<void>*>(held)->get_future().wait(); };
    ASSERT_EQ(cuda.cuLaunchHostFunc(nullptr, wait, &end), CUDA_SUCCESS);
  }
  pair.release(used, 2 << 20, 0, nullptr);
  CUstream stream = nullptr;
  ASSERT_EQ(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  void* const next = Allocate(pool, 2 << 20, stream);
  EXPECT_EQ(cuda.cuStreamQuery(stream), CUDA_ERROR_NOT_READY) << "it waits for no work of device 0";
  end.set_value();
  EXPECT_EQ(cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
  Free(next);
  EXPECT_EQ(cuda.cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST(PoolFunctions, FreeBlocksThatOutliveTheirPool) {
  const commpool_pool pool = MakePool();
  const Pair pair = FunctionsOf(pool);
  void* const pointer = pair.allocate(4096, 0, nullptr);
  Destroy(pool);
  pair.release(pointer, 4096, 0, nullptr);
  EXPECT_EQ(commpool_free(pointer), COMMPOOL_NOT_FOUND) << "it was freed";
}

TEST(PoolFunctions, MoveOnFromDestroyedPoolsAndSayWhereNoneIs) {
  std::vector<commpool_pool> pools;
  for (size_t made = 0; made < kFunctions; ++made) {
    pools.push_back(MakePool());
    FunctionsOf(pools.back());
  }
  const OwnedPool last;
  Pair pair;
  ExpectFailure(commpool_pool_functions(last, &pair.allocate, &pair.release), COMMPOOL_OUT_OF_MEMORY, "256 functions");
  const commpool_plain_allocate seventh = FunctionsOf(pools[7]).allocate;
  Destroy(pools[9]);
  Destroy(pools[7]);
  EXPECT_EQ(FunctionsOf(last).allocate, seventh) << "the oldest pool's that is gone";
  void* const pointer = seventh(4096, 0, nullptr);
  EXPECT_EQ(BlocksOf(last), 1u);
  Free(pointer);
  for (size_t place = 0; place < pools.size(); ++place) {
    if (place != 7 && place != 9) Destroy(pools[place]);
  }
}

}  // namespace
}  // namespace commpool::internal::testing
