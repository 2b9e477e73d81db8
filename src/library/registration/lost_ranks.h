// Which ranks of a home are known to be lost: their connection ended without a word, or they were silent too long.
//
// The link's watcher notes them. A lost rank comes to no round and to no NCCL call, so every thread that waits for it
// returns at once with its name. To ask costs one load. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/mutex.h"

namespace commpool::internal {

// The names of ranks in messages.
inline std::string RankName(size_t rank) { return "rank " + std::to_string(rank); }

// "2, 5 and 4 others": at most `most` numbers, however many ranks there are.
template <typename Number>
std::string SomeOf(const std::vector<Number>& ranks, size_t most, const char* separator) {
  std::string names;
  for (size_t place = 0; place < ranks.size() && place < most; ++place) {
    names += (place == 0 ? "" : separator) + std::to_string(ranks[place]);
  }
  return ranks.size() <= most ? names : names + " and " + std::to_string(ranks.size() - most) + " others";
}

// "rank 2", "ranks 2, 5 and 4 others".
template <typename Number>
std::string NamesOfRanks(const std::vector<Number>& ranks, size_t most) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + SomeOf(ranks, most, ", ");
}

// The lost ranks of one home. Its link, its channels and its communicators share one.
class LostRanks {
 public:
  static constexpr int kNone = -1;

  // The rank that was lost first; kNone while all are there.
  int first() const { return first_.load(std::memory_order_acquire); }
  bool any() const { return first() != kNone; }
  // OK while all are there; then kRemoteFailure: "rank 2 was lost 12 ms ago: its connection ended".
  Status status() const;

  // `how`: the sign of the loss, such as "its connection ended". Only the first loss is kept; later ones often follow
  // from it.
  void Note(int rank, const std::string& how);

  // A listener is called once, with the first lost rank, by the thread that calls CallListeners.
  using Listener = std::function<void(int rank)>;
  using ListenerNumber = uint64_t;
  ListenerNumber AddListener(Listener listener);
  // Returns once the listener no longer runs. Do not call it from a listener.
  void RemoveListener(ListenerNumber number);
  // For the watcher. A listener that is added after a loss is called the next time.
  void CallListeners();

 private:
  std::atomic<int> first_{kNone};

  mutable Mutex mutex_{LockRank::kLostRanks};
  Condition ended_;
  std::string how_ COMMPOOL_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point when_ COMMPOOL_GUARDED_BY(mutex_);
  ListenerNumber next_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  ListenerNumber running_ COMMPOOL_GUARDED_BY(mutex_) = 0;  // 0: none
  std::map<ListenerNumber, Listener> to_call_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal
