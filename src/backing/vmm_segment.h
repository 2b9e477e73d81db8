// A segment of the vmm backing: one physical handle, mapped to addresses of its own.
//
// Threads: as Segment says.
#ifndef COMMPOOL_SRC_BACKING_VMM_SEGMENT_H_
#define COMMPOOL_SRC_BACKING_VMM_SEGMENT_H_

#include <cstdint>
#include <memory>

#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/backing/device_context.h"
#include "src/backing/kept_addresses.h"
#include "src/driver/handles.h"

namespace commpool::internal {

class VmmSegment : public Segment, public Sleeper {
 public:
  // What all segments of a backing share.
  struct Common {
    const Driver& driver;
    std::shared_ptr<DeviceContext> context;
    std::shared_ptr<KeptAddresses> addresses;
    Placement placement;
  };

  // Maps `memory` and lets its own device and the peers in, for host memory the CPU too. Leaves nothing behind where a
  // step fails.
  static Result<std::unique_ptr<Segment>> Map(const Common& common, PhysicalMemory memory, std::span<const int> peers);

  VmmSegment(const Common& common, AddressRange range, PhysicalMemory memory, Mapping mapping);
  ~VmmSegment() override;

  CUdeviceptr address() const override { return address_; }
  uint64_t bytes() const override { return bytes_; }
  const PhysicalMemory* memory() const override { return memory_.valid() ? &memory_ : nullptr; }
  using Segment::Grant;
  Status Grant(std::span<const int> peers) override;
  Status Revoke(int peer) override;
  void KeepAddresses() override { range_.Abandon(); }
  Status Release() override;
  void Abandon() override;

  Sleeper* sleeper() override { return this; }
  Status UnmapAll() override;
  void ReleaseUnmapped() override;
  Status MapAll(const ReservedSet<int>& peers) override;
  // All at once: it has one handle.
  Result<CUdeviceptr> WakeFrom(CUdeviceptr from, uint64_t at_least, PageSource& source,
                               const ReservedSet<int>& peers) override;
  uint64_t missing_bytes() const override { return memory_.valid() ? 0 : bytes_; }

 private:
  template <typename EndOfAddresses>
  Status GiveBack(EndOfAddresses end);
  Status ChangeAccess(std::span<const int> peers, CUmemAccess_flags flags);

  const Driver& driver_;
  const std::shared_ptr<DeviceContext> context_;
  const std::shared_ptr<KeptAddresses> addresses_;
  const Placement placement_;
  AddressRange range_;
  PhysicalMemory memory_;
  Mapping mapping_;
  const CUdeviceptr address_;
  const uint64_t bytes_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_VMM_SEGMENT_H_
