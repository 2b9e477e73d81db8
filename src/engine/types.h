// The engine's words: plain values, no CUDA types, so that decisions can be tested and fuzzed at CPU speed.
#ifndef COMMPOOL_SRC_ENGINE_TYPES_H_
#define COMMPOOL_SRC_ENGINE_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "commpool/commpool.h"
#include "src/base/host_reserve.h"

namespace commpool::internal::engine {

using Address = uint64_t;

// A canonical stream (src/stream): two handles of one stream have one key. Opaque here, but for one bit.
using StreamKey = uint64_t;

// Nobody promised that the stream outlives its use: an event can be recorded on it only inside a call that passes it.
inline constexpr StreamKey kUnpromisedBit = 4;
constexpr bool IsUnpromised(StreamKey key) { return (key & kUnpromisedBit) != 0; }

// An event that the pool recorded behind a stream's work. Opaque here; 0 is none.
using Fence = uint64_t;
inline constexpr Fence kNoFence = 0;

// A point in an engine's history, counted in frees and fences. A host wait covers the frees before it began, no later
// ones: other threads may free while it lasts.
using Moment = uint64_t;

// Segments are numbered in the order in which they were added, and never renumbered: on a symmetric pool the same
// number means the same segment on every rank.
using SegmentIndex = uint32_t;

// Small and large blocks lie apart: a small one that lives long would keep a large block, or a page, from being whole.
enum class Space : uint8_t { kSmall, kLarge };

// Whether small blocks have segments of their own. Those are rounded up to size classes (size_classes.h), so that
// threads' caches can keep them.
enum class Spaces { kOne, kApart };

// Which of the free blocks that are large enough.
enum class Choice {
  kBestFit,        // the smallest, the first segment's and lowest of equals
  kFirstFit,       // the first segment's, the lowest
  kBesideItsLike,  // the best fit, cut from the end that cut_side.h says
};

// When free neighbours become one block.
enum class MergePolicy {
  kCompatible,  // where the same streams may still use both, or nobody uses one of them: it becomes the other's
                // streams'
  kAlways,      // uses are united: the free memory's shape depends on the calls alone
};

// Who owns free memory: the whole pool, or a graph that captured allocations.
using Part = uint64_t;
inline constexpr Part kCommonPart = 0;

struct SegmentRange {
  Address address = 0;
  uint64_t bytes = 0;
};

// Whom new memory is for. What counts as used by a stream merges with nothing that other streams may still use.
struct Claimant {
  Part part = kCommonPart;
  std::optional<StreamKey> stream = {};
};

// A stream that may still use a block. Without a fence the user must wait for all of the stream's work so far.
struct StreamUse {
  StreamKey stream = 0;
  Fence fence = kNoFence;

  friend bool operator==(const StreamUse&, const StreamUse&) = default;
};

// An allocation that a block of free memory serves. The stream must wait for every use before it touches the block
// (a device-side wait is enough); the list is empty where the block was last used on the same stream.
struct Served {
  Address address = 0;
  uint64_t bytes = 0;  // of the block: the request, rounded up
  ReservedVector<StreamUse> waits;
};

// Nothing free fits: add a segment of at least this many bytes and ask again.
struct Grow {
  uint64_t bytes = 0;
  Space space = Space::kLarge;
  Part part = kCommonPart;  // that asked, and gets what is added
};

using Outcome = std::variant<Served, Grow>;

// The result of a free. Streams other than the block's own that used it need a fence, recorded now.
struct Freed {
  uint64_t bytes = 0;
  uint64_t requested = 0;  // when the block was served
  ReservedVector<StreamKey> streams_to_fence;
};

// Sums over blocks, or a change of such sums.
struct Tally {
  int64_t requested = 0;  // bytes as asked for
  int64_t bytes = 0;      // rounded up
  int64_t blocks = 0;

  void operator+=(const Tally& other) {
    requested += other.requested;
    bytes += other.bytes;
    blocks += other.blocks;
  }
  void operator-=(const Tally& other) {
    requested -= other.requested;
    bytes -= other.bytes;
    blocks -= other.blocks;
  }
  // Keeps the lower one of each counter. It seldom stores: most calls find what they bring.
  void LowerTo(const Tally& other) {
    if (other.requested < requested) [[unlikely]]
      requested = other.requested;
    if (other.bytes < bytes) [[unlikely]]
      bytes = other.bytes;
    if (other.blocks < blocks) [[unlikely]]
      blocks = other.blocks;
  }
};

// What a thread's caches hold of the blocks that an engine takes for live: `least` since somebody last looked, and now.
struct Holding {
  Tally least;
  Tally now;

  void operator+=(const Holding& other) {
    least += other.least;
    now += other.now;
  }
};

// A pool's figures, of which an engine counts what it knows: of blocks and segments. The rest it leaves at 0.
using Counter = commpool_counter;
using Counters = commpool_statistics;

// One block of a snapshot.
struct BlockView {
  // Deferred: freed, and closed until its fences or the other ranks come. Unmapped: addresses without memory.
  enum class State { kLive, kFree, kDeferred, kUnmapped };
  SegmentIndex segment = 0;
  Address address = 0;
  uint64_t bytes = 0;
  uint64_t requested_bytes = 0;
  State state = State::kFree;
  StreamKey stream = 0;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_TYPES_H_
