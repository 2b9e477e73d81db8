// Tells a forked child from the process that made the guard. It costs one load. Any thread.
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

// Whether this is a child of the process that called this first. A child has one thread, and its locks are as other
// threads held them at the fork: so a thread that ends in it takes no lock.
bool InForkedChild();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_FORK_GUARD_H_
