// How a pool publishes its blocks to the fast path, and takes them back from it: the words of the block map, and what
// the emulator is told of blocks. Any thread.
#ifndef COMMPOOL_SRC_POOL_BLOCK_WORDS_H_
#define COMMPOOL_SRC_POOL_BLOCK_WORDS_H_

#include <cuda.h>

#include <cstdint>
#include <memory>

#include "commpool/status.h"
#include "src/pool/pool.h"
#include "src/pool/shared_state.h"

namespace commpool::internal {

enum class Caching {
  kNo,   // only the pool frees the block
  kYes,  // threads' caches may keep it
};

class BlockWords {
 public:
  explicit BlockWords(SharedState& shared) : shared_(shared) {}

  // The range's blocks can be published from now on.
  void Cover(const engine::SegmentRange& range) { shared_.caches->blocks().Cover(range); }

  // A block begins: `bytes` is its size, `requested` what was asked for.
  void Publish(const std::shared_ptr<Pool>& pool, CUdeviceptr address, uint64_t bytes, uint64_t requested,
               StreamKey stream, Caching caching);

  // The end of a block that is freed to its pool; kNotFound where it was freed already. Returns what was asked for it,
  // 0 where the word does not say: then the engine does.
  Result<uint64_t> Withdraw(CUdeviceptr address);

  // A live block may not go to a cache any more; kNotFound where it was freed. Returns as Withdraw.
  Result<uint64_t> MakeUncacheable(CUdeviceptr address);

  // What the emulator listens for.
  void TellFreed(CUdeviceptr address) const {
    if (shared_.annotations.listening) shared_.annotations.block_freed(address);
  }
  void TellRecorded(CUdeviceptr address, StreamKey stream) const;
  void TellAllocated(CUdeviceptr address, uint64_t bytes, StreamKey stream, const char* pool) const;

 private:
  SharedState& shared_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCK_WORDS_H_
