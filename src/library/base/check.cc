#include "src/library/base/check.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace commpool::internal {

namespace {

iovec Piece(std::string_view text) { return {const_cast<char*>(text.data()), text.size()}; }

}  // namespace

void CheckFailed(const char* file, int line, const char* condition, const char* reason) {
  std::fprintf(stderr, "commpool: invariant broken at %s:%d: %s (%s)\n", file, line, reason, condition);
  std::abort();
}

void EndWithoutHostMemory(const char* who) noexcept {
  const iovec sentence[] = {Piece("commpool: "), Piece(who), Piece(": the host has no memory\n")};
  static_cast<void>(!writev(STDERR_FILENO, sentence, 3));
  std::abort();
}

}  // namespace commpool::internal
