// PoolBasis: what every part of a pool needs: driver, device, configuration, the pool's name for messages, its life. A
// part holds a reference to it, and knows nothing else of the whole pool.
//
// RuntimeParts: what the pools of one runtime share: owners of addresses, windows, the threads' caches, the observer,
// and what they may ask of each other and of other allocators of the process. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/failure.h"
#include "src/library/base/function_ref.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/handles.h"
#include "src/library/nvtx/domain.h"
#include "src/library/nvtx/heaps.h"
#include "src/library/pool/caches/thread_caches.h"
#include "src/library/pool/options.h"
#include "src/library/pool/shared/device_state.h"
#include "src/library/pool/shared/memory_holders.h"
#include "src/library/pool/shared/memory_observer.h"
#include "src/library/pool/shared/tables.h"
#include "src/library/recording/recorder.h"
#include "src/library/registration/home_links.h"
#include "src/library/registration/small_all_gather.h"
#include "src/library/registration/window_book.h"
#include "src/library/sharing/share_server.h"
#include "src/library/stream/stream_key.h"

namespace commpool::internal {

// What a pool may ask of the other pools of its runtime: to release what they do not use, and who holds what. Pools
// know nothing else of each other, not even their table. MemorySearch implements it. Any thread, without a lock. Each
// call may release memory of pools that this thread knows nothing of, and takes their locks.
class OtherPools {
 public:
  virtual ~OtherPools() = default;

  // Makes the device's pools, except the asking one, release what they do not use; only those of a budget, unless its
  // name is empty. Returns the released bytes.
  virtual uint64_t ReleaseUnused(int device, const BlockOwner* asks, const std::string& budget) = 0;
  // Releases memory that destroyed pools still hold because of a capture or a graph: a program has no handle any more
  // to trim them. Also releases what failed collective calls could not release. Does nothing while a capture is open
  // anywhere, nor for pools without a capture or graph that has ended. It may wait for their devices, so call it where
  // a pool is made, trimmed, closed or destroyed.
  virtual void ReleaseDestroyed() = 0;
  // One line for each pool of the device: reserved, in use, cached, largest free block. The largest holder comes first;
  // the smallest of many share one line. Then one line for each other allocator of the process, with what it says it
  // holds.
  virtual std::string DescribeHolders(int device) = 0;
  // Instead of a device: the pools of the host's memory, whichever device is theirs.
  static constexpr int kHost = -1;
};

// Runtime owns one, and every pool has a reference to it in its PoolBasis. It has no lock: each part has its own. The
// order of the members is the order of their making: those that tell others of their end come later.
struct RuntimeParts {
  // What PoolRecorder::BeganHandle began.
  void EndHandle(recording::SpanKind kind, uint64_t handle) {
    ranges.End(recording::Recorder::SpanOfHandle(kind, handle));
    recorder.EndHandle(kind, handle);
  }

  const Driver& driver;
  DeviceTable& devices;               // of pools, and of the streams that use them
  OtherPools& others;                 // what one pool may ask of all others
  recording::Recorder recorder = {};  // destroyed last: all others tell it of their end
  nvtx::DomainNames domain_names = {};
  nvtx::Heaps heaps = {};
  nvtx::OpenRanges ranges = {};
  const MemoryObserver observer = MemoryObserver(driver, devices.places(), heaps);
  // The process's other allocators, which the search for memory asks last.
  MemoryHolders holders = {};
  // Where NCCL's windows lie: finds a pointer's window without a driver call (rule 3).
  WindowBook windows = {};
  // The connections between the ranks of a home; its pools share them.
  HomeLinks links = {};
  // All-gathers that NCCL has not finished, with the memory that they still write.
  UnansweredGathers unanswered = {};
  ShareServer shares = ShareServer(driver);  // what other processes import
  const std::shared_ptr<ThreadCaches> shared_caches = std::make_shared<ThreadCaches>(observer);
  ThreadCaches& caches = *shared_caches;
  AddressTable addresses = {};  // destroyed first: its pools use the other members
};

// The state of a pool. Each transition has a name.
//
//   open --BeginClose--> closing --EndClose--> closed             (closing goes back where BeginClose fails)
//   open --BeginSleep--> asleep --EndSleep--> open
//     \------------------ Destroy ------------------> destroyed     (from any of them: the handle has ended)
//     \------------------ Abandon ------------------> abandoned     (from any: the runtime ends)
//
// PoolBasis owns one. Any thread. Calls of the pool change the state; everybody asks it. One atomic, so it needs no
// lock. A state that was read may be over by the next line. So growth and grants read it under the growth lock, which a
// sleep and the end of a pool take after their transition.
class PoolLife {
 public:
  // In the order towards a pool's end, because Advance compares them.
  enum class State {
    kOpen,       // serves
    kAsleep,     // its memory is given back, its addresses and blocks stay
    kClosing,    // serves no more; a close that failed may be repeated
    kClosed,     // its memory is given back, except for segments with live blocks
    kDestroyed,  // has no handle: a segment goes when its last block is freed
    kAbandoned,  // the runtime ends: nobody calls the driver any more
  };

  State state() const { return state_.load(std::memory_order_acquire); }
  bool open() const { return state() == State::kOpen; }
  bool destroyed() const { return state() == State::kDestroyed; }
  // Whether close() is done, or no longer possible.
  bool closed() const { return state() >= State::kClosed; }

  bool asleep() const { return state() == State::kAsleep; }

  // kFailedPrecondition where the pool, which the sentence calls so, sleeps or no longer serves.
  Status CheckOpen(const std::string& pool = "it") const {
    const State now = state();
    if (now == State::kOpen) return Status();
    if (now == State::kAsleep) return FailedPrecondition(pool, " is asleep: wake() it first");
    const char* const why = now == State::kDestroyed ? ": it was destroyed" : ": the runtime has ended";
    return FailedPrecondition(pool, " is closed", now < State::kDestroyed ? "" : why);
  }

  // Does nothing in another state: another thread may end the pool meanwhile.
  void BeginSleep() { Replace(State::kOpen, State::kAsleep); }
  void EndSleep() { Replace(State::kAsleep, State::kOpen); }
  // The pool serves nobody from now on, also while `await` runs. Where that fails, the pool is as it was before. One
  // that sleeps serves nobody anyway, and stays asleep for those who look: REQUIRES that nobody wakes it meanwhile.
  Status BeginClose(FunctionRef<Status()> await) {
    const State before = asleep() ? State::kAsleep : Advance(State::kClosing);
    const Status awaited = await();
    if (awaited.ok()) {
      Advance(State::kClosing);
    } else if (before == State::kOpen) {
      Replace(State::kClosing, State::kOpen);
    }
    return awaited;
  }
  void EndClose() { Advance(State::kClosed); }
  void Destroy() { Advance(State::kDestroyed); }
  void Abandon() { Advance(State::kAbandoned); }

 private:
  // For what the pool's end may overtake.
  void Replace(State from, State to) { state_.compare_exchange_strong(from, to, std::memory_order_acq_rel); }
  // Never back: a pool that is destroyed while it closes stays destroyed. Returns the state before.
  State Advance(State to) {
    State now = state();
    while (now < to && !state_.compare_exchange_weak(now, to, std::memory_order_acq_rel)) {
    }
    return now;
  }

  std::atomic<State> state_{State::kOpen};
};

// The streams on which calls of a pool are about to record events, outside the pool's lock. Before a pool forgets a
// stream, it waits for these calls: afterwards the stream's handle may be gone, or mean another stream.
//
// PoolBasis owns one. Any thread. Its own lock guards bookkeeping only. Free and the modes' allocations make scopes;
// BlockStore::ForgetStream waits for them.
class RecordingStreams {
 public:
  // While it lives, calls may record on its streams. Make it under the same hold of the pool's lock that found the
  // streams: ForgetStream takes that lock too, and then waits for the scope's end, so it misses no recording.
  class Scope {
   public:
    Scope(RecordingStreams& owner, std::vector<StreamKey> streams) : owner_(owner), streams_(std::move(streams)) {
      MutexLock lock(owner_.mutex_);
      owner_.streams_.insert(streams_.begin(), streams_.end());
    }
    ~Scope() {
      {
        MutexLock lock(owner_.mutex_);
        for (const StreamKey stream : streams_) owner_.streams_.erase(owner_.streams_.find(stream));
      }
      owner_.ended_.NotifyAll();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RecordingStreams& owner_;
    const std::vector<StreamKey> streams_;
  };

  // Waits until no call is about to record on the stream. REQUIRES: no new scope names the stream.
  void AwaitEnd(StreamKey stream) {
    MutexLock lock(mutex_);
    while (streams_.contains(stream)) ended_.Wait(mutex_);
  }

 private:
  Mutex mutex_{LockRank::kLeaf};
  // A multiset, because several calls may be about to record on one stream.
  std::multiset<StreamKey> streams_ COMMPOOL_GUARDED_BY(mutex_);
  Condition ended_;  // a scope has ended
};

// The pools of one home that one thread made together. The thread owns several ranks, so its collective calls must name
// all of these pools. Immutable: any thread. group_calls.cc makes one after the pools, and each of them keeps it.
class PoolGroup {
 public:
  explicit PoolGroup(size_t size) : size_(size) {}

  // Whether a call may name only `present` of the pools, `pool` among them. A thread that did not make the group waits
  // for none of its own ranks, so it may call for single pools.
  Status CheckComplete(const std::string& pool, size_t present) const {
    if (maker_ != ThisThread() || present == size_) return Status();
    return FailedPrecondition("this thread made ", size_, " pools of one home together, pool ", pool,
                              " among them, and calls for ", present,
                              " of them: it would wait for its own other ranks. ",
                              "Pass all of them to one call, as the reserve() of a PoolGroup does");
  }

 private:
  // A number for each thread. Unlike the system's number it never comes back.
  static uint64_t ThisThread() {
    static constinit std::atomic<uint64_t> next{1};
    thread_local const uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
    return number;
  }

  const size_t size_;
  const uint64_t maker_ = ThisThread();
};

// Clang's name for the growth lock of a pool, whichever: a thread holds one at most, so its analysis need not tell them
// apart.
class COMMPOOL_CAPABILITY("growth lock") GrowthLock {};
inline constexpr GrowthLock kGrowthLock;

// Counters of a pool's events that no other part of the pool counts. Any thread. They only rise. Statistics read them
// one by one, so they need not be of one moment.
struct PoolEvents {
  // Requests that got an error, whatever it was.
  std::atomic<uint64_t> failed_allocations{0};
  std::atomic<uint64_t> moved_bytes{0};
  std::atomic<uint64_t> host_waits{0};
  // How many small blocks the pool has served to caches' lanes itself, by size class, while it was recorded.
  std::array<std::atomic<uint64_t>, engine::kSizeClasses> served_small = {};

  static void Count(std::atomic<uint64_t>& event, uint64_t amount = 1) {
    event.fetch_add(amount, std::memory_order_relaxed);
  }
};

// A pool's spans as ranges of its NVTX domain, beside what a recording shows of them. PoolBasis has one. Any thread. It
// shares the domain, which the tool knows by the pool's name, with ranges that end after the pool. PoolRecorder calls
// it, on the thread whose span begins or ends.
class ToolSpans final : public recording::SpanListener {
 public:
  ToolSpans(const std::string& pool, nvtx::DomainNames& names, nvtx::OpenRanges& open)
      : domain_(std::make_shared<nvtx::Domain>(pool, names)), open_(open) {}

  const std::shared_ptr<const nvtx::Domain>& domain() const { return domain_; }
  // Null where no tool listens.
  const recording::SpanListener* listener() const { return domain_->heard() ? this : nullptr; }

  void Began(std::string_view text) const override { domain_->Push(text); }
  void Ended() const override { domain_->Pop(); }
  // RuntimeParts::EndHandle ends it, perhaps on another thread.
  void BeganHandle(uint64_t span, std::string_view text) const override { open_.Start(span, domain_, text); }

 private:
  const std::shared_ptr<const nvtx::Domain> domain_;
  nvtx::OpenRanges& open_;
};

// Pool owns one, and makes it before the other parts, which keep references to it. Everything but `life`, `events`,
// `recording_streams` and what is set once is constant, so it needs no lock.
struct PoolBasis {
  RuntimeParts& runtime;
  // Shared with the other pools of the device.
  const std::shared_ptr<DeviceState> device;
  const PoolConfiguration configuration;
  const std::string title;  // "pool gradients (vmm, device 1)"

  const Driver& driver = runtime.driver;

  // Whether a stream may take back at once what it freed. The factory sets it, before the other parts are made.
  engine::OwnReuse own_reuse = engine::OwnReuse::kAtOnce;

  // Both are set once, before another thread can find the pool.
  PoolHandle handle = 0;
  std::weak_ptr<BlockOwner> owner = {};

  // The pools of one home that the same thread made together with this one; null where it made this one alone. Set
  // once.
  std::shared_ptr<const PoolGroup> group = {};

  // The pool in a tool that listens to NVTX.
  const ToolSpans tool = ToolSpans(configuration.name, runtime.domain_names, runtime.ranges);
  // The recorder, as this pool sees it.
  recording::PoolRecorder record = recording::PoolRecorder(runtime.recorder, tool.listener());

  PoolLife life = {};
  // Where recordings find a symmetric pool on its other ranks: an epoch sets both. 0: it has no home now.
  std::atomic<uint64_t> home_id{0};
  std::atomic<uint64_t> channel_number{0};
  mutable PoolEvents events = {};
  RecordingStreams recording_streams = {};

  // Held during one collective or registering call: calls that register, sleep or agree with other ranks hold it. It is
  // no lock of data, so allocations and frees go on beside it. Comes before growth().
  mutable Mutex collective{LockRank::kCollective};
  mutable Mutex growth_mutex{LockRank::kGrowth};
  // Held during one change of the segments or peers, driver calls included: growth, release, grants, sleep and wake
  // never run beside each other. Guards no data that others read.
  Mutex& growth() const COMMPOOL_RETURN_CAPABILITY(kGrowthLock) { return growth_mutex; }

  const std::string& name() const { return configuration.name; }
  uint64_t deadline_ms() const { return configuration.deadline_ms; }
  // Of what this rank does within a call of all ranks: it must end before they give up this one, for which they wait.
  uint64_t own_deadline_ms() const { return configuration.symmetric() ? deadline_ms() / 2 : deadline_ms(); }

  // kFailedPrecondition where the pool sleeps. For calls that a closed pool may still get, such as trim.
  Status CheckAwake() const { return life.asleep() ? CheckOpen() : Status(); }
  // OK where the pool serves and its device works.
  Status CheckOpen() const {
    if (life.open() && !device->health().broken()) return Status();
    const Status open = life.CheckOpen(title);
    return open.ok() ? device->health().first_error() : open;
  }

  // kInvalidArgument for a default pool, which a program may neither close nor destroy: the library itself allocates
  // from it, at any time.
  Status CheckMayEnd() const {
    if (configuration.keeper == Keeper::kProgram) return Status();
    return InvalidArgument("the default pool of device ", device->device(), " is the library's, which neither closes ",
                           "nor destroys it: trim() gives its free memory back");
  }

  // For a pool that is out of memory: asks others to give memory back, and lists who holds what. Calls other pools,
  // which take their locks and call the driver: so call it without a lock.
  uint64_t ReleaseOtherPools(const std::string& budget = "") const {
    return runtime.others.ReleaseUnused(device->device(), owner.lock().get(), budget);
  }
  std::string DescribeHolders() const {
    return runtime.others.DescribeHolders(IsOfADevice(configuration.backing) ? device->device() : OtherPools::kHost);
  }

  recording::HomePlace place() const {
    return {home_id.load(std::memory_order_acquire), channel_number.load(std::memory_order_acquire)};
  }
  // From here on a recording knows the pool, or its new home.
  void RecordMade() const {
    if (!record.on()) return;
    const char* const mode = configuration.mode == Mode::kExpandable ? ", expandable" : ", fixed";
    record.Made(name(),
                std::string(Name(configuration.backing.kind)) + (configuration.symmetric() ? ", symmetric" : mode),
                device->device(), place(), configuration.budget);
  }

  // A call of the program, for a tool that listens to NVTX.
  nvtx::Range Shown(std::string_view call) const { return nvtx::Range(*tool.domain(), call); }

  // Adds the pool's title to a failure.
  Status Named(const Status& status) const { return status.under(title); }
  // Of a result, and behind it the call, where one is told.
  template <typename Value>
  Result<Value> Named(Result<Value> result, const char* call = nullptr) const {
    if (result.ok()) return result;
    return Named(call == nullptr ? result.status() : result.status().under(call));
  }
  // Makes the device's context current, or that of a stream's place. Until the guard ends, on this thread.
  ContextGuard MakeCurrent() const { return ContextGuard(driver, device->context()); }
  ContextGuard MakeCurrent(StreamKey stream) const {
    return ContextGuard(driver, runtime.devices.places().At(PlaceOf(stream)).context);
  }
  // Whether a stream of the same place captures: then nobody may ask how far the stream is.
  bool MayCapture(StreamKey stream) const { return runtime.devices.captures().OnDevice(PlaceOf(stream)); }
  // Whether the stream captures: an event would become part of its graph, and a question how far it is break it. Nobody
  // has to announce a capture, so the driver is asked each time. REQUIRES: IsReachable(stream).
  Result<bool> Captures(StreamKey stream) const {
    const ContextGuard current = MakeCurrent(stream);
    return runtime.devices.places().At(PlaceOf(stream)).IsCapturing(driver, StreamOfKey(stream));
  }
  FenceTable& fences() const { return runtime.devices.fences(); }
};

}  // namespace commpool::internal
