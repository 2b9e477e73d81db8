// LossWatch: a pool's knowledge of lost ranks of its home. It answers a program that asks before a launch, and calls
// the program's on_lost_rank.
//
// Any thread may ask, for two loads. on_lost_rank runs on the thread of the channel that noticed the loss.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "src/library/base/mutex.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/registration/lost_ranks.h"
#include "src/library/registration/registration_set.h"

namespace commpool::internal {

// SymmetricMode owns one, and tells it each new home. Lock: its own, a leaf.
class LossWatch {
 public:
  LossWatch(const PoolBasis& basis, const RegistrationSet& registrations)
      : basis_(basis), registrations_(registrations) {}
  ~LossWatch() { Stop(); }

  // Watches the ranks of a new home. SymmetricMode calls it when an epoch begins, with the collective lock.
  void Follow(const std::shared_ptr<LostRanks>& ranks);
  // Once it returns, on_lost_rank is no longer called. May be called more than once. Do not call it from on_lost_rank,
  // for which it waits.
  void Stop();

  // The lost rank that was noticed first; LostRanks::kNone: none. Two loads.
  int first() const {
    const LostRanks* const ranks = followed_.load(std::memory_order_acquire);
    return ranks == nullptr ? LostRanks::kNone : ranks->first();
  }

 private:
  // Whether a collective on the pool's windows may be running. It would wait for the lost rank until the process ends.
  bool MayHang() const;
  // Tells the log and the program. May wait for the device a moment, to know which advice is right.
  void Tell(int rank) const;

  // Both outlive this object. Read on the channel's thread too.
  const PoolBasis& basis_;
  const RegistrationSet& registrations_;
  // The present home's, or null before the first one. Stop leaves it: a closed pool still answers.
  std::atomic<const LostRanks*> followed_{nullptr};
  Mutex mutex_{LockRank::kLeaf};
  // The lost ranks of this home and of earlier ones: a thread that asks takes no lock, and may still read an earlier
  // one.
  std::vector<std::shared_ptr<LostRanks>> kept_ COMMPOOL_GUARDED_BY(mutex_);
  // Of the last one in `kept_`; 0: not listening.
  LostRanks::ListenerNumber listener_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace commpool::internal
