// StrandedMemory: memory that was freed by streams without a promise (rule 11). Such a stream may be gone, so no event
// is recorded on it before a call passes it again. Until then its memory serves only that stream.
//
//   another stream lacks memory -> Relieve: the streams that freed it are wanted from now on
//   a call passes a wanted one  -> Passed: an event behind its work; others take its memory after a wait for the event
//   no call passes it any more  -> Relieve begins a wait for the device, once such streams have freed much memory
//
// The host waits for a device at most a tenth of a second, once, because a device may never be idle. Then the wait goes
// on by itself, and a later Relieve sees its end.
//
// An event of the whole context (cuda.h, cuCtxRecordEvent) would tell too. But it breaks every open capture of that
// context, and some of these may be unannounced. Any thread.
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

// GrowingMode owns one: symmetric pools never act on what one rank finds (rule 4). Every allocation calls Passed;
// Relieve comes before growth, without a lock.
class StrandedMemory {
 public:
  StrandedMemory(PoolBasis& basis, BlockStore& blocks) : basis_(basis), blocks_(blocks) {}

  // Records the event of a stream that this call passes. REQUIRES: no capture of this pool has the stream.
  Status Passed(StreamKey stream) {
    if (!IsUnpromised(stream) || !any_wanted_.load(std::memory_order_relaxed)) return Status();
    return FenceIfWanted(stream);
  }

  // Called where a request of the stream finds no free memory and the pool is about to grow. Returns whether memory
  // came free. None does where the host may not wait for the device, or not for so long.
  bool Relieve(uint64_t bytes, StreamKey stream);

 private:
  Status FenceIfWanted(StreamKey stream);
  // Begins waits for all devices. Returns false where one captures.
  bool BeginWait();
  bool HasPassed(std::chrono::milliseconds limit);
  // Returns the bytes of streams that were wanted before (of all streams, where they are many), and wants the others
  // now.
  uint64_t NoteWanted(StreamKey but) COMMPOOL_REQUIRES(blocks_.mutex());

  PoolBasis& basis_;
  BlockStore& blocks_;
  std::atomic<bool> any_wanted_{false};
  ReservedSet<StreamKey> wanted_ COMMPOOL_GUARDED_BY(blocks_.mutex());
  std::atomic<bool> turn_taken_{false};              // one thread at a time uses what follows
  ReservedVector<std::future<CUresult>> under_way_;  // the waits for the devices
  BlockStore::Uses uses_;                            // what is over when these waits end
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_STRANDED_MEMORY_H_
