#include "src/library/base/fork_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include "src/library/base/check.h"

namespace commpool::internal {

ForkGuard::ForkGuard() {
  const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  COMMPOOL_CHECK(page != MAP_FAILED, "the system has no page of memory left");
  // Before Linux 4.14 this fails, and a child is not noticed.
  static_cast<void>(madvise(page, bytes, MADV_WIPEONFORK));
  page_ = static_cast<unsigned char*>(page);
  *page_ = 1;
}

ForkGuard::~ForkGuard() { munmap(const_cast<unsigned char*>(page_), static_cast<size_t>(sysconf(_SC_PAGESIZE))); }

bool InForkedChild() {
  static const auto* const guard = new ForkGuard();  // not destroyed: threads end later
  return guard->InChild();
}

}  // namespace commpool::internal
