// Memory that sleeps and wakes by driver calls alone: a pool cannot be faster. Allocators that know each block by
// itself work like this (vLLM's CuMemAllocator, torch_memory_saver). One thread; a context is current.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"

namespace commpool::cli {

class RawSleep {
 public:
  // `blocks` of `bytes` each, each with its own handle and addresses.
  static Result<RawSleep> Make(const internal::Driver& driver, size_t blocks, uint64_t bytes);

  // Each waits for the device first, then goes through the blocks one by one.
  Status Sleep();
  Status Wake();
  CUdeviceptr first() const { return blocks_.front().addresses.address(); }

 private:
  struct Block {
    internal::AddressRange addresses;
    internal::PhysicalMemory memory;
    internal::Mapping mapping;
  };

  explicit RawSleep(const internal::Driver& driver) : driver_(&driver) {}
  Status WaitForDevice() const;

  const internal::Driver* driver_;
  uint64_t bytes_ = 0;
  std::vector<Block> blocks_;
};

}  // namespace commpool::cli
