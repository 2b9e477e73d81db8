// The books of an audit: who asked for what, how much of it is held now, and what it took. Makes no call. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace commpool::audit {

enum class What {
  kMemory,    // cuMemAlloc
  kPhysical,  // cuMemCreate
  kArray,     // CUDA arrays, by cuMemGetInfo
  kContext,   // what making and changing contexts took, by cuMemGetInfo
  kCode,      // what loading code took, likewise
  kInPools,   // cuMemAllocAsync: blocks of the driver's pools, as asked for
  kInGraphs,  // what graphs allocate when they run, as asked for
  kManaged,
  kHostMemory,  // that the driver made
  kHostPinned,  // the program's own, registered
  kAddresses,
  kMapping,
  kAccess,
  kExport,
  kImport,      // handles
  kOpened,      // addresses of other processes' memory
  kNcclMemory,  // ncclMemAlloc; its memory is NCCL's kPhysical too
  kRegistration,
  kWindow,
  kProbe,  // a cuMemCreate that the driver refused, but not for want of memory: which handles are there
};
const char* NameOf(What what);
// Whether its bytes are memory of a device that the driver has given.
bool IsDeviceMemory(What what);

constexpr int kNoDevice = -1;  // the host's memory, or known to no device

struct RowKey {
  std::string library;
  What what = What::kMemory;
  int device = kNoDevice;

  auto operator<=>(const RowKey&) const = default;
};

struct Row {
  uint64_t made = 0;
  uint64_t ended = 0;
  uint64_t failed = 0;
  int64_t bytes_made = 0;  // signed: a measured change may be negative
  int64_t bytes_now = 0;
  int64_t bytes_peak = 0;
  uint64_t made_ns = 0;
  uint64_t ended_ns = 0;
};

// Something that lasts until it is ended.
struct Holding {
  RowKey row;
  uint64_t bytes = 0;
  std::string stack;  // of Python, where asked for
};

struct StackSum {
  RowKey row;
  std::string stack;
  uint64_t count = 0;
  uint64_t bytes = 0;
};

class Ledger {
 public:
  // `key` is the address or handle; what had it before is over.
  void Hold(uint64_t key, Holding holding, uint64_t nanoseconds);
  // Before the call that ends it, because another thread may get the same address at once. Nothing for the unknown.
  std::optional<Holding> Take(What what, uint64_t key);
  // After that call: it ended, or is still there.
  void End(const Holding& holding, uint64_t nanoseconds);
  void PutBack(uint64_t key, Holding holding);

  // Without anything that lasts. `bytes` counts as held for kContext and kCode.
  void Count(const RowKey& key, int64_t bytes, uint64_t nanoseconds);
  void Fail(const RowKey& key, uint64_t nanoseconds);

  // Everything of a kind on a device is gone.
  void ForgetAll(What what, int device);

  // Of a device, as far as rows tell.
  int64_t DeviceBytes(int device) const;
  std::map<RowKey, Row> Rows() const;
  // What is held, summed by stack, the largest first.
  std::vector<StackSum> Stacks(size_t most) const;

 private:
  void Change(const RowKey& key, int64_t bytes);

  mutable std::mutex mutex_;  // of all that is below
  std::map<RowKey, Row> rows_;
  std::map<std::pair<What, uint64_t>, Holding> held_;
  std::map<int, int64_t> device_bytes_;
};

}  // namespace commpool::audit
