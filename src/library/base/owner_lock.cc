#include "src/library/base/owner_lock.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "src/library/base/check.h"

namespace commpool::internal {

namespace {

// Returns after every thread of the process has passed a full barrier.
void BarrierOnAllCores() {
  // Before Linux 4.14 the kernel refuses this registration. Then we use the slower barrier over all processes.
  static const bool private_one = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  const int command = private_one ? MEMBARRIER_CMD_PRIVATE_EXPEDITED : MEMBARRIER_CMD_GLOBAL;
  COMMPOOL_CHECK(syscall(SYS_membarrier, command, 0, 0) == 0, "the kernel has no membarrier (Linux 4.3 first)");
}

}  // namespace

bool OwnerLock::Lock() {
  uint32_t expected = 0;
  while (!other_.compare_exchange_weak(expected, kTaken, std::memory_order_seq_cst)) {
    if (expected == kClosed) return false;
    expected = 0;
    std::this_thread::yield();
  }
  if (kPlainStores) BarrierOnAllCores();
  while (owner_.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  return true;
}

}  // namespace commpool::internal
