// Tells whether this is a child of the process that made the guard, at the price of one load. Any thread.
#ifndef COMMPOOL_SRC_BASE_FORK_GUARD_H_
#define COMMPOOL_SRC_BASE_FORK_GUARD_H_

namespace commpool::internal {

class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool InChild() const { return *page_ == 0; }

 private:
  volatile unsigned char* page_ = nullptr;  // the kernel clears it in a child
};

// Whether this is a child of the process in which this was asked first. A child has one thread, and the locks as other
// threads held them at the fork: so it takes none when a thread ends.
bool InForkedChild();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_FORK_GUARD_H_
