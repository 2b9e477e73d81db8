// Blocks as pools announce them. The driver knows segments only, so a use after a pool's own free breaks none of its
// rules. Memory that nobody announced is not judged. Not thread-safe: the machine's lock guards it.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_BLOCK_TABLE_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_BLOCK_TABLE_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/emulator/extension.h"

namespace commpool::internal::emulator {

struct AnnouncedBlock {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  uint64_t number = 0;  // in the order of allocations, over all pools
  uint64_t stream = 0;  // number of the one that it was allocated for
  std::string pool;
  bool freed = false;

  std::string Describe() const;
};

struct BlockMisuse {
  const char* rule;
  std::string details;
};

class BlockTable {
 public:
  void Allocated(CUdeviceptr address, uint64_t bytes, uint64_t stream, std::string pool);
  // An address at which no live block starts is ignored: its allocation was not announced.
  void Freed(CUdeviceptr address);
  // Memory whose pool sleeps: copies of the pool's own run over its blocks, and its blocks outlive their memory.
  void SetAsleep(CUdeviceptr address, uint64_t bytes, bool asleep);
  bool IsAsleep(CUdeviceptr address) const;
  // The segment is gone.
  void Forget(CUdeviceptr address, uint64_t bytes);

  // The block that holds an address, freed or not; null where none was announced.
  std::shared_ptr<const AnnouncedBlock> At(CUdeviceptr address) const;
  // What is wrong with a use of the range now. The ends of blocks count when an operation is captured, and not when it
  // is replayed: the same capture may have been given other blocks there meanwhile.
  enum class Ends { kCount, kCountedBefore };
  std::optional<BlockMisuse> Check(const commpoolEmulatorRange& range, Ends ends = Ends::kCount) const;
  bool empty() const { return pieces_.empty(); }

 private:
  // The part of a block that no later block has taken.
  struct Piece {
    CUdeviceptr end;
    std::shared_ptr<AnnouncedBlock> block;
  };

  std::map<CUdeviceptr, Piece> pieces_;          // by their first byte
  std::map<CUdeviceptr, CUdeviceptr> sleeping_;  // ends by beginnings
  uint64_t last_number_ = 0;
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_BLOCK_TABLE_H_
