// The driver calls of a growth, by hand: a pool cannot be faster. One thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/driver/device_info.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"

namespace commpool::cli {

// What to make.
struct GrowthShape {
  uint64_t bytes = 0;
  uint64_t page_bytes = 0;      // of handles in a reserved range; 0: one handle with addresses of its own
  std::vector<int> peers = {};  // of device 0
};

class RawGrowth {
 public:
  enum class Access { kOnce, kForEachPage };
  // Addresses for memory of its own: reserved for each growth, or kept for the next one of the same size.
  enum class Addresses { kNew, kKept };
  struct Way {
    Access access = Access::kOnce;
    Addresses addresses = Addresses::kNew;
  };

  // Uses the properties that a vmm pool asks for on this machine. REQUIRES: the driver and device 0's context, which is
  // current, outlive it.
  static Result<RawGrowth> Prepare(const internal::Driver& driver, const GrowthShape& shape);

  // Makes and maps the memory and lets the devices access it; memory in pages has the shape's size. Undo, which is not
  // timed, releases it page by page, the highest first, as a pool does: the cost of a growth depends on how earlier
  // memory was released.
  Status Make(const Way& way, uint64_t bytes);
  Status Undo(const Way& way);

  // Times each driver call of a Make, where asked for.
  void TimeCalls() { times_calls_ = true; }
  const std::map<std::string, double>& microseconds_by_call() const { return microseconds_by_call_; }
  // Whether the last Make got the addresses that were freed last.
  bool got_last_addresses() const { return got_last_addresses_; }

 private:
  RawGrowth(const internal::Driver& driver, const GrowthShape& shape, const CUmemAllocationProp& properties)
      : driver_(driver), shape_(shape), properties_(properties) {}

  bool in_pages() const { return shape_.page_bytes != 0; }
  Status Open(CUdeviceptr at, uint64_t bytes);
  Status Reserve(const Way& way, uint64_t bytes);
  template <typename Call>
  auto Timed(const char* name, Call&& call);

  const internal::Driver& driver_;
  GrowthShape shape_;
  CUmemAllocationProp properties_;
  std::vector<CUmemAccessDesc> access_;
  internal::AddressRange range_;
  internal::AddressRange kept_;
  CUdeviceptr freed_last_ = 0;
  bool got_last_addresses_ = false;
  bool times_calls_ = false;
  std::map<std::string, double> microseconds_by_call_;
  std::vector<internal::PhysicalMemory> memory_;
  std::vector<internal::Mapping> mappings_;  // destroyed first
};

}  // namespace commpool::cli
