#include "src/library/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace commpool::internal {

void CheckFailed(const char* file, int line, const char* condition, const char* reason) {
  std::fprintf(stderr, "commpool: invariant broken at %s:%d: %s (%s)\n", file, line, reason, condition);
  std::abort();
}

}  // namespace commpool::internal
