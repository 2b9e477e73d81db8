// Tells a forked child from the process that made the guard. It costs one load. Any thread.
#pragma once

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

// Whether this is a child of the process that called this first. In a child, locks that other threads held at the fork
// stay locked for ever. So a thread that ends there takes no lock.
bool InForkedChild();

}  // namespace commpool::internal
