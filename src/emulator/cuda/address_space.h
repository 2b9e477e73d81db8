// Reserved addresses, what is mapped there, and who may touch it.
//
// A reserved range is not readable by the host, as a device's memory is not. A shadow of the same size holds the
// mappings for the emulator's own use, so that kernels and copies see one contiguous piece. Host memory granted to the
// CPU is mapped at the range itself too. Not thread-safe: the machine's lock guards it.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_ADDRESS_SPACE_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_ADDRESS_SPACE_H_

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

// One physical allocation of this process: a handle and mappings share it.
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
  std::set<int> devices;     // that may read and write
  bool cpu = false;          // host access granted
  bool linear = false;       // of cuMemAlloc: access follows the devices' enabled peers
  bool pinned_host = false;  // of cuMemAllocHost
  bool of_pool = false;      // behind a stream-ordered pool, which maps and unmaps it
  uint64_t requested = 0;    // bytes as the program asked
  uint64_t buffer_id = 0;
};

class AddressSpace {
 public:
  ~AddressSpace();

  // Errors are those of the driver's calls of the same names.
  CUresult Reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr* address);
  CUresult Free(CUdeviceptr address, uint64_t bytes);
  // Addresses of a pool: the program cannot free them, and they are no leak.
  CUresult ReserveForPool(uint64_t bytes, uint64_t alignment, CUdeviceptr* address);
  void FreeOfPool(CUdeviceptr address);
  CUresult Map(CUdeviceptr address, uint64_t bytes, std::shared_ptr<Physical> physical);
  // Takes away every mapping that lies in the range. What still runs there finds scrap, so that it does not crash.
  enum class Leave { kNothing, kScrap };
  void Unmap(CUdeviceptr address, uint64_t bytes, Leave leave);

  // The mappings that cover a range without a gap, in one reservation; empty where there is a gap.
  std::vector<MappedRange*> Covering(CUdeviceptr address, uint64_t bytes);
  // Those that share a byte with the range.
  std::vector<MappedRange*> Touching(CUdeviceptr address, uint64_t bytes);
  MappedRange* Find(CUdeviceptr address);
  // Those under the ranges of an operation, by numbers that no later mapping gets.
  std::vector<uint64_t> NumbersUnder(const std::vector<commpoolEmulatorRange>& reads,
                                     const std::vector<commpoolEmulatorRange>& writes);
  const std::map<CUdeviceptr, MappedRange>& mappings() const { return mappings_; }

  // Lets the host itself read and write a mapping of host memory, at its own addresses; or takes that back.
  void ShowToHost(MappedRange& mapping, bool visible);

  // The emulator's own pointer to device memory. REQUIRES: the range is covered.
  char* HostPointer(CUdeviceptr address) const;

  std::vector<std::string> Describe() const;  // a line for each reservation that is left

 private:
  struct Reservation {
    uint64_t bytes = 0;
    char* shadow = nullptr;
    bool of_pool = false;
    bool scrapped = false;  // an operation may still hold pointers into the shadow
  };
  using Reservations = std::map<CUdeviceptr, Reservation>;

  Reservations::const_iterator Holding(CUdeviceptr address) const;

  Reservations reservations_;
  std::map<CUdeviceptr, MappedRange> mappings_;
  uint64_t next_buffer_id_ = 1;
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_ADDRESS_SPACE_H_
