// Stream-ordered memory: the machine's pools, the memory behind them, and the operations that allocate and free.
//
// A pool reserves addresses once. It backs them step by step, as async_pool.h decides. The machine's lock guards
// everything here.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "src/emulator/cuda/async_pool.h"
#include "src/emulator/cuda/operation.h"

// The object behind a program's handle of a pool.
struct CUmemPoolHandle_st {
  CUmemPoolHandle_st(int owner, uint64_t span, uint64_t limit) : device(owner), decisions(span, limit) {}

  const int device;
  CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE;
  bool destroyed = false;    // the pool goes when the program frees its last allocation
  std::set<int> accessible;  // the devices that may read and write
  CUdeviceptr base = 0;      // 0 until it grows for the first time
  commpool::internal::emulator::AsyncPool decisions;
  std::map<CUdeviceptr, commpool::internal::emulator::StreamPoint>
      allocations;  // live allocations: address -> call stack of the allocation
};

namespace commpool::internal::emulator {

class Machine;

// Owns the process's stream-ordered pools. The machine holds it; api_async_memory.cc and cuMemFree call it.
class AsyncMemory {
 public:
  explicit AsyncMemory(Machine& machine) : machine_(machine) {}

  // Returns the errors of the driver calls. A handle that is unknown or destroyed is not a pool.
  bool IsPool(CUmemoryPool pool) const;
  CUmemoryPool DefaultOf(int device);
  CUmemoryPool CurrentOf(int device);
  void SetCurrent(CUmemoryPool pool) { current_[pool->device] = pool; }
  CUmemoryPool Create(int device, CUmemAllocationHandleType handle_types, uint64_t limit);
  CUresult Destroy(CUmemoryPool pool);
  void SetAccess(CUmemoryPool pool, int device, bool granted);

  CUresult Allocate(CUmemoryPool pool, uint64_t bytes, CUstream_st* stream, CUdeviceptr* address);
  CUresult FreeAsync(CUdeviceptr address, CUstream_st* stream);
  // Frees at once, without waiting, as the driver's cuMemFree does. Reports operations that will still use the memory.
  CUresult Free(CUdeviceptr address);

  struct Allocation {
    CUmemoryPool pool = nullptr;
    CUdeviceptr address = 0;
    uint64_t bytes = 0;  // the bytes that the program asked for
  };
  // Finds the live allocation that holds an address.
  std::optional<Allocation> Find(CUdeviceptr address) const;

  // Gives free memory beyond `keep` bytes back, if the host has waited for the frees.
  void Trim(CUmemoryPool pool, uint64_t keep);
  // Call it when the host has waited for a stream, an event or a device: pools then shrink to their thresholds.
  void HostWaitedFor(const StreamReach& reach);
  void HostWaitedForDevice(int device);

  // Reports an operation that uses memory of a pool before its allocation or after its free.
  void CheckLife(const Operation& operation);

 private:
  CUmemoryPool Holding(CUdeviceptr address) const;
  CUmemoryPool Add(int device, uint64_t limit);
  void RemoveIfUnused(CUmemoryPool pool);
  CUresult Grow(CUmemoryPool pool, const std::vector<AsyncExtent>& growth);
  void GiveBack(CUmemoryPool pool, const AsyncExtent& extent);
  void Settle(const std::function<bool(const StreamPoint&)>& waited_for);
  bool IsDone(const StreamPoint& point) const;
  // Both ways to free end here.
  void Freed(CUmemoryPool pool, CUdeviceptr address, const char* call);

  Machine& machine_;
  std::map<CUmemoryPool, std::unique_ptr<CUmemPoolHandle_st>> pools_;
  std::map<CUdeviceptr, CUmemoryPool> bases_;
  std::map<int, CUmemoryPool> defaults_;  // by device
  std::map<int, CUmemoryPool> current_;   // by device, if the program has set one
};

}  // namespace commpool::internal::emulator
