// The vmm backing: cuMemCreate on a device or a host NUMA node, one physical handle a segment.
//
// The one that can do everything: access only for its own device until a peer is granted, handles that NCCL and other
// processes can import, GPUDirect RDMA where the device has it, and the granularity that multicast wants.
#ifndef COMMPOOL_SRC_BACKING_VMM_BACKING_H_
#define COMMPOOL_SRC_BACKING_VMM_BACKING_H_

#include <memory>

#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/driver/device_info.h"

namespace commpool::internal {

// What the device says; that a NUMA node exists shows when a backing is made.
Capability CanMakeVmm(const DeviceInfo& info, const Placement& placement);

// A numa_node of -1 becomes the node nearest to the device. kInvalidArgument where there is no such node.
// REQUIRES: CanMakeVmm(). The driver must outlive the backing and its segments.
Result<std::unique_ptr<Backing>> MakeVmmBacking(const Driver& driver, const DeviceInfo& info, Placement placement);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_VMM_BACKING_H_
