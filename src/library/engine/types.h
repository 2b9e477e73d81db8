// The engine's vocabulary: plain values without CUDA types, so that decisions can be tested and fuzzed at CPU speed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "commpool/commpool.h"

namespace commpool::internal::engine {

using Address = uint64_t;

// One key for each stream (src/library/stream), even where it has two handles: in the top byte its place, the device of
// its context, and below that its name. The engine reads the place, and one bit of the name.
using StreamKey = uint64_t;

inline constexpr int kPlaceShift = 56;
constexpr int PlaceOf(StreamKey key) { return static_cast<int>(key >> kPlaceShift); }
// REQUIRES: 0 <= place < 256.
constexpr StreamKey AtPlace(int place, StreamKey name) { return StreamKey(place) << kPlaceShift | name; }
constexpr StreamKey WithoutPlace(StreamKey key) { return key & ((StreamKey{1} << kPlaceShift) - 1); }

// This bit is set where the stream may have ended without our notice: nobody promised that it outlives its use, or its
// thread's end ends it. Then only a call that passes the stream, or its thread, may record an event on it.
inline constexpr StreamKey kUnpromisedBit = 4;
constexpr bool IsUnpromised(StreamKey key) { return (key & kUnpromisedBit) != 0; }

// A block that no stream uses but those which are recorded for it. No stream has this key, and it has no place.
inline constexpr StreamKey kNoStream = 8;

// The name of an event that the pool recorded behind a stream's work, with the stream's place in the top byte. 0: none.
using Fence = uint64_t;
inline constexpr Fence kNoFence = 0;

// A point in an engine's history, counted in frees and fences. A wait of the host covers only the frees before it
// began, because other threads may free while it lasts.
using Moment = uint64_t;

// Segments are numbered in the order in which they were added, and keep their numbers: on a symmetric pool the same
// number means the same segment on every rank.
using SegmentIndex = uint32_t;

// Small and large blocks lie apart: a small block that lives long would split a large block, or keep a page.
enum class Space : uint8_t { kSmall, kLarge };

// Whether small blocks have segments of their own. Then they are rounded up to size classes (size_classes.h), so that
// threads' caches can keep them.
enum class Spaces { kOne, kApart };

// Which of several free blocks to take.
enum class Choice {
  kBestFit,        // the smallest; of equals in the first segment, the lowest
  kFirstFit,       // in the first segment, the lowest
  kBesideItsLike,  // the best fit, cut at the end where blocks of its size lie (CutSideFor)
};

// When a block that its own stream freed may serve that stream again.
enum class OwnReuse {
  kAtOnce,      // the stream orders its work
  kOncePassed,  // nobody's block before all work on it is over: the CPU writes there, and waits for no stream
};

// How much larger than a large request its segment may be.
enum class SegmentSizes {
  kRoomy,  // by a few MiB, or a small share of the pool, so that segments are few
  kExact,  // by no page
};

// When free neighbours become one block.
enum class MergePolicy {
  kCompatible,  // where both have the same uses, or one of them has none
  kSameUses,    // where both have the same uses: idle memory stays idle
  kAlways,      // always, and unites the uses: the shape of free memory depends on the calls alone
};

// Who owns memory: the whole pool (kCommonPart), or the graph of one capture.
using Part = uint64_t;
inline constexpr Part kCommonPart = 0;

// Why a block that the program has freed serves nobody. A block is closed while any of these is left: the last one's
// end opens it (Engine::EndReason).
enum class Reason : uint8_t {
  kFences = 1,     // the pool has not recorded a fence for every stream that used it
  kRanks = 2,      // other ranks of a symmetric pool have not freed it
  kGraph = 4,      // a graph that captured with it may be replayed
  kImporters = 8,  // other processes use it
};
using Reasons = uint8_t;
constexpr Reasons ReasonsOf(Reason reason) { return static_cast<Reasons>(reason); }

// What somebody notes of a live block. It ends with the block's free.
enum class Mark : uint8_t {
  kCopied = 1,  // the copy that a sleep made of it is true
  kShared = 2,  // another process may have it mapped: its memory stays as it is
  kTicket = 4,  // importers may hold it
};
using Marks = uint8_t;

// A fence that a free needs and that the pool has not recorded.
struct MissingFence {
  Address address = 0;
  StreamKey stream = 0;
  Moment freed_at = 0;  // names the free: the address may be served and freed again meanwhile
  friend bool operator==(const MissingFence&, const MissingFence&) = default;
};

// Such as "0x7f0000000200".
std::string Hexadecimal(Address address);

// A range of addresses: a segment, a block or a page.
struct SegmentRange {
  Address address = 0;
  uint64_t bytes = 0;
};

// Who gets new memory. With a stream the memory counts as used by it, and merges with nothing that other streams may
// still use.
struct Claimant {
  Part part = kCommonPart;
  std::optional<StreamKey> stream = {};
};

// A stream that may still use a block. Without a fence the next user must wait for all of the stream's work so far.
struct StreamUse {
  StreamKey stream = 0;
  Fence fence = kNoFence;

  friend bool operator==(const StreamUse&, const StreamUse&) = default;
};

// A block of free memory for an allocation. The stream must wait for every use before it touches the block (a wait on
// the device is enough). The list is empty where the same stream used the block last.
struct Served {
  Address address = 0;
  uint64_t bytes = 0;  // of the block: the request, rounded up
  std::vector<StreamUse> waits;
};

// No free block fits: add a segment of at least `bytes`, and ask again.
struct Grow {
  uint64_t bytes = 0;
  Space space = Space::kLarge;
};

using Outcome = std::variant<Served, Grow>;

// The result of a free. Streams, mostly other than the block's own, used it and need a fence now.
struct Freed {
  uint64_t requested = 0;  // when the block was served
  std::vector<MissingFence> missing;
};

// Sums over blocks, or a change of such sums, which may be negative.
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
  // Lowers each counter to the other's value where that is lower. It seldom is, so most calls store nothing.
  void LowerTo(const Tally& other) {
    if (other.requested < requested) [[unlikely]]
      requested = other.requested;
    if (other.bytes < bytes) [[unlikely]]
      bytes = other.bytes;
    if (other.blocks < blocks) [[unlikely]]
      blocks = other.blocks;
  }
};

// What a thread's caches hold of the blocks that are live for the engine: the least since the last look, and now.
struct Holding {
  Tally least;
  Tally now;

  void operator+=(const Holding& other) {
    least += other.least;
    now += other.now;
  }
};

// A pool's statistics. The engine counts what it knows, blocks and segments, and leaves the rest at 0.
using Counter = commpool_counter;
using Counters = commpool_statistics;
// One block of a snapshot, likewise: the stream is its key, and the pool and the device stay 0.
using BlockView = commpool_block;

}  // namespace commpool::internal::engine
