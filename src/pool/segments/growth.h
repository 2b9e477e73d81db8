// The growth of fixed and expandable pools: make memory, prepare it for use, and only then let anybody be served from
// it. A step that fails takes back the ones before it, and the pool is as before. Symmetric pools grow in the steps of
// a collective call (symmetric/collective.h).
#ifndef COMMPOOL_SRC_POOL_SEGMENTS_GROWTH_H_
#define COMMPOOL_SRC_POOL_SEGMENTS_GROWTH_H_

#include "commpool/status.h"

namespace commpool::internal {

class Growth {
 public:
  virtual ~Growth() = default;

  // Makes the memory, with room under every limit and access for every peer. A failure leaves nothing behind. What was
  // made goes back with this object unless Adopt() takes it.
  virtual Status Make() = 0;
  // What the memory needs before it serves: registrations with communicators, pages at their addresses.
  virtual Status Prepare() { return Status(); }
  // Takes Prepare back, after it failed here or on another rank.
  virtual void Undo() {}
  // Into the books: from now on the engine serves from it.
  virtual void Adopt() = 0;

  enum class Step { kMake, kPrepare };
  // The outcome of all ranks, from this one's.
  virtual Status Agree(Step, const Status& mine) { return mine; }
};

Status Grow(Growth& growth);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SEGMENTS_GROWTH_H_
