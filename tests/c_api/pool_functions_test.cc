// Function pairs without a context, as frameworks take them.
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"

namespace {

using commpool::internal::ContextGuard;
using commpool::internal::PrimaryContext;
using commpool::internal::testing::SharedDriver;

constexpr size_t kFunctions = 256;

struct Pair {
  commpool_plain_allocate allocate = nullptr;
  commpool_plain_free release = nullptr;
};

commpool_pool MakePool() {
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  commpool_pool pool = 0;
  EXPECT_EQ(commpool_pool_create(&options, &pool), COMMPOOL_OK) << commpool_last_error();
  return pool;
}

Pair FunctionsOf(commpool_pool pool) {
  Pair pair;
  EXPECT_EQ(commpool_pool_functions(pool, &pair.allocate, &pair.release), COMMPOOL_OK) << commpool_last_error();
  return pair;
}

uint64_t Blocks(commpool_pool pool) {
  commpool_statistics statistics;
  commpool_statistics_init(&statistics);
  EXPECT_EQ(commpool_pool_statistics(pool, COMMPOOL_PEAKS_STAY, &statistics), COMMPOOL_OK) << commpool_last_error();
  return statistics.allocated_blocks.current;
}

void Destroy(commpool_pool pool) { EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK) << commpool_last_error(); }

TEST(PoolFunctions, AllocateFromTheirPoolUnderAnyScope) {
  const commpool_pool pool = MakePool();
  const commpool_pool other = MakePool();
  const Pair pair = FunctionsOf(pool);
  commpool_scope scope = 0;
  ASSERT_EQ(commpool_scope_begin(other, nullptr, &scope), COMMPOOL_OK);
  void* const pointer = pair.allocate(4096, 0, nullptr);
  EXPECT_NE(pointer, nullptr) << commpool_last_error();
  EXPECT_EQ(Blocks(pool), 1u);
  EXPECT_EQ(Blocks(other), 0u);
  pair.release(pointer, 4096, 0, nullptr);
  EXPECT_EQ(Blocks(pool), 0u);
  EXPECT_EQ(commpool_scope_end(scope), COMMPOOL_OK);
  Destroy(pool);
  Destroy(other);
}

TEST(PoolFunctions, AreAPoolsOwnAndTheSameEachTime) {
  const commpool_pool pool = MakePool();
  const commpool_pool other = MakePool();
  EXPECT_EQ(FunctionsOf(pool).allocate, FunctionsOf(pool).allocate);
  EXPECT_NE(FunctionsOf(pool).allocate, FunctionsOf(other).allocate);
  EXPECT_EQ(FunctionsOf(pool).release, FunctionsOf(other).release);
  Destroy(pool);
  Destroy(other);
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
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.location = COMMPOOL_LOCATION_HOST_NUMA;
  const int peer = 1;
  options.peers = &peer;
  options.peer_count = 1;
  options.limit_bytes = 2 << 20;
  commpool_pool pool = 0;
  ASSERT_EQ(commpool_pool_create(&options, &pool), COMMPOOL_OK) << commpool_last_error();
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
  void* next = nullptr;
  ASSERT_EQ(commpool_pool_allocate(pool, 2 << 20, stream, &next), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(cuda.cuStreamQuery(stream), CUDA_ERROR_NOT_READY) << "it waits for no work of device 0";
  end.set_value();
  EXPECT_EQ(cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(commpool_free(next), COMMPOOL_OK);
  EXPECT_EQ(cuda.cuStreamDestroy(stream), CUDA_SUCCESS);
  Destroy(pool);
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
  const commpool_pool last = MakePool();
  Pair pair;
  EXPECT_EQ(commpool_pool_functions(last, &pair.allocate, &pair.release), COMMPOOL_OUT_OF_MEMORY);
  EXPECT_NE(std::string(commpool_last_error()).find("256 functions"), std::string::npos) << commpool_last_error();
  const commpool_plain_allocate seventh = FunctionsOf(pools[7]).allocate;
  Destroy(pools[9]);
  Destroy(pools[7]);
  EXPECT_EQ(FunctionsOf(last).allocate, seventh) << "the oldest pool's that is gone";
  void* const pointer = seventh(4096, 0, nullptr);
  EXPECT_EQ(Blocks(last), 1u);
  EXPECT_EQ(commpool_free(pointer), COMMPOOL_OK);
  for (size_t place = 0; place < pools.size(); ++place) {
    if (place != 7 && place != 9) Destroy(pools[place]);
  }
  Destroy(last);
}

}  // namespace
