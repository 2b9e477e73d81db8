// What a device and its driver can do, asked once: for capability checks, refusals with a reason and `commpool info`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/driver/loader.h"

namespace commpool::internal {

struct DeviceInfo {
  int device = 0;
  std::string name;
  std::string pci_bus_id;
  uint64_t total_bytes = 0;
  int compute_major = 0;
  int compute_minor = 0;
  int host_numa_node = -1;        // the nearest; -1 where the driver does not say
  int own_numa_node = -1;         // of the device's memory, where that is a NUMA node of the system (Grace)
  bool coherent = false;          // it uses the host's pages, through the host's page tables (Grace)
  bool virtual_memory = false;    // cuMemCreate
  bool host_numa_memory = false;  // cuMemCreate on a host NUMA node (attribute 141)
  bool file_descriptor_handles = false;
  bool fabric_handles = false;   // by its attribute; cuMemCreate may still answer NOT_PERMITTED (no IMEX channel)
  bool gpu_direct_rdma = false;  // with VMM memory
  bool multicast = false;
  std::vector<int> reachable_peers;  // cuDeviceCanAccessPeer
};

// Such as 0000:01:00.0, the same in every process of a host; empty where the driver has no word for it.
std::string PciBusIdOf(const Driver& driver, int device);
// kInvalidArgument for a device that does not exist; the message has the number of devices.
Result<DeviceInfo> DescribeDevice(const Driver& driver, int device);
Result<int> DeviceCount(const Driver& driver);

// What depends on how devices and host NUMA nodes are linked: one function for each such choice, and each is tested on
// every machine that the emulator knows by name (tests/driver/topology_test.cc). Any thread; all of them ask the driver
// or read what it has told, and change nothing.

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
