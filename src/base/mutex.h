// A mutex that knows its place in the lock order, with Clang's thread-safety annotations.
//
// The order is written in src/README.md. Each Mutex has a rank; a thread may lock only ranks above those that it holds,
// and a violation aborts at once (checked where NDEBUG is not set): a deadlock that could happen is a bug that did.
#ifndef COMMPOOL_SRC_BASE_MUTEX_H_
#define COMMPOOL_SRC_BASE_MUTEX_H_

#include <mutex>

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
#define COMMPOOL_RELEASE(...) COMMPOOL_ANNOTATION(release_capability(__VA_ARGS__))
#define COMMPOOL_UNCHECKED COMMPOOL_ANNOTATION(no_thread_safety_analysis)

namespace commpool::internal {

// From outermost to innermost: lock only downwards in this list. Two of one rank are never held together.
enum class LockRank : int {
  kRuntime = 10,     // the one runtime of the C ABI: made once
  kCollective = 20,  // one collective step of a pool at a time
  kGrowth = 30,      // one growth of a pool at a time (held across driver calls: it serialises effects, guards no data)
  kPoolTable = 40,   // handles -> pools, default pools, scopes of the process
  kCaches = 45,      // which threads have caches of which pools
  kPool = 50,        // a pool's engine, segments and registrations
  kStream = 60,      // spare events and canonical streams
  kLeaf = 70,        // anything that locks nothing else
};

class COMMPOOL_CAPABILITY("mutex") Mutex {
 public:
  explicit Mutex(LockRank rank) : rank_(rank) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() COMMPOOL_ACQUIRE();
  void Unlock() COMMPOOL_RELEASE();

 private:
  std::mutex mutex_;
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

// Whether this thread holds no commpool lock: what every driver call outside growth requires (rule 1).
bool HoldsNoLock();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_MUTEX_H_
