// Device work that uses a block until the host releases it: it stands for a program's kernels in a replay. On the
// emulator an operation that declares the block; on a GPU a memset of its first bytes and a wait for a word in host
// memory. One thread, except for ReleaseAll.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "commpool/status.h"
#include "src/library/driver/loader.h"

namespace commpool::cli {

class TraceWork {
 public:
  virtual ~TraceWork() = default;

  // Writes the range on a stream (by its index), and holds it until Release(stream).
  virtual Status Hold(size_t stream, CUdeviceptr address, uint64_t bytes) = 0;

  // Lets the held work of a stream end, and waits for the end; where streams wait for each other, only for a moment.
  virtual Status Release(size_t stream) = 0;

  // Lets all held work end; does not wait. Any thread, at any time.
  virtual void ReleaseAll() = 0;
};

// The streams must outlive it. Its destructor releases all work and waits. kNotSupported where the device lacks waits
// for memory.
Result<std::unique_ptr<TraceWork>> MakeTraceWork(const internal::Driver& driver, const std::vector<CUstream>& streams);

// The two kinds.
Result<std::unique_ptr<TraceWork>> MakeEmulatedWork(const internal::Driver& driver,
                                                    const std::vector<CUstream>& streams);
Result<std::unique_ptr<TraceWork>> MakeDeviceWork(const internal::Driver& driver, const std::vector<CUstream>& streams);

}  // namespace commpool::cli
