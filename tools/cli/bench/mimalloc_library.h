// mimalloc, the best that a host allocator reaches. Opened at run time and called by its own names: Debian's library
// replaces malloc in programs that link it. Any thread.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_MIMALLOC_LIBRARY_H_
#define COMMPOOL_TOOLS_CLI_BENCH_MIMALLOC_LIBRARY_H_

#include <cstddef>

#include "commpool/status.h"

namespace commpool::cli {

struct MimallocLibrary {
  void* (*allocate)(size_t bytes) = nullptr;
  void (*free)(void* block) = nullptr;

  // kNotFound with the package to install.
  static Result<MimallocLibrary> Open();
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_MIMALLOC_LIBRARY_H_
