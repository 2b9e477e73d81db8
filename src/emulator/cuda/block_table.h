// The blocks that pools announce. The driver knows only segments, so it accepts a use after a pool's own free. Memory
// that nobody announced is not checked. The table is not thread-safe: the machine's lock guards it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/emulator/cuda/clock.h"
#include "src/emulator/extension.h"

namespace commpool::internal::emulator {

struct AnnouncedBlock {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  uint64_t number = 0;  // counts allocations of all pools
  uint64_t stream = 0;  // the number of the stream that the block was allocated for
  std::string pool;
  bool freed = false;
  static constexpr uint64_t kLives = UINT64_MAX;
  uint64_t ended = kLives;  // counts ends of blocks
  // What its allocator has heard that orders the use of this memory. Null: all that PyTorch's has by then.
  std::shared_ptr<const Clock> heard;

  std::string Describe() const;
};

struct BlockMisuse {
  const char* rule;
  std::string details;
};

// Owns the announced blocks of all pools. The race checker holds it and asks it about each operation.
class BlockTable {
 public:
  // `heard` is what the allocator has heard by now.
  void Allocated(CUdeviceptr address, uint64_t bytes, uint64_t stream, std::string pool,
                 std::shared_ptr<const Clock> heard = nullptr);
  // Ends a framework's block: its allocator may use the memory again. Null where no block starts.
  std::shared_ptr<const AnnouncedBlock> Ended(CUdeviceptr address, std::shared_ptr<const Clock> heard);
  // Ignores an address where no live block starts: nobody announced that allocation.
  void Freed(CUdeviceptr address);
  // Marks memory whose pool sleeps. The pool copies over its own blocks then, and the blocks outlive their memory.
  void SetAsleep(CUdeviceptr address, uint64_t bytes, bool asleep);
  bool IsAsleep(CUdeviceptr address) const;
  // Forgets a segment that was unmapped. Returns the last block that ended there; null if one has not, or none lay
  // there.
  std::shared_ptr<const AnnouncedBlock> Forget(CUdeviceptr address, uint64_t bytes);

  // Finds the block that holds an address, live or freed; null if nobody announced one.
  std::shared_ptr<const AnnouncedBlock> At(CUdeviceptr address) const;
  // Says what is wrong with a use of the range now. A capture checks the ends of blocks, a replay does not: the pool
  // may have given the capture other blocks there since.
  enum class Ends { kCount, kCountedBefore };
  std::optional<BlockMisuse> Check(const commpoolEmulatorRange& range, Ends ends = Ends::kCount) const;
  bool empty() const { return pieces_.empty(); }

 private:
  // The part of a block that no later block covers.
  struct Piece {
    CUdeviceptr end;
    std::shared_ptr<AnnouncedBlock> block;
  };

  std::map<CUdeviceptr, Piece> pieces_;          // by first byte
  std::map<CUdeviceptr, CUdeviceptr> sleeping_;  // begin -> end
  uint64_t last_end_ = 0;
  uint64_t last_number_ = 0;
};

}  // namespace commpool::internal::emulator
