// The emulated machine as it is declared: COMMPOOL_EMULATOR, one list of `key=value`, separated by commas.
//
//   COMMPOOL_EMULATOR="devices=2,memory=80GiB,links=none,nccl=2.19.3"
//
// One place for capacity, topology, versions, latencies and faults; src/emulator/reference.md has the table. The
// emulated driver parses it once; the emulated NCCL asks the driver. Constant afterwards: any thread.
#ifndef COMMPOOL_SRC_EMULATOR_DESCRIPTION_H_
#define COMMPOOL_SRC_EMULATOR_DESCRIPTION_H_

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

// Every key there is, in the order of reference.md.
const std::vector<KnownKey>& KnownKeys();

// `fail=cuMemCreate:3:2:1`: after 3 more calls the next one (`:1`, the default) answers 2.
struct DeclaredFault {
  std::string call;
  int skip = 0;
  int result = 0;
  int count = 1;
};

// As NVIDIA's tools write what cuDeviceGetUuid gives for the machine's device of that number.
std::string UuidText(int number);

class Description {
 public:
  // kInvalidArgument names an unknown key and lists the known ones, or the value that cannot be read. `visible` is
  // CUDA_VISIBLE_DEVICES, null where it is not set.
  static Result<Description> Parse(const std::string& text, const char* visible = nullptr);

  // Of COMMPOOL_EMULATOR and CUDA_VISIBLE_DEVICES.
  static Result<Description> OfEnvironment();

  // The declared value or the default. Null for a key that is not known.
  const char* Value(const std::string& key) const;

  // That the process sees. Those that it does not are counted on behind them.
  int devices() const { return visible_; }
  int all_devices() const { return all_devices_; }
  // The number that the machine has for a device, and back.
  int NumberOf(int device) const { return numbers_[static_cast<size_t>(device)]; }
  int DeviceOf(int number) const;
  uint64_t device_bytes() const { return device_bytes_; }
  int numa_nodes() const { return numa_nodes_; }
  int NumaNodeOf(int device) const { return NumberOf(device) * numa_nodes_ / all_devices_; }
  uint64_t host_bytes() const { return host_bytes_; }
  uint64_t granularity() const { return granularity_; }
  uint64_t multicast_granularity() const { return multicast_granularity_; }
  uint64_t seed() const { return seed_; }
  bool races() const { return values_.at("races") == "yes"; }
  const std::vector<DeclaredFault>& faults() const { return faults_; }

  // Whether two devices reach each other's memory, hidden ones too.
  bool Linked(int device, int peer) const;

 private:
  Status Interpret();
  void Hide(const char* visible);

  std::map<std::string, std::string> values_;
  int all_devices_ = 0;
  int visible_ = 0;
  std::vector<int> numbers_;  // of all devices, those that the process sees first
  uint64_t device_bytes_ = 0;
  int numa_nodes_ = 0;
  uint64_t host_bytes_ = 0;
  uint64_t granularity_ = 0;
  uint64_t multicast_granularity_ = 0;
  uint64_t seed_ = 0;
  std::vector<DeclaredFault> faults_;
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_DESCRIPTION_H_
