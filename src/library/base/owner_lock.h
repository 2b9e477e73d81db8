// A lock for data that one thread, the owner, uses all the time, and others almost never. The owner locks with two
// plain stores. Every other thread pays with a barrier on all cores (membarrier).
//
// The owner never waits: TryLockAsOwner() fails while another thread is inside. Others wait for the owner's short
// moments, and for each other. ThreadSanitizer does not know the barrier, so builds for it order the owner's stores.
#pragma once

#include <atomic>
#include <cstdint>

namespace commpool::internal {

class OwnerLock {
 public:
  // For the owner. False where another thread is inside, or has closed the lock.
  bool TryLockAsOwner() {
    owner_.store(1, kPlainStores ? std::memory_order_relaxed : std::memory_order_seq_cst);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // for the compiler; the others' barrier orders the processor
    if (other_.load(std::memory_order_seq_cst) == 0) return true;
    owner_.store(0, std::memory_order_release);
    return false;
  }
  void UnlockAsOwner() { owner_.store(0, std::memory_order_release); }

  // For every other thread. False where the lock was closed: then the data no longer changes, and the caller must not
  // unlock.
  [[nodiscard]] bool Lock();
  void Unlock() { other_.store(0, std::memory_order_release); }

  // Instead of Unlock: from now on the lock refuses every thread.
  void Close() { other_.store(kClosed, std::memory_order_release); }
  bool closed() const { return other_.load(std::memory_order_acquire) == kClosed; }

 private:
#if defined(__SANITIZE_THREAD__)
  static constexpr bool kPlainStores = false;
#else
  static constexpr bool kPlainStores = true;
#endif
  static constexpr uint32_t kTaken = 1;
  static constexpr uint32_t kClosed = 2;

  std::atomic<uint32_t> owner_{0};
  std::atomic<uint32_t> other_{0};
};

}  // namespace commpool::internal
