// Another project's allocator behind the C functions of tools/bench. Any thread.
#ifndef COMMPOOL_TOOLS_CLI_REPLAY_PEERS_PEER_LIBRARY_H_
#define COMMPOOL_TOOLS_CLI_REPLAY_PEERS_PEER_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "commpool/status.h"

namespace commpool::cli {

// The library of tools/bench/build_rmm_allocator.sh: bench_rmm_*.
struct RmmLibrary {
  // `kind`: "pool" or "arena", which takes `bytes` at once. False where there is no memory. A second call begins again.
  bool (*initialise)(const char* kind, size_t bytes) = nullptr;
  // Null for out of memory.
  void* (*allocate)(size_t bytes, void* stream) = nullptr;
  void (*free)(void* block, size_t bytes, void* stream) = nullptr;
  void (*finish)() = nullptr;
  // Calls and time of cudaMalloc and cudaFree since the library was opened.
  void (*upstream)(uint64_t* calls, double* microseconds) = nullptr;

  // kNotFound where the file cannot be opened or lacks one of the functions.
  static Result<RmmLibrary> Open(const std::string& file);
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_REPLAY_PEERS_PEER_LIBRARY_H_
