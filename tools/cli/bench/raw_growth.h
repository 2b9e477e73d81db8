// The driver calls of a growth, by hand: the limit of what a pool can reach. One thread.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_RAW_GROWTH_H_
#define COMMPOOL_TOOLS_CLI_BENCH_RAW_GROWTH_H_

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/driver/device_info.h"
#include "src/driver/handles.h"
#include "src/driver/loader.h"

namespace commpool::cli {

// What grows.
struct GrowthShape {
  uint64_t bytes = 0;
  uint64_t page_bytes = 0;      // of physical handles in a reserved range; 0: one handle with addresses of its own
  std::vector<int> peers = {};  // of device 0
};

class RawGrowth {
 public:
  enum class Access { kOnce, kForEachPage };

  // With the properties that a pool of vmm memory asks for on this machine. REQUIRES: the driver and device 0's
  // context, which is current, outlive it.
  static Result<RawGrowth> Prepare(const internal::Driver& driver, const GrowthShape& shape);

  // Makes and maps the memory and lets the devices in. What is not timed, Undo, gives it back page by page, the highest
  // first, as a pool does: what a growth costs depends on how the memory before it went.
  Status Make(Access access);
  Status Undo();

 private:
  RawGrowth(const internal::Driver& driver, const GrowthShape& shape, const CUmemAllocationProp& properties)
      : driver_(driver), shape_(shape), properties_(properties) {}

  bool in_pages() const { return shape_.page_bytes != 0; }
  Status Open(CUdeviceptr at, uint64_t bytes);

  const internal::Driver& driver_;
  GrowthShape shape_;
  CUmemAllocationProp properties_;
  std::vector<CUmemAccessDesc> access_;
  internal::AddressRange range_;
  std::vector<internal::PhysicalMemory> memory_;
  std::vector<internal::Mapping> mappings_;  // go first
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_RAW_GROWTH_H_
