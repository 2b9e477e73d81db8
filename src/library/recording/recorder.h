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
#include <memory>
#include <optional>
#include <string>
#include <thread>

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

}  // namespace commpool::internal::recording
