// Whether the ranks of a symmetric pool are known to have made different calls: from then on their blocks are at
// different offsets, and the pool hands out none. Any thread; asking costs one load.
#ifndef COMMPOOL_SRC_REGISTRATION_DIVERGENCE_H_
#define COMMPOOL_SRC_REGISTRATION_DIVERGENCE_H_

#include <atomic>
#include <string>

#include "commpool/status.h"
#include "src/base/mutex.h"

namespace commpool::internal {

class Divergence {
 public:
  bool known() const { return known_.load(std::memory_order_acquire); }
  // OK, or kDisagreement with the first difference that was noted: later ones follow from it.
  Status status() const;
  void Note(const Status& difference);
  // A new sequence of calls begins.
  void Forget();

 private:
  std::atomic<bool> known_{false};
  mutable Mutex mutex_{LockRank::kLeaf};
  Status first_ COMMPOOL_GUARDED_BY(mutex_);
};

// The one form of the message, wherever the difference was found.
Status SequencesDiffer(const std::string& difference);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_DIVERGENCE_H_
