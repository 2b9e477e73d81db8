// How `commpool bench memory` uses memory: copies of the GPU, and the CPU's own reads and writes. One thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <utility>

#include "tools/cli/bench/raw_memory.h"
#include "tools/cli/bench/stopwatch.h"

namespace commpool::cli {

enum class Use {
  kGpuRead,   // a copy from the memory to plain memory of device 0
  kGpuWrite,  // a copy to the memory from there
  kToPeer,    // a copy to memory of the same kind on another device
  kCpuRead,   // the sum of all words
  kCpuWrite,  // memset
  kCpuLoad,   // of one word on each of the pages, out of the caches: each says which is next, many pages away
};

struct UseRow {
  Use use;
  const char* name;
  uint64_t bytes;  // of one operation; 0: of the whole memory
};

// What can be measured of such memory. The small sizes tell latency, the large ones bandwidth.
std::span<const UseRow> UsesOnDevice();
std::span<const UseRow> UsesBetweenDevices();
std::span<const UseRow> UsesOnHost();

// Memory to measure, and its like on another device; 0 for none.
struct Subject {
  CUdeviceptr memory = 0;
  CUdeviceptr on_peer = 0;
};

class MemoryUses {
 public:
  // Of memory of `bytes`, a multiple of 2 MiB.
  static Result<MemoryUses> Make(const SoloDevice& device, uint64_t bytes);

  // Microseconds of one operation. The CPU's uses are timed by the host's clock on the emulator too.
  Result<double> Time(const UseRow& row, const Subject& subject) const;
  uint64_t BytesOf(const UseRow& row) const { return row.bytes == 0 ? bytes_ : row.bytes; }

 private:
  MemoryUses(const SoloDevice& device, uint64_t bytes, RawMemory plain)
      : device_(&device), stopwatch_(device), bytes_(bytes), plain_(std::move(plain)) {}

  Result<double> TimeCopies(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) const;
  double TimeOnCpu(Use use, void* memory) const;

  const SoloDevice* device_;
  Stopwatch stopwatch_;
  uint64_t bytes_;
  RawMemory plain_;
};

}  // namespace commpool::cli
