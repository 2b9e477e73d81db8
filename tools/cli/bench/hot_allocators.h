// The allocators that `commpool bench hot` compares, each with the same two calls, inlined into the timed loops: a
// virtual call would cost a tenth of what is measured. One object for each thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <variant>

#include "commpool/commpool.h"
#include "tools/cli/bench/async_pool.h"
#include "tools/cli/torch_library.h"

namespace commpool::cli {

struct HotPool {
  commpool_pool pool;
  CUstream stream;

  void* Allocate(uint64_t bytes) const {
    void* block = nullptr;
    commpool_pool_allocate(pool, bytes, stream, &block);
    return block;
  }
  void Free(void* block) const { commpool_free(block); }
};

// Through the open scopes, on device 0.
struct HotRoute {
  CUstream stream;

  void* Allocate(uint64_t bytes) const {
    void* block = nullptr;
    commpool_allocate(0, bytes, stream, &block);
    return block;
  }
  void Free(void* block) const { commpool_free(block); }
};

// The best that a host allocator reaches, called by its own names: Debian's library replaces malloc in programs that
// link it.
struct HotMimalloc {
  void* (*allocate)(size_t bytes) = nullptr;
  void (*free)(void* block) = nullptr;

  void* Allocate(uint64_t bytes) const { return allocate(bytes); }
  void Free(void* block) const { free(block); }
};

struct HotTorch {
  TorchLibrary library;
  CUstream stream;

  void* Allocate(uint64_t bytes) const { return library.allocate(bytes, stream); }
  void Free(void* block) const { library.free(block); }
};

struct HotAsync {
  const AsyncPool* pool;
  CUstream stream;

  void* Allocate(uint64_t bytes) const { return pool->Allocate(bytes, stream); }
  void Free(void* block) const { pool->Free(block, stream); }
};

using HotAllocator = std::variant<HotPool, HotRoute, HotMimalloc, HotTorch, HotAsync>;

}  // namespace commpool::cli
