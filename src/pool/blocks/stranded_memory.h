// What streams freed of which nobody promised that they outlive their use (rule 11). Such a stream may be gone, so no
// event is recorded on it before a call passes it again: until then its memory serves the stream itself alone.
//
//   another stream lacks memory -> Relieve: the streams that freed it are wanted from now on
//   a call passes a wanted one  -> Passed: an event behind its work, and others take its memory after a wait for that
//   it is not passed any more   -> Relieve begins a wait for the device, once much memory hangs on it
//
// Of a device that is never idle the host waits for no longer than a tenth of a second, once: then the wait goes on by
// itself, and a later Relieve sees that it has ended.
//
// An event of the whole context would tell too, but recording one breaks every capture that is open there, of which
// nobody may have told (cuda.h, cuCtxRecordEvent). Any thread.
#ifndef COMMPOOL_SRC_POOL_BLOCKS_STRANDED_MEMORY_H_
#define COMMPOOL_SRC_POOL_BLOCKS_STRANDED_MEMORY_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/pool/blocks/block_store.h"

namespace commpool::internal {

class StrandedMemory {
 public:
  StrandedMemory(PoolBasis& basis, BlockStore& blocks) : basis_(basis), blocks_(blocks) {}

  // This call passes the stream. REQUIRES: not captured with this pool.
  Status Passed(StreamKey stream) {
    if (!IsUnpromised(stream) || !any_wanted_.load(std::memory_order_relaxed)) return Status();
    return FenceIfWanted(stream);
  }

  // A request of the stream finds no free memory, and the pool is about to grow. Whether some came free; where the
  // device may not be waited for, or not for so long, none did.
  bool Relieve(uint64_t bytes, StreamKey stream);

 private:
  Status FenceIfWanted(StreamKey stream);
  // Whether all devices are waited for from now on: none captures.
  bool BeginWait();
  bool HasPassed(std::chrono::milliseconds limit);
  // The bytes of streams that were wanted before, or of all where they are many; the others are from now on.
  uint64_t NoteWanted(StreamKey but) COMMPOOL_REQUIRES(blocks_.mutex());

  PoolBasis& basis_;
  BlockStore& blocks_;
  std::atomic<bool> any_wanted_{false};
  ReservedSet<StreamKey> wanted_ COMMPOOL_GUARDED_BY(blocks_.mutex());
  std::atomic<bool> turn_taken_{false};              // one thread at a time has what follows
  ReservedVector<std::future<CUresult>> under_way_;  // waits for the devices
  BlockStore::Uses uses_;                            // that are over then
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_STRANDED_MEMORY_H_
