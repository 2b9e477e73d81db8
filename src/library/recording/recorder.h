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
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

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

// A page of a recording in memory, from its first entry to the disk.
struct Page {
  // The most that wait for the disk.
  static constexpr size_t kMost = 64;

  PageHeader header;
  uint64_t entries = 0;
  size_t used = 0;
  size_t written = 0;  // of `used`, on the disk
  uint64_t last = 0;   // the time of the last entry
  std::unique_ptr<char[]> bytes = std::make_unique_for_overwrite<char[]>(kEntryRoom);
};

// The numbers that texts have in a recording, and which of them the current chapter has told. Recorder owns one, under
// its lock.
class Texts {
 public:
  // Longer ones are cut: an entry and its texts fit into a page.
  static constexpr size_t kMostBytes = 4096;
  // A program with more stacks than that gets no numbers for further ones.
  static constexpr size_t kMost = 1 << 16;

  // 0 for an empty text, and where there are too many.
  uint64_t NumberOf(std::string_view text) {
    text = text.substr(0, kMostBytes);
    if (text.empty()) return 0;
    const auto known = numbers_.find(std::string(text));
    if (known != numbers_.end()) return known->second;
    if (all_.size() == kMost) return 0;
    all_.push_back({&numbers_.emplace(text, all_.size() + 1).first->first, 0});
    return all_.size();
  }
  // Whether this chapter has to tell the text before an entry with its number. Call Told once it has.
  bool MustTell(uint64_t number, uint64_t chapter) const { return number != 0 && all_[number - 1].told_in != chapter; }
  void Told(uint64_t number, uint64_t chapter) { all_[number - 1].told_in = chapter; }
  const std::string& TextOf(uint64_t number) const { return *all_[number - 1].text; }

 private:
  struct Known {
    const std::string* text;
    uint64_t told_in;  // the last chapter that told it; 0: none
  };

  std::unordered_map<std::string, uint64_t> numbers_;
  std::vector<Known> all_;
};

// What lives in the pools of the process, so that a chapter can begin with it. Recorder owns one, under its lock.
class LiveState {
 public:
  // `time` is that of the entry. Entries of what does not live change nothing.
  template <typename Entry>
  void Apply(const Entry&, uint64_t) {}
  void Apply(const PoolMade& made, uint64_t time) { pools_[made.pool] = {made, time}; }
  void Apply(const PoolGone& gone, uint64_t) { pools_.erase(gone.pool); }
  void Apply(const SegmentMade& made, uint64_t time) { segments_[made.address] = {made, time}; }
  // A range may be a part of a segment, or be made of several.
  void Apply(const SegmentGone& gone, uint64_t time);
  void Apply(const BlockServed& served, uint64_t time) { blocks_[served.address] = {served, time}; }
  void Apply(const BlockFreed& freed, uint64_t) { blocks_.erase(freed.address); }
  void Apply(const Registered& made, uint64_t time) { registrations_[KeyOf(made)] = {made, time}; }
  void Apply(const Deregistered& ended, uint64_t) { registrations_.erase(KeyOf(ended)); }
  void Apply(const SpanBegan& began, uint64_t time) { spans_[began.span] = {began, time}; }
  void Apply(const SpanEnded& ended, uint64_t) { spans_.erase(ended.span); }

  bool HasBlock(uint64_t address) const { return blocks_.contains(address); }

  // Calls `tell` for all that lives, each with its age at `now`, in an order in which a reader knows what it reads of.
  template <typename Tell>
  void Retell(uint64_t now, Tell tell) const {
    const auto each = [&](const auto& all) {
      for (const auto& [key, one] : all) {
        auto entry = one.entry;
        entry.age = now - one.time;
        tell(entry);
      }
    };
    each(pools_);
    each(segments_);
    each(blocks_);
    each(registrations_);
    each(spans_);
  }

 private:
  template <typename Entry>
  struct Dated {
    Entry entry;
    uint64_t time = 0;
  };
  using RegistrationKey = std::tuple<uint64_t, uint64_t, uint64_t>;
  template <typename Entry>
  static RegistrationKey KeyOf(const Entry& entry) {
    return {entry.pool, entry.communicator, entry.address};
  }

  std::map<uint64_t, Dated<PoolMade>> pools_;
  std::map<uint64_t, Dated<SegmentMade>> segments_;  // by address
  std::unordered_map<uint64_t, Dated<BlockServed>> blocks_;
  std::map<RegistrationKey, Dated<Registered>> registrations_;
  std::map<uint64_t, Dated<SpanBegan>> spans_;
};

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

  ~Recorder() { Stop(); }

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
  void Record(const Event& event) {
    Record([&](Texts&) { return event; });
  }
  // Scopes and captures have handles: the number of the span of one, and its end.
  static uint64_t SpanOfHandle(SpanKind kind, uint64_t handle) {
    return (static_cast<uint64_t>(kind) + 1) << 56 | handle;
  }
  void EndHandle(SpanKind kind, uint64_t handle) { Record(SpanEnded{.span = SpanOfHandle(kind, handle)}); }
  // Records the free of a block that was recorded; nothing for others.
  void RecordFree(uint64_t address);

 private:
  void Begin(RecordingFile file, const RecorderOptions& options);
  uint64_t only() const { return only_.load(std::memory_order_relaxed); }
  // Takes an entry into the books of what lives, and writes it; where there is no room it is lost.
  template <typename Entry>
  void Add(const Entry& entry) COMMPOOL_REQUIRES(mutex_);
  // Writes the texts that the chapter has not told yet, and the entry.
  template <typename Entry>
  void PutWithTexts(const Entry& entry, uint64_t time) COMMPOOL_REQUIRES(mutex_);
  // Makes a page, a chapter where it is time for one, where the current page has no room.
  bool FindRoom() COMMPOOL_REQUIRES(mutex_);
  bool HasRoom() COMMPOOL_REQUIRES(mutex_);
  void BeginChapter() COMMPOOL_REQUIRES(mutex_);
  // Ends the current page and begins another.
  void BeginPage(uint64_t time) COMMPOOL_REQUIRES(mutex_);
  bool HalfFull() const COMMPOOL_REQUIRES(mutex_) { return pages_.size() >= Page::kMost / 2; }
  template <typename Entry>
  void Put(const Entry& entry, uint64_t time) COMMPOOL_REQUIRES(mutex_);

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
  Texts texts_ COMMPOOL_GUARDED_BY(mutex_);
  LiveState live_ COMMPOOL_GUARDED_BY(mutex_);
  // What waits for the disk, the oldest first; entries go to the last. A page stays where it is while entries come and
  // pages begin.
  std::deque<Page> pages_ COMMPOOL_GUARDED_BY(mutex_);
  uint64_t begun_pages_ COMMPOOL_GUARDED_BY(mutex_) = 0;  // of the recording
  // The number of its first page; 0: the next entry begins one.
  uint64_t chapter_ COMMPOOL_GUARDED_BY(mutex_) = 0;
  uint64_t retold_pages_ COMMPOOL_GUARDED_BY(mutex_) = 0;  // of the last chapter, for what lived at its begin
  uint64_t lost_ COMMPOOL_GUARDED_BY(mutex_) = 0;          // entries that no Lost entry has told yet
  // A page could not be written: the rest of its chapter cannot be read.
  bool broken_ COMMPOOL_GUARDED_BY(mutex_) = false;

  Mutex file_mutex_{LockRank::kLeaf};  // of one who writes; taken before `mutex_`
  std::optional<RecordingFile> file_;  // another one only under both
  bool warned_ COMMPOOL_GUARDED_BY(file_mutex_) = false;
  std::thread thread_;
};

}  // namespace commpool::internal::recording
