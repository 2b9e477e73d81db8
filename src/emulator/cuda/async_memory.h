// Stream-ordered memory: the machine's pools, the memory behind them, the operations that allocate and free.
//
// A pool has addresses of its own, of which steps are backed as its decisions (async_pool.h) ask for them. Guarded by
// the machine's lock.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_ASYNC_MEMORY_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_ASYNC_MEMORY_H_

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "src/emulator/cuda/async_pool.h"
#include "src/emulator/cuda/operation.h"

// A pool, as programs hold it.
struct CUmemPoolHandle_st {
  CUmemPoolHandle_st(int owner, uint64_t span, uint64_t limit) : device(owner), decisions(span, limit) {}

  const int device;
  CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE;
  bool destroyed = false;    // goes once its last allocation has been freed
  std::set<int> accessible;  // devices that may read and write
  CUdeviceptr base = 0;      // 0 until it grows for the first time
  commpool::internal::emulator::AsyncPool decisions;
  std::map<CUdeviceptr, commpool::internal::emulator::StreamPoint>
      allocations;  // live, by address; where they were made
};

namespace commpool::internal::emulator {

class Machine;

class AsyncMemory {
 public:
  explicit AsyncMemory(Machine& machine) : machine_(machine) {}

  // Errors are those of the driver's calls. A handle that is none, or no more, is no pool.
  bool IsPool(CUmemoryPool pool) const;
  CUmemoryPool DefaultOf(int device);
  CUmemoryPool CurrentOf(int device);
  void SetCurrent(CUmemoryPool pool) { current_[pool->device] = pool; }
  CUmemoryPool Create(int device, CUmemAllocationHandleType handle_types, uint64_t limit);
  CUresult Destroy(CUmemoryPool pool);
  void SetAccess(CUmemoryPool pool, int device, bool granted);

  CUresult Allocate(CUmemoryPool pool, uint64_t bytes, CUstream_st* stream, CUdeviceptr* address);
  CUresult FreeAsync(CUdeviceptr address, CUstream_st* stream);
  // At once, without waiting, as the driver's cuMemFree of such memory: operations still to use it are reported.
  CUresult Free(CUdeviceptr address);

  struct Allocation {
    CUmemoryPool pool = nullptr;
    CUdeviceptr address = 0;
    uint64_t bytes = 0;  // as asked for
  };
  // The live allocation that holds an address.
  std::optional<Allocation> Find(CUdeviceptr address) const;

  // Gives back what is free beyond `keep` bytes, as far as the host has waited for it to be free.
  void Trim(CUmemoryPool pool, uint64_t keep);
  // The host has waited for a stream, an event or a device: pools shrink to their thresholds.
  void HostWaitedFor(const StreamReach& reach);
  void HostWaitedForDevice(int device);

  // Reports an operation that uses memory of a pool outside the time between allocation and free.
  void CheckLife(const Operation& operation);

 private:
  CUmemoryPool Holding(CUdeviceptr address) const;
  CUmemoryPool Add(int device, uint64_t limit);
  void RemoveIfUnused(CUmemoryPool pool);
  CUresult Grow(CUmemoryPool pool, const std::vector<AsyncExtent>& growth);
  void GiveBack(CUmemoryPool pool, const AsyncExtent& extent);
  void Settle(const std::function<bool(const StreamPoint&)>& waited_for);
  bool IsDone(const StreamPoint& point) const;
  // What both ways to free have in common.
  void Freed(CUmemoryPool pool, CUdeviceptr address, const char* call);

  Machine& machine_;
  std::map<CUmemoryPool, std::unique_ptr<CUmemPoolHandle_st>> pools_;
  std::map<CUdeviceptr, CUmemoryPool> bases_;
  std::map<int, CUmemoryPool> defaults_;  // by device
  std::map<int, CUmemoryPool> current_;   // by device, where one was set
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_ASYNC_MEMORY_H_
