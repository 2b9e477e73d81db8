// PyTorch's caching allocator, from the small library that tools/bench/build_torch_allocator.sh makes. Any thread.
#pragma once

#include <cstddef>
#include <string>

#include "commpool/status.h"

namespace commpool::cli {

struct TorchLibrary {
  // Null for out of memory.
  void* (*allocate)(size_t bytes, void* stream) = nullptr;
  void (*free)(void* block) = nullptr;
  void (*record_stream)(void* block, void* stream) = nullptr;
  void (*empty_cache)() = nullptr;

  // Prepares device 0's allocator. kNotFound where the file cannot be opened or lacks one of the functions.
  static Result<TorchLibrary> Open(const std::string& file);
};

}  // namespace commpool::cli
