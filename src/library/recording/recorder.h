// Recorder: writes down what happens in the pools of a process while it is on. The runtime owns one, and each pool sees
// it as PoolRecorder.
//
// Any thread. An entry takes a short lock, under which nothing else is locked, and is copied into a page in memory. The
// recorder's own thread writes pages to the disk, at the end of each slice and when many are full. A disk that is full
// or too slow loses entries, and they are counted; it never holds up or fails the call that is recorded. A forked child
// records nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "commpool/status.h"
#include "src/library/base/fork_guard.h"
#include "src/library/base/function_ref.h"
#include "src/library/base/mutex.h"
#include "src/library/recording/entries.h"
#include "src/library/recording/recording_file.h"

namespace commpool::internal::recording {

// Nanoseconds of the steady clock, of which all times of a recording are.
inline uint64_t Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

class Texts;

struct RecorderOptions {
  std::string directory;
  uint64_t limit_bytes = uint64_t{256} << 20;  // of the file
  // Composes the caller's stack, the innermost frame first, one a line, for blocks that are recorded one by one. May be
  // null.
  std::string (*stack)() = nullptr;
  uint64_t only = 0;  // the number of the one pool to record; 0: all
};

class Recorder {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kSlice{100};
  // A sample of thousands of pools takes long. Then the thread sleeps kRest times as long as the sample took.
  static constexpr int kRest = 20;
  static Clock::time_point NextSample(Clock::time_point began, Clock::time_point ended);

  Recorder();
  ~Recorder();

  // Makes the file and starts the thread, which calls `sample` at the end of each slice, without the lock. Fails where
  // the file cannot be made, or the recorder is on. REQUIRES: no other thread starts or stops it.
  Status Start(const RecorderOptions& options, std::function<void()> sample);
  // Takes a last sample and writes what is left.
  void Stop();
  // Likewise, and goes on: for the end of a process.
  void Flush();

  bool on() const { return on_.load(std::memory_order_acquire) && !forked_.InChild(); }
  // Whether it records the pool.
  bool Records(uint64_t pool) const { return on() && (only() == 0 || only() == pool); }
  // Counts the recordings of this process, and the chapters of all of them.
  uint64_t times() const { return times_.load(std::memory_order_relaxed); }
  uint64_t chapters() const { return chapters_.load(std::memory_order_relaxed); }
  // Empty where stacks are not asked for.
  std::string Stack() const {
    const auto stack = stack_.load(std::memory_order_relaxed);
    return stack == nullptr ? std::string() : stack();
  }
  uint64_t NextPool() { return next_pool_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t NextSpan() { return next_span_.fetch_add(1, std::memory_order_relaxed); }

  // Records the entry that `make` returns. `make` gets the texts, for the numbers of those that it names.
  void Record(FunctionRef<Event(Texts& texts)> make);
  void Record(const Event& event);
  // Scopes and captures have handles: the number of the span of one, and its end.
  static uint64_t SpanOfHandle(SpanKind kind, uint64_t handle) {
    return (static_cast<uint64_t>(kind) + 1) << 56 | handle;
  }
  void EndHandle(SpanKind kind, uint64_t handle);
  // Records the free of a block that was recorded; nothing for others.
  void RecordFree(uint64_t address);

 private:
  struct Books;

  uint64_t only() const { return only_.load(std::memory_order_relaxed); }
  // Takes an entry into the books of what lives, and writes it; where there is no room it is lost.
  void Add(const auto& entry) COMMPOOL_REQUIRES(mutex_);
  // Makes a page, a chapter where it is time for one, where the current page has no room.
  bool FindRoom() COMMPOOL_REQUIRES(mutex_);

  void Run();
  void Sample();
  void Write();

  const ForkGuard forked_;
  std::atomic<bool> on_{false};
  std::atomic<std::string (*)()> stack_{nullptr};
  std::atomic<uint64_t> only_{0};
  std::atomic<uint64_t> times_{0};
  std::atomic<uint64_t> chapters_{0};
  std::atomic<uint64_t> next_pool_{1};
  std::atomic<uint64_t> next_span_{1};
  Mutex sample_mutex_{LockRank::kGrowth};  // of one who samples: the sampler takes locks of pools
  std::function<void()> sample_ COMMPOOL_GUARDED_BY(sample_mutex_);

  Mutex mutex_{LockRank::kRecorder};
  Condition wake_;
  bool ending_ COMMPOOL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Books> books_ COMMPOOL_GUARDED_BY(mutex_);  // new ones for each recording

  Mutex file_mutex_{LockRank::kLeaf};  // of one who writes; taken before `mutex_`
  std::optional<RecordingFile> file_;  // another one only under both
  bool warned_ COMMPOOL_GUARDED_BY(file_mutex_) = false;
  std::thread thread_;
};

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

// The recorder as one pool sees it. PoolBasis has one. Any thread; where the recorder is off each call is two loads and
// a branch.
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
  mutable std::atomic<bool> made_{false};  // since the last Bytes
  uint64_t told_times_ = 0;                // the recording that the members below are of
  uint64_t told_chapter_ = 0;              // each chapter tells all figures once
  bool tells_all_ = false;
  PoolBytes told_;
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> told_small_;  // served and cached, by size
};

}  // namespace commpool::internal::recording
