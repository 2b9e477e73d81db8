// The emulated machine of this process: one state, as a driver has one, under one lock.
//
// It is made by the first call and never destroyed, so that a process may exit in any order. Workers run operations
// without the lock; everything else holds it.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_MACHINE_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_MACHINE_H_

#include <cuda.h>

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

// A primary context. The handle that programs see points to it.
struct CUctx_st {
  int device = 0;
  int retained = 0;
  unsigned flags = 0;
  std::set<int> enabled_peers;
  CUresult sticky = CUDA_SUCCESS;  // the first error that lost the context
};

namespace commpool::internal::emulator {

struct Handle {
  std::shared_ptr<Physical> physical;
  int references = 1;
};

// What the emulated NCCL says of one window: no reason where it could be used with NVLink multicast.
struct NvlsNote {
  uint64_t bytes = 0;
  std::string reason;
};

class Machine {
 public:
  static Machine& Get();

  std::mutex mutex;

  const Description description;
  bool initialised = false;                                      // the banks are there
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
  UserObjects user_objects{mutex};
  Graphs graphs;
  Captures captures;
  AsyncMemory async_memory{*this};

  // Makes the memory. CUDA_ERROR_OUT_OF_MEMORY where the system has no descriptors or memory for it: a later call makes
  // the rest.
  CUresult Initialise();

  // The bank of a location, or the error of cuMemCreate for one that there is not.
  CUresult BankOf(const CUmemLocation& location, std::shared_ptr<MemoryBank>* bank) const;

  // Where memory lies, in numbers of this process's devices. Banks have the machine's.
  BankLocation LocationOf(const MemoryBank& bank) const;

  // Whether a device may read and write a range; the error that a kernel would get. For a copy one of `copy_devices`
  // is enough, or the CPU, and cuMemAlloc memory is open to all.
  CUresult CheckAccess(const commpoolEmulatorRange& range, int device, const std::vector<int>& copy_devices = {});
  bool MayAccess(const MappedRange& mapping, int device) const;
  bool MayCopy(const MappedRange& mapping, const std::vector<int>& copy_devices) const;

  // Puts an operation at a stream's end, or into the graph that the stream captures.
  CUresult Submit(CUstream_st* stream, std::shared_ptr<Operation> operation);

  // Reports a broken rule where operations still to run declare a part of the range.
  void ReportIfInUse(CUdeviceptr address, uint64_t bytes, const char* what);

 private:
  Machine();
};

// The current context of the calling thread; null where none is.
CUctx_st*& CurrentContext();

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_MACHINE_H_
