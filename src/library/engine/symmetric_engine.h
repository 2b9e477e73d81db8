// SymmetricEngine: the engine of symmetric pools. It places the same blocks at the same offsets on every rank.
// Placement depends on the sequence of calls alone (rule 4): not on addresses, streams, event timing, hash order or
// scheduling.
//
// Pure, owned by BlockStore, and guarded by the pool's lock, like CachingEngine. Ranks free at moments of their own, so
// by default a free is deferred: the block closes at once, and becomes free memory once every rank has freed it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/library/engine/engine.h"
#include "src/library/engine/sequence_log.h"
#include "src/library/engine/size_policy.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

enum class FreeOrder {
  // A free takes effect at the next collective call, once every rank has freed the block.
  kDeferred = COMMPOOL_FREES_DEFERRED,
  // Ranks free in lockstep: a free is part of the sequence and takes effect at once.
  kOrdered = COMMPOOL_FREES_ORDERED,
};

// Counted up whenever equal calls begin to place blocks differently. Ranks with different values refuse each other when
// a pool is made.
inline constexpr int kPlacementRules = 3;

// An allocation's number in the pool's sequence: on every rank the same number means the same block.
using Sequence = uint64_t;

class SymmetricEngine final : public Engine {
 public:
  SymmetricEngine(const EngineOptions& options, FreeOrder order)
      : Engine(options, MergePolicy::kAlways, Choice::kBesideItsLike), order_(order) {}

  // Any free block may serve: the caller waits on the device for the returned uses. Grow means *exhausted*: only a
  // `reserve` of its bytes helps. Refused requests are part of the sequence too, but not requests for zero or too many
  // bytes (kInvalidArgument).
  // A block of a capture's part is closed after its free until ReleasePart, too.
  Result<Outcome> Allocate(uint64_t bytes, StreamKey stream, Part part = kCommonPart);
  // Whether free memory would serve a request now. Every rank gets the same answer; the question is not part of the
  // sequence.
  bool CanServe(uint64_t bytes) const;
  // kNotFound where no live block starts at `address` (foreign, or freed already). With ordered frees the block is free
  // memory at once; until its fences come the next user waits for all work of their streams.
  Result<Freed> Free(Address address, Reasons also = 0) override;
  // The capture's graph is gone: it closes no block any more.
  void ReleasePart(Part part) override;

  // The ranks exchange LocallyFreed, the frees of blocks that only the other ranks close, and whose streams others can
  // wait for, ascending. ApplyFrees then makes the blocks that every rank has freed free memory.
  // REQUIRES: each of `sequences` is in LocallyFreed().
  std::vector<Sequence> LocallyFreed() const;
  void ApplyFrees(const std::vector<Sequence>& sequences);

  uint32_t SegmentsEver() const { return heap().segments_ever(); }  // the index of the next segment

  // Begins the sequence and the numbers of segments anew: equal calls then place equally on this rank and on a new one.
  // REQUIRES: there is no segment.
  void BeginEpoch();

  // The rolling hash, and the last calls, so that ranks that differ can name the first difference.
  const SequenceLog& log() const { return log_; }
  // Collective calls are part of the sequence.
  void NoteCollective(SequenceCall call, uint64_t value) { log_.Append(call, value); }

 private:
  // The blocks of LocallyFreed.
  std::map<Sequence, Block*> Offered() const;

  FreeOrder order_;
  SequenceLog log_;
  Sequence next_sequence_ = 0;
};

}  // namespace commpool::internal::engine
