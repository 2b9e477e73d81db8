// The emulated machine as the variable COMMPOOL_EMULATOR declares it: a list of `key=value`, separated by commas.
//
// COMMPOOL_EMULATOR="devices=2,memory=80GiB,links=none,nccl=2.19.3"
//
// This is the one place for capacity, topology, versions, latencies and faults; src/emulator/reference.md has the
// table. The emulated driver parses it once, and the emulated NCCL asks the driver. It never changes, so any thread may
// use it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "commpool/status.h"

namespace commpool::internal::emulator {

struct KnownKey {
  const char* name;
  const char* default_value;
  const char* meaning;
};

// All keys, in the order of reference.md.
const std::vector<KnownKey>& KnownKeys();

// `fail=cuMemCreate:3:2:1`: 3 calls succeed, then the next one (`:1`, the default) returns 2.
struct DeclaredFault {
  std::string call;
  int skip = 0;
  int result = 0;
  int count = 1;
};

// Writes the UUID that cuDeviceGetUuid gives for the machine's device of that number, as NVIDIA's tools write it.
std::string UuidText(int number);

// Owns the values of all keys and the order of the devices. The emulated driver's machine holds one; NCCL and NVML ask
// it.
class Description {
 public:
  // Fails with kInvalidArgument: the error names an unknown key and lists the known ones, or names the value that it
  // cannot read. `visible` is CUDA_VISIBLE_DEVICES, or null if that is not set.
  static Result<Description> Parse(const std::string& text, const char* visible = nullptr);

  // Reads COMMPOOL_EMULATOR and CUDA_VISIBLE_DEVICES.
  static Result<Description> OfEnvironment();

  // Returns the declared value or the default; null for an unknown key.
  const char* Value(const std::string& key) const;

  // The devices that the process sees. Hidden devices have the numbers after them.
  int devices() const { return visible_; }
  int all_devices() const { return all_devices_; }
  // Converts this process's number of a device into the machine's number, and back.
  int NumberOf(int device) const { return numbers_[static_cast<size_t>(device)]; }
  int DeviceOf(int number) const;
  uint64_t device_bytes() const { return device_bytes_; }
  int numa_nodes() const { return numa_nodes_; }
  int NumaNodeOf(int device) const { return NumberOf(device) * numa_nodes_ / all_devices_; }
  bool coherent() const { return values_.at("coherent") == "yes"; }
  // The NUMA node of a coherent GPU's own memory: behind the CPUs' nodes, with room for seven more of each GPU (MIG).
  int OwnNumaNodeOf(int device) const { return numa_nodes_ + 8 * NumberOf(device); }
  uint64_t host_bytes() const { return host_bytes_; }
  uint64_t granularity() const { return granularity_; }
  uint64_t multicast_granularity() const { return multicast_granularity_; }
  uint64_t seed() const { return seed_; }
  bool races() const { return values_.at("races") == "yes"; }
  // Says whether copies, memsets, collectives and PyTorch's operations do what they are for.
  bool computes() const { return values_.at("kernels") != "none"; }
  const std::vector<DeclaredFault>& faults() const { return faults_; }

  // Says whether two devices reach each other's memory. It knows hidden devices too.
  bool Linked(int device, int peer) const;

 private:
  Status Take(const std::string& text);
  Status Interpret();
  void Hide(const char* visible);

  std::map<std::string, std::string> values_;
  int all_devices_ = 0;
  int visible_ = 0;
  std::vector<int> numbers_;  // of all devices; the visible ones come first
  uint64_t device_bytes_ = 0;
  int numa_nodes_ = 0;
  uint64_t host_bytes_ = 0;
  uint64_t granularity_ = 0;
  uint64_t multicast_granularity_ = 0;
  uint64_t seed_ = 0;
  std::vector<DeclaredFault> faults_;
};

}  // namespace commpool::internal::emulator
