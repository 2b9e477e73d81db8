#include "src/pool/blocks/stranded_memory.h"

#include <algorithm>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/try.h"

namespace commpool::internal {

namespace {

// The host waits for streams that are passed no more once so much hangs on them, and this part of the pool.
constexpr uint64_t kMuch = 32 * kMiB;
constexpr uint64_t kMuchShare = 4;
// So many streams at once are streams that come and go: none of them is given another time to be passed again.
constexpr size_t kManyStreams = 16;
// For so long: the device's work may itself depend on what this host has yet to do.
constexpr uint64_t kMostMilliseconds = 100;

}  // namespace

Status StrandedMemory::FenceIfWanted(StreamKey stream) {
  {
    MutexLock lock(blocks_.mutex());
    if (wanted_.erase(stream) == 0) return Status();
    any_wanted_.store(!wanted_.empty(), std::memory_order_relaxed);
  }
  return blocks_.FenceFreed(stream);
}

uint64_t StrandedMemory::NoteWanted(StreamKey but) {
  uint64_t wanted_before = 0;
  uint64_t together = 0;
  ReservedSet<StreamKey> wanted;
  for (const auto& [stream, bytes] : blocks_.engine().StrandedBytes()) {
    if (stream == but) continue;
    wanted.insert(stream);
    together += bytes;
    if (wanted_.contains(stream)) wanted_before += bytes;
  }
  wanted_ = std::move(wanted);
  any_wanted_.store(!wanted_.empty(), std::memory_order_relaxed);
  return wanted_.size() < kManyStreams ? wanted_before : together;
}

bool StrandedMemory::Relieve(uint64_t bytes, StreamKey stream) {
  {
    MutexLock lock(blocks_.mutex());
    const uint64_t hopeless = NoteWanted(stream);
    if (hopeless == 0) return false;
    const uint64_t reserved = blocks_.engine().counters().reserved_bytes.current;
    const uint64_t much = std::max({bytes, kMuch, reserved / kMuchShare, patience_bytes_});
    if (hopeless < much || basis_.device->capturing()) return false;
    patience_bytes_ = 2 * hopeless;
  }
  PoolEvents::Count(basis_.events.host_waits);
  if (!blocks_.WaitForDevice(std::min(kMostMilliseconds, basis_.deadline_ms())).ok()) return false;
  MutexLock lock(blocks_.mutex());
  patience_bytes_ = 0;
  return true;
}

}  // namespace commpool::internal
