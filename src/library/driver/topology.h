// What depends on how devices and host NUMA nodes are linked: one function for each such choice, and each is tested on
// every machine that the emulator knows by name (tests/driver/topology_test.cc). Any thread; all of them ask the driver
// or read what it has told, and change nothing.
#ifndef COMMPOOL_SRC_LIBRARY_DRIVER_TOPOLOGY_H_
#define COMMPOOL_SRC_LIBRARY_DRIVER_TOPOLOGY_H_

#include <vector>

#include "commpool/status.h"
#include "src/library/driver/device_info.h"
#include "src/library/driver/loader.h"

namespace commpool::internal {

// OK where `device` reaches `peer`'s memory; else kNotSupported and why.
Status CheckReachable(const Driver& driver, int device, int peer);

// The devices that reach the memory of `device`, without itself. Links need not go both ways.
Result<std::vector<int>> PeersThatReach(const Driver& driver, int device);

// The host node for memory beside the device. The driver says -1 on a machine with one node: that is node 0.
int NearestNode(const DeviceInfo& info);

// How many devices a multicast group with this device may have at most, itself included: fewer where those that reach
// it do not reach each other. 0 where it has no multicast.
int LargestMulticastGroup(const DeviceInfo& info);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_DRIVER_TOPOLOGY_H_
