// An expandable pool grows. At each place where it holds no lock, another request is served first: then memory in its
// plan may be gone.
//
// The linker redirects Mutex::CheckOrder, which a mutex calls before it locks, to a function here (tests/pool/BUILD).
#include <functional>
#include <vector>

#include "src/library/base/mutex.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

// State of one thread.
struct Interruption {
  int locks_before = 0;  // locks until the interruption; 0: none
  const std::function<void()>* act = nullptr;
};
constinit thread_local Interruption interruption;

void MayInterrupt() {
  if (interruption.locks_before == 0 || !HoldsNoLock()) return;
  if (--interruption.locks_before > 0) return;
  (*interruption.act)();
}

constexpr uint64_t kPage = 2 * kMiB;

class InterruptedGrowth : public PoolTest {
 protected:
  CUdeviceptr Allocate(uint64_t bytes) { return PoolTest::Allocate(pool_, bytes); }

  // A pool with four live pages, each followed by a free one, and a request for all free memory, which moves the free
  // pages together. Before the nth lock another request gets a page, where one is free. Returns whether there was an
  // nth lock.
  bool Interrupt(int nth) {
    pool_ = CreateWith({.name = "expandable", .mode = Mode::kExpandable, .segment_bytes = kPage});
    std::vector<CUdeviceptr> blocks;
    for (int block = 0; block < 8; ++block) blocks.push_back(Allocate(kPage));
    for (size_t block = 7; block < 8; block -= 2) {
      Free(blocks[block]);
      blocks.erase(blocks.begin() + static_cast<long>(block));
    }
    EXPECT_TRUE(Get(pool_).blocks().WaitForDevice().ok());
    bool came = false;
    const std::function<void()> serve_another = [&] {
      came = true;
      if (CountersOf(pool_).largest_free_block_bytes >= kPage) blocks.push_back(Allocate(kPage));
    };
    interruption = {nth, &serve_another};
    const CUdeviceptr large = Allocate(4 * kPage);
    interruption = {};
    CheckInvariants(Get(pool_));
    for (const CUdeviceptr block : blocks) EXPECT_TRUE(block + kPage <= large || large + 4 * kPage <= block) << nth;
    Fill(nullptr, large, 4 * kPage, 7);
    for (const CUdeviceptr block : blocks) Fill(nullptr, block, kPage, 9);
    FreeAll(blocks);
    Free(large);
    Destroy(pool_);
    return came;
  }

  PoolHandle pool_ = 0;
};

TEST_F(InterruptedGrowth, IsSoundWhereverAnotherRequestIsServedFirst) {
#ifdef NDEBUG
  GTEST_SKIP() << "a mutex does not check its order here";
#endif
  int nth = 1;
  while (Interrupt(nth)) ++nth;
  EXPECT_GT(nth, 10) << "the library's locks are not seen";
}

}  // namespace

#define COMMPOOL_LOCK "_ZNK8commpool8internal5Mutex10CheckOrderEv"
void CheckOrder(const Mutex*) asm("__real_" COMMPOOL_LOCK);
void CheckOrderLater(const Mutex*) asm("__wrap_" COMMPOOL_LOCK);
void CheckOrderLater(const Mutex* mutex) {
  MayInterrupt();
  CheckOrder(mutex);
}

}  // namespace commpool::internal::testing
