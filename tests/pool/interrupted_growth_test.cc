// An expandable pool grows. At each place where it holds no lock, another request is served first: then memory in its
// plan may be gone.
//
// The program has its own pthread_mutex_lock, which knows when the library's code is about to lock.
#include <dlfcn.h>
#include <pthread.h>

#include <functional>
#include <vector>

#include "src/library/base/mutex.h"
#include "tests/pool/pool_fixture.h"

extern "C" const char __executable_start;
extern "C" const char etext;

namespace commpool::internal::testing {
namespace {

// State of one thread.
struct Interruption {
  int locks_before = 0;  // locks until the interruption; 0: none
  const std::function<void()>* act = nullptr;
};
constinit thread_local Interruption interruption;

// Called when `caller` locks.
void MayInterrupt(const void* caller) {
  const bool own_code = caller >= &__executable_start && caller < &etext;  // the emulator holds locks of its own
  if (interruption.locks_before == 0 || !own_code || !HoldsNoLock()) return;
  if (--interruption.locks_before > 0) return;
  (*interruption.act)();
}

constexpr uint64_t kPage = 2 * kMiB;

class InterruptedGrowth : public PoolTest {
 protected:
  CUdeviceptr Allocate(uint64_t bytes) { return runtime().AllocateFrom(pool_, bytes, nullptr).value(); }
  void Free(CUdeviceptr address) { EXPECT_TRUE(runtime().Free(address).ok()); }

  // A pool with four live pages, each followed by a free one, and a request for all free memory, which moves the free
  // pages together. Before the nth lock another request gets a page, where one is free. Returns whether there was an
  // nth lock.
  bool Interrupt(int nth) {
    PoolConfiguration configuration = Configured("expandable");
    configuration.mode = Mode::kExpandable;
    configuration.segment_bytes = kPage;
    pool_ = Create(configuration);
    std::vector<CUdeviceptr> blocks;
    for (int block = 0; block < 8; ++block) blocks.push_back(Allocate(kPage));
    for (size_t block = 7; block < 8; block -= 2) {
      Free(blocks[block]);
      blocks.erase(blocks.begin() + static_cast<long>(block));
    }
    EXPECT_TRUE(Get(pool_).WaitForDevice().ok());
    bool came = false;
    const std::function<void()> serve_another = [&] {
      came = true;
      if (CountersOf(pool_).largest_free_block_bytes >= kPage) blocks.push_back(Allocate(kPage));
    };
    interruption = {nth, &serve_another};
    const CUdeviceptr large = Allocate(4 * kPage);
    interruption = {};
    Get(pool_).CheckInvariants();
    for (const CUdeviceptr block : blocks) EXPECT_TRUE(block + kPage <= large || large + 4 * kPage <= block) << nth;
    Fill(nullptr, large, 4 * kPage, 7);
    for (const CUdeviceptr block : blocks) {
      Fill(nullptr, block, kPage, 9);
      Free(block);
    }
    Free(large);
    EXPECT_TRUE(runtime().DestroyPool(pool_).ok());
    return came;
  }

  PoolHandle pool_ = 0;
};

TEST_F(InterruptedGrowth, IsSoundWhereverAnotherRequestIsServedFirst) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer has a pthread_mutex_lock of its own";
#endif
  int nth = 1;
  while (Interrupt(nth)) ++nth;
  EXPECT_GT(nth, 10) << "the library's locks are not seen";
}

}  // namespace
}  // namespace commpool::internal::testing

#ifndef __SANITIZE_THREAD__
extern "C" __attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const lock = reinterpret_cast<decltype(pthread_mutex_lock)*>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  commpool::internal::testing::MayInterrupt(__builtin_return_address(0));
  return lock(mutex);
}
#endif
