// Whether a peer can be let into memory at a placement, and the refusal where it cannot. Any thread.
#ifndef COMMPOOL_SRC_BACKING_PEER_ACCESS_H_
#define COMMPOOL_SRC_BACKING_PEER_ACCESS_H_

#include <cstdint>
#include <span>

#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/base/host_reserve.h"

namespace commpool::internal {

// Device memory needs a way from the peer to its owner; host memory a peer that maps host NUMA memory.
Capability CanReach(const Driver& driver, const Placement& placement, int peer);

// kNotSupported where one of the peers cannot be let in.
Status CheckReach(const Driver& driver, const Placement& placement, std::span<const int> peers);

// Those of the devices that are not the placement's own.
ReservedVector<int> OthersThan(const Placement& placement, std::span<const int> devices);

// Reading and writing for devices, or neither, in one call for all of them: a driver's cost follows the mappings in the
// range. REQUIRES: whole mappings cover the range; the device's context is current. Nothing to do without a device.
Status SetAccess(const Driver& driver, CUdeviceptr at, uint64_t bytes, std::span<const int> devices,
                 CUmemAccess_flags flags);

// OK where the capability is there; else kNotSupported: "`what`: reason".
Status RefuseUnless(const Capability& capability, const std::string& what);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_PEER_ACCESS_H_
