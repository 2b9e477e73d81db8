// Reserved addresses, what is mapped there, and who may touch it.
//
// The host cannot read a reserved range, just as it cannot read a device's memory. The emulator maps the same memory a
// second time, in a shadow of the same size, so that its kernels and copies see one contiguous piece. Host memory that
// the CPU may access is mapped at the range itself too. The class is not thread-safe: the machine's lock guards it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/emulator/cuda/memory_bank.h"
#include "src/emulator/extension.h"

namespace commpool::internal::emulator {

class AccessHistory;

// One physical allocation of this process. A handle and its mappings share it.
struct Physical {
  std::shared_ptr<MemoryBank> bank;
  uint32_t record = 0;
  uint64_t bytes = 0;
  CUmemAllocationProp properties = {};
  uint64_t identity = 0;                   // equal for two handles of one extent, in any process of one machine
  std::shared_ptr<AccessHistory> history;  // equal for two handles of one extent; null without a race checker
  ~Physical() { bank->Release(record); }
};

struct MappedRange {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  std::shared_ptr<Physical> physical;
  std::set<int> devices;     // the devices that may read and write
  std::set<int> readers;     // the devices that may only read
  bool cpu = false;          // the host may access it
  bool linear = false;       // made by cuMemAlloc: every enabled peer may access it
  bool pinned_host = false;  // made by cuMemAllocHost, or registered
  bool registered = false;   // the program's own memory, by cuMemHostRegister
  bool of_pool = false;      // a stream-ordered pool maps and unmaps it
  unsigned openings = 0;     // how often cuIpcOpenMemHandle returned it
  uint64_t requested = 0;    // the bytes that the program asked for
  uint64_t buffer_id = 0;
};

// Owns the reservations and mappings of this process. The machine holds it; the driver functions for memory call it.
class AddressSpace {
 public:
  ~AddressSpace();

  // Returns the errors of the driver calls with the same names.
  CUresult Reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr* address, CUdeviceptr wanted = 0);
  CUresult Free(CUdeviceptr address, uint64_t bytes);
  // Reserves addresses for a pool. The program cannot free them, and the leak report leaves them out.
  CUresult ReserveForPool(uint64_t bytes, uint64_t alignment, CUdeviceptr* address);
  void FreeOfPool(CUdeviceptr address);
  CUresult Map(CUdeviceptr address, uint64_t bytes, std::shared_ptr<Physical> physical);
  // Lets devices use memory of the program at its own addresses, or ends that. `physical` only counts it, and has its
  // history. REQUIRES: nothing is mapped there.
  void Register(CUdeviceptr address, uint64_t bytes, std::shared_ptr<Physical> physical);
  void Unregister(CUdeviceptr address);
  // Removes every mapping in the range. Operations that still run there get scrap memory, so that they do not crash.
  enum class Leave { kNothing, kScrap };
  void Unmap(CUdeviceptr address, uint64_t bytes, Leave leave);

  // Returns the mappings that cover a range of one reservation; nothing if the range has a gap.
  std::vector<MappedRange*> Covering(CUdeviceptr address, uint64_t bytes);
  // Returns the mappings that share a byte with the range.
  std::vector<MappedRange*> Touching(CUdeviceptr address, uint64_t bytes);
  MappedRange* Find(CUdeviceptr address);
  // Returns the mappings under the ranges of an operation, as numbers that no later mapping gets.
  std::vector<uint64_t> NumbersUnder(const std::vector<commpoolEmulatorRange>& reads,
                                     const std::vector<commpoolEmulatorRange>& writes);
  const std::map<CUdeviceptr, MappedRange>& mappings() const { return mappings_; }

  // Lets the host read and write a mapping of host memory at its own addresses, or ends that.
  void ShowToHost(MappedRange& mapping, bool visible);

  // Returns the emulator's own pointer to device memory. REQUIRES: mappings cover the range.
  char* HostPointer(CUdeviceptr address) const;

  std::vector<std::string> Describe() const;  // one line for each reservation that still exists

 private:
  struct Reservation {
    uint64_t bytes = 0;
    char* shadow = nullptr;
    bool of_pool = false;
    bool of_program = false;  // it is its own shadow, and the program's to unmap
    bool scrapped = false;    // an operation may still hold pointers into the shadow
  };
  using Reservations = std::map<CUdeviceptr, Reservation>;

  Reservations::const_iterator Holding(CUdeviceptr address) const;

  Reservations reservations_;
  std::map<CUdeviceptr, MappedRange> mappings_;
  uint64_t next_buffer_id_ = 1;
};

}  // namespace commpool::internal::emulator
