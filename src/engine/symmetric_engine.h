// The engine of symmetric pools: the same blocks at the same offsets on every rank, because placement depends on the
// sequence of calls and on nothing else (rule 4): not on addresses, streams, event timing, hash order or scheduling.
//
// Pure, and guarded by the pool's lock, like CachingEngine. Frees happen at rank-local moments, so by default they are
// deferred: the block is closed at once and returns to the free memory when every rank has freed it.
#ifndef COMMPOOL_SRC_ENGINE_SYMMETRIC_ENGINE_H_
#define COMMPOOL_SRC_ENGINE_SYMMETRIC_ENGINE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/engine/engine.h"
#include "src/engine/sequence_log.h"
#include "src/engine/size_policy.h"
#include "src/engine/types.h"

namespace commpool::internal::engine {

enum class FreeOrder {
  // A free takes effect at the next collective call, once every rank has freed the block.
  kDeferred = COMMPOOL_FREES_DEFERRED,
  // Ranks free in lockstep: a free is part of the sequence and takes effect at once.
  kOrdered = COMMPOOL_FREES_ORDERED,
};

// Raised whenever equal calls begin to place blocks otherwise: ranks whose libraries differ in it refuse each other
// when a pool is made.
inline constexpr int kPlacementRules = 2;

// An allocation's place in the pool's sequence: the same number is the same block on every rank.
using Sequence = uint64_t;

class SymmetricEngine final : public Engine {
 public:
  SymmetricEngine(const EngineOptions& options, FreeOrder order)
      : Engine(options, MergePolicy::kAlways), order_(order) {}

  // Any free block may serve: the caller waits on the device for the uses returned. Grow is final until `reserve`:
  // its bytes are what a reserve must ask for. A request that is refused is part of the sequence too; one for zero or
  // too many bytes (kInvalidArgument) is not.
  Result<Outcome> Allocate(uint64_t bytes, StreamKey stream);
  // The place in the sequence that the next allocation gets.
  Sequence NextSequence() const { return next_sequence_; }
  // Whether free memory would serve a request now. The same on every rank; not part of the sequence.
  bool CanServe(uint64_t bytes) const;
  // kNotFound where no live block starts at `address` (foreign, or freed already). Ordered, the block is free memory at
  // once, and until its fences come whoever takes it waits for all work of their streams.
  Result<Freed> Free(Address address) override;

  // Whether a deferred free waits for a stream that only the next call that passes it reaches, or a wait for the
  // device.
  bool AwaitsDevice() const;
  // Deferred frees of this rank whose fences have all come, ascending: what the ranks exchange. The blocks of
  // `sequences`, which every rank has freed, become free memory, in ascending order. REQUIRES: each is in
  // LocallyFreed().
  std::vector<Sequence> LocallyFreed() const;
  void ApplyFrees(const std::vector<Sequence>& sequences);

  uint32_t SegmentsEver() const { return heap().segments_ever(); }  // the index that the next segment gets

  // The sequence and the numbers of segments begin anew: from here on equal calls place equally on this rank and on one
  // that has just begun. REQUIRES: there is no segment.
  void BeginEpoch();

  // The rolling hash and the calls that it covers; the last calls are kept so that ranks which differ can name the
  // first difference.
  const SequenceLog& log() const { return log_; }
  // Collective calls are part of the sequence.
  void NoteCollective(SequenceCall call, uint64_t value) { log_.Append(call, value); }

  void CheckInvariants() const override;

 private:
  FreeOrder order_;
  SequenceLog log_;
  Sequence next_sequence_ = 0;
  ReservedMap<Sequence, Block*> deferred_;  // this rank's frees that wait for the others
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_SYMMETRIC_ENGINE_H_
