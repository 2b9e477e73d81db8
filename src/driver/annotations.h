// What pools tell whoever checks a program's use of memory: blocks that begin and end, streams that use them and are
// forgotten, captures that are announced. The emulator listens; on a real driver nobody does, and the functions are
// null. Any thread.
#ifndef COMMPOOL_SRC_DRIVER_ANNOTATIONS_H_
#define COMMPOOL_SRC_DRIVER_ANNOTATIONS_H_

#include <cuda.h>

#include <cstddef>

#include "src/driver/loader.h"

namespace commpool::internal {

struct Annotations {
  bool listening = false;  // what the fast path asks
  void (*block_allocated)(CUdeviceptr address, size_t bytes, CUstream stream, const char* pool) = nullptr;
  void (*block_freed)(CUdeviceptr address) = nullptr;
  void (*block_recorded)(CUdeviceptr address, CUstream stream) = nullptr;
  void (*stream_released)(CUstream stream) = nullptr;
  void (*capture_announced)(CUstream stream, int announced) = nullptr;
};

Annotations FindAnnotations(const Driver& driver);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_ANNOTATIONS_H_
