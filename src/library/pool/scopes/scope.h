// Plain values that describe scopes, for the scopes and the threads' slots; and the scopes that threads share.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_SCOPES_SCOPE_H_
#define COMMPOOL_SRC_LIBRARY_POOL_SCOPES_SCOPE_H_

#include <array>
#include <atomic>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "src/library/pool/scopes/plan.h"
#include "src/library/pool/shared/pool_table.h"
#include "src/library/stream/stream_key.h"

namespace commpool::internal {

// Never 0, and never used twice by one table.
using ScopeHandle = uint64_t;

// Whose allocations a scope may catch: this thread's, those on one stream, or everybody's. A scope of a thread lies in
// that thread's stack, the others in the list that all threads read.
enum class ScopeFilter {
  kThread = COMMPOOL_FILTER_THREAD,
  kStream = COMMPOOL_FILTER_STREAM,
  kProcess = COMMPOOL_FILTER_PROCESS
};

// What scopes need to know of an allocation. `stream` is the stream's identity, which a promise does not change
// (StreamName). Runtime makes one for each request that this thread does not know yet.
struct RoutedRequest {
  int device = 0;
  StreamKey stream = 0;
  uint64_t bytes = 0;
};

// When a scope began, as one thread sees it. `shared`: how many shared scopes had begun by then; `own`: then, how many
// of the thread's own were open. Scopes of other threads have no place, because they never catch this thread's
// allocations. Compared by `shared` first: an own scope that began after shared scope 3 is {3, 1}, and so inside of it,
// {3, 0}.
struct ScopePlace {
  uint64_t shared = 0;
  uint64_t own = 0;

  friend auto operator<=>(const ScopePlace&, const ScopePlace&) = default;
};

// Before the first scope, and after the last: the ends of a search.
inline constexpr ScopePlace kOutermost = {};
inline constexpr ScopePlace kInnermost = {UINT64_MAX, UINT64_MAX};

// The pool that serves an allocation, and the scope that caught it, if any. `pool` may be 0: nobody serves. Allocate
// needs the scope itself only after a failure, to hand the request on.
struct CaughtBy {
  ScopeHandle scope = 0;  // 0: none
  ScopePlace place;
  PoolHandle pool = 0;
  Exhaustion exhaustion = Exhaustion::kError;
};

// One open scope of a stream or of the process. Plain bytes without a pointer, so that readers may copy it word by
// word.
struct SharedScope {
  ScopeHandle handle = 0;
  uint64_t number = 0;   // start order among stream-wide and process-wide scopes, from 1
  StreamKey stream = 0;  // 0: every stream
  ScopePlan plan;

  ScopePlace place() const { return {number, 0}; }
  bool Catches(const RoutedRequest& request) const {
    return (stream == 0 || stream == request.stream) && plan.Catches(request.device, request.bytes);
  }
  CaughtBy caught() const { return {handle, place(), plan.pool, plan.exhaustion}; }
};

// The open scopes of streams and of the process, for allocating threads to read without a lock. ScopeTable owns one,
// and publishes under its lock. Every thread reads.
//
// A sequence lock over a short array of atomic words: a reader that meets a change reads again. There is one writer at
// a time, under the table's lock. Where more scopes are open than the array holds, or they change all the time, readers
// ask the table instead. Each word is atomic, so that a torn read is a wrong value and no undefined behaviour.
class SharedScopes {
 public:
  // The array's size is fixed, so that a reader never follows a pointer that a writer may free.
  static constexpr size_t kMostPublished = 16;

  // One load: the cost of an allocation where there are none. Where the count is 0, a thread looks at its own scopes
  // alone.
  bool empty() const { return count_.load(std::memory_order_acquire) == 0; }

  // While this number is even and stays the same, nothing changes. Only Publish changes it, twice for each list.
  uint64_t changes() const { return sequence_.load(std::memory_order_acquire); }
  // Narrows `alike` to sizes around `bytes` that every scope treats alike. Valid where changes() is even, and the same
  // before and after.
  void Narrow(SizeRange& alike, uint64_t bytes) const {
    const size_t count = count_.load(std::memory_order_acquire);
    // Not all scopes are here: then the answer holds for this size alone.
    if (count > kMostPublished) {
      alike = {bytes, bytes};
      return;
    }
    for (size_t place = 0; place < count; ++place) alike.Narrow(scopes_[place].Load().plan.sizes, bytes);
  }

  // kAskTheTable: too many scopes are open, or they change too often to be read without the lock.
  enum class Found { kNone, kCaught, kAskTheTable };
  // The newest scope between `outer` and `inner` that catches the request. `outer`: the place of the thread's own scope
  // that catches the request. Takes no lock, and waits for no writer: after some attempts it gives up.
  Found Find(const RoutedRequest& request, const ScopePlace& outer, const ScopePlace& inner, CaughtBy* caught) const {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      const uint64_t before = sequence_.load(std::memory_order_acquire);
      const size_t count = count_.load(std::memory_order_acquire);
      if (count > kMostPublished) return Found::kAskTheTable;
      Found found = Found::kNone;
      // The newest is last, so the first that catches is the answer.
      for (size_t place = count; place-- > 0;) {
        const SharedScope scope = scopes_[place].Load();
        // All further ones are older still, and this thread's own scope wins over them.
        if (scope.number <= outer.shared) break;
        if (!scope.Catches(request) || scope.place() >= inner) continue;
        *caught = scope.caught();
        found = Found::kCaught;
        break;
      }
      // What was read while the list changed may be parts of two scopes: it is thrown away.
      if (before % 2 == 0 && sequence_.load(std::memory_order_relaxed) == before) return found;
    }
    return Found::kAskTheTable;
  }

  // Replaces the list, in the order of beginning. REQUIRES: no other thread publishes.
  // ScopeTable calls it under the board's lock: after each change of the shared scopes, and to make threads ask again.
  template <typename List>
  void Publish(const List& list) {
    const uint64_t sequence = sequence_.load(std::memory_order_relaxed);
    // Odd from here on: readers do not trust what they read.
    sequence_.store(sequence + 1, std::memory_order_relaxed);
    // Each store releases: a reader that sees one of them also sees that a change is in progress.
    size_t place = 0;
    for (const SharedScope& scope : list) {
      if (place < kMostPublished) scopes_[place].Store(scope);
      ++place;
    }
    count_.store(place, std::memory_order_release);
    sequence_.store(sequence + 2, std::memory_order_release);
  }

 private:
  // Of a reader, before it asks the table under its lock. An attempt reads at most kMostPublished scopes.
  static constexpr int kMostAttempts = 16;

  // A scope as words that are read and written one by one. No word is read while it is half written; the sequence tells
  // whether all words are of one list.
  class Words {
   public:
    SharedScope Load() const {
      Bits bits;
      for (size_t word = 0; word < bits.size(); ++word) bits[word] = words_[word].load(std::memory_order_acquire);
      return std::bit_cast<SharedScope>(bits);
    }
    void Store(const SharedScope& scope) {
      const auto bits = std::bit_cast<Bits>(scope);
      for (size_t word = 0; word < bits.size(); ++word) words_[word].store(bits[word], std::memory_order_release);
    }

   private:
    using Bits = std::array<uint64_t, sizeof(SharedScope) / sizeof(uint64_t)>;

    std::array<std::atomic<uint64_t>, sizeof(Bits) / sizeof(uint64_t)> words_ = {};
  };

  std::atomic<uint64_t> sequence_{0};  // odd while the list changes
  std::atomic<size_t> count_{0};       // the number of all open shared scopes
  std::array<Words, kMostPublished> scopes_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_SCOPES_SCOPE_H_
