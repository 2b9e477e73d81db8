// A mutex that knows its place in the lock order, with Clang's thread-safety annotations.
//
// src/library/reference.md has the order. Each Mutex has a rank. A thread may lock only ranks that come after all those
// that it holds; a violation aborts at once, because it could deadlock. One call may lock several mutexes of the rank
// `collective`, in the order of their addresses. Where NDEBUG is set nobody keeps these books.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <vector>

#include "src/library/base/check.h"

#if defined(__clang__)
#define COMMPOOL_ANNOTATION(x) __attribute__((x))
#else
#define COMMPOOL_ANNOTATION(x)
#endif
#define COMMPOOL_CAPABILITY(name) COMMPOOL_ANNOTATION(capability(name))
#define COMMPOOL_SCOPED_CAPABILITY COMMPOOL_ANNOTATION(scoped_lockable)
#define COMMPOOL_GUARDED_BY(mutex) COMMPOOL_ANNOTATION(guarded_by(mutex))
#define COMMPOOL_PT_GUARDED_BY(mutex) COMMPOOL_ANNOTATION(pt_guarded_by(mutex))
#define COMMPOOL_RETURN_CAPABILITY(mutex) COMMPOOL_ANNOTATION(lock_returned(mutex))
#define COMMPOOL_REQUIRES(...) COMMPOOL_ANNOTATION(requires_capability(__VA_ARGS__))
#define COMMPOOL_EXCLUDES(...) COMMPOOL_ANNOTATION(locks_excluded(__VA_ARGS__))
#define COMMPOOL_ACQUIRE(...) COMMPOOL_ANNOTATION(acquire_capability(__VA_ARGS__))
#define COMMPOOL_TRY_ACQUIRE(...) COMMPOOL_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define COMMPOOL_RELEASE(...) COMMPOOL_ANNOTATION(release_capability(__VA_ARGS__))
#define COMMPOOL_ASSERT_CAPABILITY(mutex) COMMPOOL_ANNOTATION(assert_capability(mutex))

namespace commpool::internal {

// From outermost to innermost: lock only downwards in this list. A thread never holds two of one rank.
enum class LockRank : int {
  kRuntime = 10,     // one thread makes the process's runtime, or a device's default pool
  kCollective = 20,  // one collective or registering call of a pool at a time; guards data of such calls only
  kGrowth = 30,      // one change of a pool's segments or peers at a time, driver calls included; its set of peers
  kPoolTable = 40,   // handles, addresses, open scopes
  kCaches = 45,      // which threads have caches of which pools and streams
  kPool = 50,        // a pool's engine and its list of segments
  kStream = 60,      // spare events, the devices of streams
  kLeaf = 70,        // registrations, windows, the first sticky error, accounts, the map of blocks, a link of ranks
  kLostRanks = 75,   // which ranks are lost: a link notes them
  kRecorder = 80,    // the recorder's pages: entries come under any other lock
};

#ifdef NDEBUG
inline constexpr bool kChecksLocks = false;
#else
inline constexpr bool kChecksLocks = true;
#endif

// Each allocation takes one, so the way that waits for nobody is inlined: one atomic operation to lock, one to unlock.
class COMMPOOL_CAPABILITY("mutex") Mutex {
 public:
  explicit Mutex(LockRank rank) : rank_(rank) {}

  void Lock() COMMPOOL_ACQUIRE() {
    if constexpr (kChecksLocks) CheckOrder();
    Take();
    if constexpr (kChecksLocks) NoteTaken();
  }
  // False where it is held, and, where the books are kept, by a thread that holds any lock: nobody waits.
  bool TryLock() COMMPOOL_TRY_ACQUIRE(true);
  void Unlock() COMMPOOL_RELEASE() {
    if constexpr (kChecksLocks) NoteReleased();
    Release();
  }
  // For a callback: tells Clang's analysis, which looks at one function at a time, that the thread holds the mutex.
  // Aborts where the thread holds no mutex of this rank.
  void AssertHeld() const COMMPOOL_ASSERT_CAPABILITY(this);

 private:
  friend class Condition;

  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kAwaited = 2;  // held, and somebody may wait

  void CheckOrder() const;
  void NoteTaken() const;
  void NoteReleased() const;

  // Without the thread's books.
  void Take() {
    uint32_t word = kFree;
    if (!word_.compare_exchange_strong(word, kHeld, std::memory_order_acquire, std::memory_order_relaxed)) [[unlikely]]
      Await();
  }
  void Release() {
    const uint32_t word = word_.exchange(kFree, std::memory_order_release);
    if (word == kHeld) [[likely]]
      return;
    COMMPOOL_CHECK(word == kAwaited, "a lock is released that nobody holds");
    word_.notify_one();
  }
  void Await();

  std::atomic<uint32_t> word_{kFree};
  const LockRank rank_;
};

class COMMPOOL_SCOPED_CAPABILITY [[nodiscard]] MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) COMMPOOL_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() COMMPOOL_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Locks several mutexes of the rank `collective` in one order for all threads: else two calls could wait for each
// other.
std::deque<MutexLock> LockInOrder(std::vector<Mutex*> mutexes);

// Waits for what other threads change under a mutex. A wait releases the mutex meanwhile, and may end for no reason:
// call it in a loop that looks.
class Condition {
 public:
  void Wait(Mutex& mutex) COMMPOOL_REQUIRES(mutex);
  // False once the moment has passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point moment) COMMPOOL_REQUIRES(mutex);
  void NotifyAll() { condition_.notify_all(); }

 private:
  struct Unlocking;

  std::condition_variable_any condition_;
};

// Whether this thread holds no commpool lock. kCollective and kGrowth do not count, for they order effects. Driver and
// NCCL calls require this (rule 1). For tests: true where NDEBUG is set.
bool HoldsNoLock();

}  // namespace commpool::internal
