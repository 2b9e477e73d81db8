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

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_FORK_GUARD_H_
