// StrandedMemory: which streams are wanted, and the waits for devices that replace a call which never comes.
#include "src/library/pool/blocks/stranded_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/library/base/bytes.h"

namespace commpool::internal {

namespace {

// Waits of the host begin once streams that no call passes any more have freed this much, and a certain share of the
// pool.
constexpr uint64_t kMuch = 32 * kMiB;
constexpr uint64_t kMuchShare = 4;
// A program with more streams than this seems to make and destroy them all the time. Then the pool does not first wait
// for calls that pass them.
constexpr size_t kManyStreams = 16;
// The wait has a limit, because the device's work may depend on something that this thread does later.
constexpr std::chrono::milliseconds kLongestWait{100};

}  // namespace

// One call is enough for each stream, so the stream is wanted no more.
Status StrandedMemory::Passed(StreamKey stream) {
  {
    MutexLock lock(blocks_.mutex());
    if (wanted_.erase(stream) == 0) return Status();
    any_wanted_.store(!wanted_.empty(), std::memory_order_relaxed);
  }
  return blocks_.FenceFreed(stream);
}

// The list is made anew at each look: streams whose memory was fenced or taken are wanted no more.
uint64_t StrandedMemory::NoteWanted(StreamKey but) {
  std::map<StreamKey, uint64_t> stranded = blocks_.engine().StrandedBytes();
  // The asking stream may take its own memory at once.
  stranded.erase(but);
  const bool many = stranded.size() >= kManyStreams;
  uint64_t not_passed = 0;
  std::set<StreamKey> wanted;
  for (const auto& [stream, bytes] : stranded) {
    if (many || wanted_.contains(stream)) not_passed += bytes;
    wanted.insert(stream);
  }
  wanted_ = std::move(wanted);
  any_wanted_.store(!wanted_.empty(), std::memory_order_relaxed);
  return not_passed;
}

// First only looks, under the pool's lock. Whether it waits depends on how much memory that would free: a wait for
// little would cost more than growth.
bool StrandedMemory::MakeUsable(uint64_t bytes, StreamKey stream, uint64_t times_before) {
  // This thread's own per-thread default streams, at whatever places it uses them: no call need pass them.
  std::vector<StreamKey> reachable;
  {
    MutexLock lock(blocks_.mutex());
    for (const auto& [other, stranded] : blocks_.engine().StrandedBytes()) {
      if (other != stream && IsReachable(other)) reachable.push_back(other);
    }
  }
  // Without an event its memory waits for a later call, or for the device.
  for (const StreamKey other : reachable) static_cast<void>(blocks_.FenceFreed(other));
  {
    MutexLock lock(blocks_.mutex());
    const engine::Engine& engine = blocks_.engine();
    // An upper bound: the engine does not count apart what only a wait for the device opens.
    const bool closed = engine.AnyClosedLacksFenceOf(MayHaveDied);
    const uint64_t not_passed = NoteWanted(stream) + (closed ? engine.heap().pending_bytes() : 0);
    const uint64_t reserved = engine.counters().reserved_bytes.current;
    const bool much = not_passed >= std::max({bytes, kMuch, reserved / kMuchShare});
    if (not_passed == 0 || basis_.device->capturing() || !(waits_.load() || much))
      return times_freed_.load() != times_before;
  }
  // While one thread waits the others do not grow: their work would lengthen the wait, and their memory strand as well.
  MutexLock growth(basis_.growth());
  if (times_freed_.load() != times_before) return true;
  // A wait of an earlier call is under way: look at it, and do not wait a second time.
  if (waits_.load()) return HasPassed(std::chrono::milliseconds(0));
  if (!BeginWait()) return false;
  PoolEvents::Count(basis_.events.host_waits);
  return HasPassed(kLongestWait);
}

void StrandedMemory::Look() {
  MutexLock growth(basis_.growth());
  LookFor(kLongestWait);
}

void StrandedMemory::LookAtOnce() {
  if (!basis_.growth().TryLock()) return;
  LookFor(std::chrono::milliseconds(0));
  basis_.growth().Unlock();
}

void StrandedMemory::LookFor(std::chrono::milliseconds limit) {
  const bool waits = waits_.load() && !HasPassed(std::chrono::milliseconds(0));
  {
    MutexLock lock(blocks_.mutex());
    const engine::Engine& engine = blocks_.engine();
    const std::set<StreamKey> streams = engine.StreamsOf();
    const bool lacks = engine.AnyClosedLacksFenceOf(MayHaveDied);
    const bool crowded = ListsOf(engine) >= next_look_.exchange(ListsOf(engine) + kVeryMany);
    if (waits || (!crowded && !lacks && std::ranges::none_of(streams, MayHaveDied))) return;
  }
  if (BeginWait()) HasPassed(limit);
}

bool StrandedMemory::BeginWait() {
  // Before the waits begin: they cover what was submitted by now.
  uses_ = blocks_.NoteUses();
  if (!basis_.runtime.devices.CheckNotCapturing(uses_.places).ok()) return false;
  std::map<int, std::future<CUresult>> waits;
  for (const int place : uses_.places) {
    Result<std::future<CUresult>> begun =
        BeginToSynchronise(basis_.driver, basis_.runtime.devices.places().At(place).context);
    if (!begun.ok()) return false;  // the host has no thread
    waits.emplace(place, std::move(*begun));
  }
  under_way_ = std::move(waits);
  waits_.store(true);
  return true;
}

// Called again until all waits have ended. Then it forgets the uses that were noted when they began, and no later ones.
bool StrandedMemory::HasPassed(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (const auto& [place, wait] : under_way_) {
    if (wait.wait_until(end) != std::future_status::ready) return false;
  }
  bool passed = true;
  for (auto& [place, wait] : under_way_) {
    DeviceHealth& health = basis_.runtime.devices.places().At(place).health;
    passed = health.Check(basis_.driver, wait.get(), {.call = "cuCtxSynchronize", .device = place}).ok() && passed;
  }
  under_way_.clear();
  waits_.store(false);
  if (!passed) return false;
  blocks_.ForgetUses(uses_);
  ++times_freed_;
  return true;
}

}  // namespace commpool::internal
