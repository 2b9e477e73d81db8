// PoolRecorder: the recorder as one pool sees it. PoolBasis has one. Any thread; where the recorder is off each call is
// two loads and a branch.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "commpool/status.h"
#include "src/library/recording/recorder.h"

namespace commpool::internal::recording {

// Hears of a pool's spans, whether somebody records or not. Any thread.
class SpanListener {
 public:
  virtual ~SpanListener() = default;

  // A span of this thread begins, or the last one that it began and has not ended yet ends.
  virtual void Began(std::string_view text) const = 0;
  virtual void Ended() const = 0;
  // For what has a handle: `span` is its SpanOfHandle.
  virtual void BeganHandle(uint64_t span, std::string_view text) const = 0;
};

// Something that takes time, from its construction on. It ends with its result, or as well where it is destroyed.
class [[nodiscard]] Span {
 public:
  Span() = default;
  Span(Span&& other) noexcept
      : listener_(std::exchange(other.listener_, nullptr)),
        recorder_(std::exchange(other.recorder_, nullptr)),
        number_(other.number_) {}
  ~Span() { End(Status()); }

  // Ends it, and hands the result on. `Outcome`: a Status or a Result.
  template <typename Outcome>
  Outcome Ended(Outcome outcome) {
    if (recorder_ == nullptr && listener_ == nullptr) return outcome;
    if constexpr (std::is_same_v<Outcome, Status>) {
      End(outcome);
    } else {
      End(outcome.status());
    }
    return outcome;
  }

 private:
  friend class PoolRecorder;
  void End(const Status& status);

  const SpanListener* listener_ = nullptr;  // null: nobody listens, or it has ended
  Recorder* recorder_ = nullptr;            // null: the recorder was off, or it has ended
  uint64_t number_ = 0;
};

// Where a symmetric pool is among others, the same on all ranks; zeros for other pools.
struct HomePlace {
  uint64_t home = 0;
  uint64_t channel = 0;
};

class PoolRecorder {
 public:
  // `listener`: null where nobody listens. It outlives the pool's spans.
  explicit PoolRecorder(Recorder& recorder, const SpanListener* listener = nullptr)
      : recorder_(recorder), listener_(listener), pool_(recorder.NextPool()) {}

  bool on() const { return recorder_.Records(pool_); }
  uint64_t number() const { return pool_; }

  // The pool serves from now on, or has come to another home: then tell again what it has.
  void Made(std::string_view name, std::string_view kind, int device, HomePlace place,
            std::string_view budget = {}) const;
  // Anything else that happened in this pool, whose number this fills in. A block that was there before the recording
  // has no stack: nobody knows any more where the program asked.
  void Tell(auto entry) const {
    if (!on()) return;
    entry.pool = pool_;
    recorder_.Record(entry);
  }

  // For blocks that threads' caches do not keep.
  void Served(uint64_t address, uint64_t bytes, uint64_t requested, uint64_t stream) const {
    if (on()) ServedWhileOn(address, bytes, requested, stream);
  }
  void Freed(uint64_t address) const {
    if (on()) recorder_.RecordFree(address);
  }

  // The pool was there before the recording: what its caches served before does not count.
  void WasThere() { counts_from_.store(recorder_.times(), std::memory_order_relaxed); }
  // At the end of a slice, by the recorder's thread alone: what has changed since the last. First Bytes, then Small for
  // each size.
  void Bytes(PoolBytes now);
  // `served`: since the pool was made.
  void Small(uint64_t bytes, uint64_t served, uint64_t cached);

  // A call of the sequence that all ranks of a symmetric pool make alike.
  void Called(uint64_t number, std::string_view call, uint64_t value) const;

  // `number`: the bytes that a growth or a search was asked for; of an agreement, with the pool's `place`, the number
  // that it has on all ranks of the pool.
  Span Began(SpanKind kind, std::string_view text, uint64_t number = 0, HomePlace place = {}) const;
  // For what has a handle of its own, and ends in another call: the recorder's EndHandle.
  void BeganHandle(SpanKind kind, uint64_t handle, std::string_view text) const;

 private:
  void ServedWhileOn(uint64_t address, uint64_t bytes, uint64_t requested, uint64_t stream) const;

  Recorder& recorder_;
  const SpanListener* const listener_;
  const uint64_t pool_;
  // What is told in one place: the entry goes out only where this pool is recorded.
  void Record(FunctionRef<Event(Texts& texts)> make) const {
    if (on()) recorder_.Record(make);
  }

  std::atomic<uint64_t> counts_from_{0};
  mutable std::atomic<uint64_t> times_made_{0};
  uint64_t told_made_ = 0;
  uint64_t told_times_ = 0;    // the recording that the members below are of
  uint64_t told_chapter_ = 0;  // each chapter tells all figures once
  bool tells_all_ = false;
  PoolBytes told_;
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> told_small_;  // served and cached, by size
};

}  // namespace commpool::internal::recording
