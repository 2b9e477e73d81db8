// The common part of segments that one call makes and one call frees: cudaMalloc's, ncclMemAlloc's, a user's.
//
// Threads: as Segment says.
#ifndef COMMPOOL_SRC_BACKING_OWNED_SEGMENT_H_
#define COMMPOOL_SRC_BACKING_OWNED_SEGMENT_H_

#include <cstdint>
#include <memory>

#include "src/backing/backing.h"

namespace commpool::internal {

class OwnedSegment : public Segment {
 public:
  OwnedSegment(const Backing& backing, CUdeviceptr address, uint64_t bytes)
      : row_(backing.row()), driver_(backing.driver()), context_(backing.context()), address_(address), bytes_(bytes) {}

  CUdeviceptr address() const final { return address_; }
  uint64_t bytes() const final { return bytes_; }

  using Segment::Grant;
  Status Grant(std::span<const int> peers) final;
  Status Revoke(int peer) final;
  Status Release() final;
  void Abandon() override;

 protected:
  const Driver& driver() const { return driver_; }
  const DeviceContext& context() const { return *context_; }

  // The parts that differ, called with the device's context current, on live memory and for other devices only.
  virtual Status GrantPeer(int peer) = 0;
  virtual Status ReleaseMemory() = 0;

  // For the destructors of derived classes, whose functions are gone in ours.
  void ReleaseAndLog();

 private:
  Status CheckLive(const char* what) const;

  const BackingRow& row_;
  const Driver& driver_;
  const std::shared_ptr<DeviceContext> context_;  // a segment may outlive its backing
  const CUdeviceptr address_;
  const uint64_t bytes_;
  bool owned_ = true;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_OWNED_SEGMENT_H_
