// The emulated machine of this process: one state under one lock, like a driver's.
//
// The first call makes it, and nothing destroys it, so a process may exit in any order. Workers run operations without
// the lock; everything else holds it.
#pragma once

#include <cuda.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "src/emulator/cuda/address_space.h"
#include "src/emulator/cuda/async_memory.h"
#include "src/emulator/cuda/capture.h"
#include "src/emulator/cuda/graph.h"
#include "src/emulator/cuda/logbook.h"
#include "src/emulator/cuda/multicast.h"
#include "src/emulator/cuda/race_checker.h"
#include "src/emulator/cuda/scheduler.h"
#include "src/emulator/cuda/user_objects.h"
#include "src/emulator/description.h"

// A primary context. A program's handle points to it.
struct CUctx_st {
  int device = 0;
  int retained = 0;
  unsigned flags = 0;
  std::set<int> enabled_peers;
  CUresult sticky = CUDA_SUCCESS;  // the first error; it lost the context
};

namespace commpool::internal::emulator {

struct Handle {
  std::shared_ptr<Physical> physical;
  int references = 1;
};

// What the emulated NCCL noted about one window. Without a reason, NVLink multicast could serve the window.
struct NvlsNote {
  uint64_t bytes = 0;
  std::string reason;
};

// Owns all state of the emulated driver. Every API function and every worker uses it.
class Machine {
 public:
  static Machine& Get();

  std::mutex mutex;

  const Description description;
  bool initialised = false;                                      // the banks exist
  std::vector<std::unique_ptr<CUctx_st>> contexts;               // by device
  std::vector<std::shared_ptr<MemoryBank>> device_banks;         // by device
  std::vector<std::shared_ptr<MemoryBank>> numa_banks;           // by node
  std::map<uint64_t, std::weak_ptr<MemoryBank>> imported_banks;  // by identity
  std::map<CUmemGenericAllocationHandle, Handle> handles;
  CUmemGenericAllocationHandle next_handle = 0x1000;
  AddressSpace addresses;
  Multicasts multicasts;
  std::map<CUdeviceptr, NvlsNote> nvls;  // by address
  Logbook logbook;
  RaceChecker races;
  Scheduler scheduler;
  UserObjects user_objects{mutex, races};
  Graphs graphs;
  Captures captures;
  AsyncMemory async_memory{*this};
  const pid_t process = getpid();  // a fork has a copy, and holds nothing of a device

  // Makes the banks. Returns CUDA_ERROR_OUT_OF_MEMORY if the system has no descriptors or memory for them; a later call
  // then makes the rest.
  CUresult Initialise();

  // Finds the bank of a location. For a bad location it returns the error of cuMemCreate.
  CUresult BankOf(const CUmemLocation& location, std::shared_ptr<MemoryBank>* bank) const;

  // Says where memory lies, in device numbers of this process. Banks use the machine's numbers.
  BankLocation LocationOf(const MemoryBank& bank) const;

  enum class Use { kRead, kWrite };
  // Says whether a device may use a range so, or returns the error that a kernel would get. For a copy it is enough
  // that one of `copy_devices` or the CPU may; everybody may access memory of cuMemAlloc.
  CUresult CheckAccess(Use use, const commpoolEmulatorRange& range, int device,
                       const std::vector<int>& copy_devices = {});
  bool MayUse(Use use, const MappedRange& mapping, int device) const;
  bool MayCopy(Use use, const MappedRange& mapping, const std::vector<int>& copy_devices) const;

  // Appends an operation to a stream, or to the graph that the stream captures.
  CUresult Submit(CUstream_st* stream, std::shared_ptr<Operation> operation);

  // Reports a broken rule if an operation that has not ended declares a part of the range.
  void ReportIfInUse(CUdeviceptr address, uint64_t bytes, const char* what);

 private:
  Machine();
};

// Returns the current context of the calling thread; null if it has none.
CUctx_st*& CurrentContext();

}  // namespace commpool::internal::emulator
