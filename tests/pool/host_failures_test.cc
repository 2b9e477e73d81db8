// A host without memory: frees succeed, and pools that wake lose nothing.
#include "src/base/host_failure.h"
#include "tests/base/empty_system.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class EmptyHost : public PoolTest {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("a driver needs memory of the host itself"); }
};

// Only blocks without other streams: the emulated driver needs the same host's memory.
TEST_F(EmptyHost, FreesBlocks) {
  const PoolHandle pool = Create(Configured("freeing"));
  const TestStream stream;
  std::vector<CUdeviceptr> blocks;
  for (const uint64_t bytes : {uint64_t{700}, 3 * kMiB, uint64_t{701}, 5 * kMiB, 300 * kKiB}) {
    blocks.push_back(runtime().AllocateFrom(pool, bytes, stream.get()).value());
  }
  for (const CUdeviceptr block : blocks) {
    const SystemIsEmpty empty;
    ASSERT_TRUE(runtime().Free(block).ok());
  }
  Get(pool).CheckInvariants();
  EXPECT_EQ(CountersOf(pool).allocated_blocks.current, 0u);
}

// The host has no memory when the pool begins to wake, and when it releases copies: at these moments the emulated
// driver needs none.
TEST_F(EmptyHost, WakesAPoolLaterWithAllThatItKeeps) {
  const PoolHandle handle = Create(Configured("sleeper"));
  Pool& pool = Get(handle);
  const MemoryAccount& account = runtime().devices().Get(0).value()->account();
  const CUdeviceptr block = runtime().AllocateFrom(handle, 3 * kMiB, nullptr).value();
  Fill(nullptr, block, 3 * kMiB, 7);
  const auto sleep_and_wake = [&](uint64_t served) {
    const CUdeviceptr freed = runtime().AllocateFrom(handle, kMiB, nullptr).value();
    const uint64_t awake = account.taken();
    EXPECT_TRUE(pool.Sleep({.keep = Keep::kHost, .copies = {.retain = true}}).ok());
    EXPECT_TRUE(runtime().Free(freed).ok());
    uint64_t requests = 0;
    {
      const SystemIsEmpty empty(served);
      static_cast<void>(Attempt([&] { return pool.Wake(); }));
      requests = SystemIsEmpty::Requests();
    }
    const Status woken = pool.asleep() ? pool.Wake() : Status();
    EXPECT_TRUE(woken.ok()) << served << ": " << woken.message();
    EXPECT_EQ(account.taken(), awake) << served;
    const Result<const std::byte*> kept = pool.Kept(block, 3 * kMiB);
    EXPECT_TRUE(kept.ok() && (*kept)[kMiB] == std::byte{7}) << served << ": " << kept.status().message();
    uint64_t wrong = 0;
    Compare(nullptr, block, 3 * kMiB, 7, &wrong);
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(wrong, 0u) << served;
    return requests;
  };
  sleep_and_wake(0);
  const uint64_t all = sleep_and_wake(UINT64_MAX);
  for (uint64_t last = 1; last <= 2; ++last) sleep_and_wake(all - last);
  ASSERT_TRUE(runtime().Free(block).ok());
  ASSERT_TRUE(runtime().DestroyPool(handle).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
