// StrandedMemory: memory that was freed by streams without a promise (rule 11). Such a stream may be gone, so no event
// is recorded on it before a call passes it again. Until then its memory serves only that stream.
//
//   another stream lacks memory -> MakeUsable: the streams that freed it are wanted from now on
//   a call passes a wanted one  -> Passed: an event behind its work; others take its memory after a wait for the event
//   no call passes it any more  -> MakeUsable begins a wait for the device, once such streams have freed much memory
//   very many streams have some -> LookAtOnce begins one, and no request waits for it: idle memory serves
//
// The host waits for a device at most a tenth of a second, once, because a device may never be idle. Then the wait goes
// on by itself, and a later MakeUsable sees its end. The pool does not grow while a thread waits.
//
// An event of the whole context (cuda.h, cuCtxRecordEvent) would tell too. But it breaks every open capture of that
// context, and some of these may be unannounced. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <set>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/pool/blocks/block_store.h"

namespace commpool::internal {

// GrowingMode owns one: symmetric pools never act on what one rank finds (rule 4). Every allocation asks MayWant;
// MakeUsable comes before growth, without a lock. It owns the waits that are under way, each on a thread of its own
// (BeginToSynchronise).
class StrandedMemory {
 public:
  StrandedMemory(PoolBasis& basis, BlockStore& blocks) : basis_(basis), blocks_(blocks) {}

  // Whether a call that passes the stream has to call Passed.
  bool MayWant(StreamKey stream) const { return IsUnpromised(stream) && any_wanted_.load(std::memory_order_relaxed); }
  // Records the event of a stream that this call passes. REQUIRES: no capture of this pool has the stream.
  Status Passed(StreamKey stream);

  // How often a wait has freed memory.
  uint64_t times_freed() const { return times_freed_.load(); }
  // Called where a request of the stream finds no free memory and the pool is about to grow. Returns whether memory
  // came free after `times_before`. None does where the host may not wait for the device, or not for so long.
  bool MakeUsable(uint64_t bytes, StreamKey stream, uint64_t times_before);
  // Whether so many streams have left free memory that a call which passes one has to call LookAtOnce.
  bool IsCrowded(StreamKey stream, const engine::Engine& engine) const {
    return IsUnpromised(stream) && ListsOf(engine) >= next_look_.load(std::memory_order_relaxed);
  }
  // For a pool that serves nobody any more, without a lock: looks at a wait that is under way, else begins one where
  // only that can tell when memory is idle. The first look may take as long as MakeUsable.
  void Look();
  // The same for a request that idle memory may serve: it waits for no device, and for no growth of another thread.
  void LookAtOnce();

 private:
  static constexpr size_t kVeryMany = 1024;

  // The engine's lists of free blocks: one or two of each stream that left some, of 2 KiB each.
  static size_t ListsOf(const engine::Engine& engine) { return engine.heap().free_index().lists().size(); }
  void LookFor(std::chrono::milliseconds limit) COMMPOOL_REQUIRES(kGrowthLock);
  // Begins waits for all places of uses. Returns false where one captures.
  bool BeginWait() COMMPOOL_REQUIRES(kGrowthLock);
  // Whether all waits have ended by the limit, and their uses are forgotten now.
  bool HasPassed(std::chrono::milliseconds limit) COMMPOOL_REQUIRES(kGrowthLock);
  // From now on wants every stream but `but` that has stranded memory. Returns how much of it belongs to streams that
  // were wanted before: no call has passed them meanwhile. With many streams it returns all of it.
  uint64_t NoteWanted(StreamKey but) COMMPOOL_REQUIRES(blocks_.mutex());

  PoolBasis& basis_;
  BlockStore& blocks_;
  // Whether `wanted_` has any: every allocation reads it, without the lock.
  std::atomic<bool> any_wanted_{false};
  // The next call that passes one of them records its event.
  std::set<StreamKey> wanted_ COMMPOOL_GUARDED_BY(blocks_.mutex());
  std::atomic<bool> waits_{false};            // whether a wait is under way
  std::atomic<size_t> next_look_{kVeryMany};  // at so many lists
  std::atomic<uint64_t> times_freed_{0};
  // The waits for the places, each on a thread that may go on after this object, and what is over when they end.
  std::map<int, std::future<CUresult>> under_way_ COMMPOOL_GUARDED_BY(kGrowthLock);
  BlockStore::Uses uses_ COMMPOOL_GUARDED_BY(kGrowthLock);
};

}  // namespace commpool::internal
