// Which ranks of a home are known to be lost: their connection ended without a word, or they were silent too long.
//
// The link's watcher notes them. A lost rank comes to no round and to no NCCL call, so every thread that waits for it
// returns at once with its name. To ask costs one load. Any thread.
#ifndef COMMPOOL_SRC_REGISTRATION_LOST_RANKS_H_
#define COMMPOOL_SRC_REGISTRATION_LOST_RANKS_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "commpool/status.h"

namespace commpool::internal {

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

  // Not our Mutex: a condition variable waits on it, and no thread holds it together with another lock.
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::string how_;
  std::chrono::steady_clock::time_point when_;
  ListenerNumber next_ = 1;
  ListenerNumber running_ = 0;  // 0: none
  std::map<ListenerNumber, Listener> to_call_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_LOST_RANKS_H_
