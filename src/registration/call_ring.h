// Calls on their way from the threads that make them to the one that publishes them, without a lock.
//
// One producer at a time (the pool's lock sees to that) and one consumer. A full ring refuses new calls and keeps those
// that it has.
#ifndef COMMPOOL_SRC_REGISTRATION_CALL_RING_H_
#define COMMPOOL_SRC_REGISTRATION_CALL_RING_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "src/engine/sequence_log.h"

namespace commpool::internal {

class CallRing {
 public:
  static constexpr uint64_t kCapacity = 4096;

  // False where it is full.
  bool Push(const engine::SequenceEntry& call) {
    const uint64_t pushed = pushed_.load(std::memory_order_relaxed);
    if (pushed - taken_.load(std::memory_order_acquire) == kCapacity) return false;
    calls_[pushed % kCapacity] = call;
    pushed_.store(pushed + 1, std::memory_order_release);
    return true;
  }

  std::vector<engine::SequenceEntry> TakeAll() {
    std::vector<engine::SequenceEntry> calls;
    const uint64_t pushed = pushed_.load(std::memory_order_acquire);
    uint64_t taken = taken_.load(std::memory_order_relaxed);
    for (; taken != pushed; ++taken) calls.push_back(calls_[taken % kCapacity]);
    taken_.store(taken, std::memory_order_release);
    return calls;
  }

 private:
  std::array<engine::SequenceEntry, kCapacity> calls_;
  std::atomic<uint64_t> pushed_{0};
  std::atomic<uint64_t> taken_{0};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_CALL_RING_H_
