// The entries of a recording: what happened in the pools of one process.
//
// In a page each entry is its kind (one byte), the nanoseconds since the entry before it, and its fields. Texts stand
// for themselves once a chapter, in a Text, and are numbers elsewhere; 0 is no text. A chapter begins with all that
// lives (pools, segments, blocks, registrations, open spans), each with its age, so that a reader needs no earlier
// chapter.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "src/library/base/field_list.h"

namespace commpool::internal::recording {

// Count it up whenever an entry or the page changes. A reader refuses other versions.
inline constexpr uint32_t kVersion = 2;

// The process, in the first page of its file.
struct ProcessFacts {
  int64_t rank = -1;  // as the launcher says; -1: it says nothing
  int64_t ranks = -1;
  uint64_t process = 0;
  uint64_t wall_clock = 0;    // nanoseconds since 1970, at the moment `steady_clock`
  uint64_t steady_clock = 0;  // of the clock that all times of the file are of
  uint64_t limit_bytes = 0;   // of the file
  std::string host;
  std::string program;
  std::string boot;  // the number of this start of the host: processes with the same one share the steady clock

  using Fields = FieldList<&ProcessFacts::rank, &ProcessFacts::ranks, &ProcessFacts::process, &ProcessFacts::wall_clock,
                           &ProcessFacts::steady_clock, &ProcessFacts::limit_bytes, &ProcessFacts::host,
                           &ProcessFacts::program, &ProcessFacts::boot>;
};

struct Text {
  uint64_t number = 0;
  std::string text;

  using Fields = FieldList<&Text::number, &Text::text>;
};

struct PoolMade {
  uint64_t pool = 0;  // its handle
  uint64_t age = 0;   // ns, for entries at the start of a chapter; else 0
  uint64_t name = 0;  // a text
  uint64_t kind = 0;  // a text, such as "vmm, symmetric"
  int64_t device = 0;
  uint64_t home = 0;     // of a symmetric pool: the number of its home, the same on all ranks of it; else 0
  uint64_t channel = 0;  // of a symmetric pool: its number in that home, the same on all ranks
  uint64_t budget = 0;   // a text

  using Fields = FieldList<&PoolMade::pool, &PoolMade::age, &PoolMade::name, &PoolMade::kind, &PoolMade::device,
                           &PoolMade::home, &PoolMade::channel, &PoolMade::budget>;
};

struct PoolGone {
  uint64_t pool = 0;

  using Fields = FieldList<&PoolGone::pool>;
};

// In an expandable pool a segment is a range of mapped pages.
struct SegmentMade {
  uint64_t pool = 0;
  uint64_t age = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;

  using Fields = FieldList<&SegmentMade::pool, &SegmentMade::age, &SegmentMade::address, &SegmentMade::bytes>;
};

struct SegmentGone {
  uint64_t pool = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;  // may be a part of what was made

  using Fields = FieldList<&SegmentGone::pool, &SegmentGone::address, &SegmentGone::bytes>;
};

// A block that went to the program. Blocks that threads' caches keep are counted instead (SmallBlocks).
struct BlockServed {
  uint64_t pool = 0;
  uint64_t age = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t requested = 0;
  uint64_t stream = 0;  // the stream's key
  uint64_t stack = 0;   // a text, the innermost frame first, one a line

  using Fields = FieldList<&BlockServed::pool, &BlockServed::age, &BlockServed::address, &BlockServed::bytes,
                           &BlockServed::requested, &BlockServed::stream, &BlockServed::stack>;
};

// The program freed it. Other streams may still use its memory.
struct BlockFreed {
  uint64_t address = 0;

  using Fields = FieldList<&BlockFreed::address>;
};

// A pool's counters at the end of a time slice; written where one has changed.
struct PoolBytes {
  uint64_t pool = 0;
  uint64_t reserved = 0;
  uint64_t allocated = 0;
  uint64_t requested = 0;
  uint64_t cached = 0;   // in threads' caches
  uint64_t pending = 0;  // freed, and some stream may still use it
  // What all pools of the pool's budget reserve on the device, the most that they ever did, and their limit.
  uint64_t budget = 0;
  uint64_t budget_peak = 0;
  uint64_t budget_limit = 0;

  using Fields = FieldList<&PoolBytes::pool, &PoolBytes::reserved, &PoolBytes::allocated, &PoolBytes::requested,
                           &PoolBytes::cached, &PoolBytes::pending, &PoolBytes::budget, &PoolBytes::budget_peak,
                           &PoolBytes::budget_limit>;
  friend bool operator==(const PoolBytes&, const PoolBytes&) = default;
};

// The blocks of one size that threads' caches serve, in a time slice; written where they have changed.
struct SmallBlocks {
  uint64_t pool = 0;
  uint64_t bytes = 0;   // of each block
  uint64_t served = 0;  // in the slice, from caches or from the pool to a cache's lane
  uint64_t cached = 0;  // in the caches now

  using Fields = FieldList<&SmallBlocks::pool, &SmallBlocks::bytes, &SmallBlocks::served, &SmallBlocks::cached>;
};

enum class RegistrationEntry : uint8_t { kWindow, kBuffer };

struct Registered {
  uint64_t pool = 0;
  uint64_t age = 0;
  uint64_t address = 0;  // of the segment
  uint64_t bytes = 0;
  uint64_t communicator = 0;
  RegistrationEntry kind = RegistrationEntry::kWindow;
  uint64_t cost = 0;  // ns in NCCL's call

  using Fields = FieldList<&Registered::pool, &Registered::age, &Registered::address, &Registered::bytes,
                           &Registered::communicator, &Registered::kind, &Registered::cost>;
};

struct Deregistered {
  uint64_t pool = 0;
  uint64_t address = 0;
  uint64_t communicator = 0;

  using Fields = FieldList<&Deregistered::pool, &Deregistered::address, &Deregistered::communicator>;
};

enum class SpanKind : uint8_t { kAgreement, kSleep, kWake, kCapture, kScope, kSearch, kGrowth };

// Something that takes time. It may never end: then this is what the process did last.
struct SpanBegan {
  uint64_t span = 0;  // its number, from 1
  SpanKind kind = SpanKind::kAgreement;
  uint64_t age = 0;
  uint64_t pool = 0;  // 0: of no pool
  uint64_t text = 0;
  // Of an agreement: the number of its home and channel, and its own there, both the same on all ranks; of a growth or
  // a search `number` is the bytes that were asked for.
  uint64_t home = 0;
  uint64_t number = 0;

  using Fields = FieldList<&SpanBegan::span, &SpanBegan::kind, &SpanBegan::age, &SpanBegan::pool, &SpanBegan::text,
                           &SpanBegan::home, &SpanBegan::number>;
};

struct SpanEnded {
  uint64_t span = 0;
  uint64_t failure = 0;  // a text: why it failed; 0: it did not

  using Fields = FieldList<&SpanEnded::span, &SpanEnded::failure>;
};

// One call of a symmetric pool's sequence, which is the same on all ranks: src/library/engine/sequence_log.h.
struct Call {
  uint64_t pool = 0;
  uint64_t number = 0;  // 0 is the pool's first
  uint64_t text = 0;    // such as "allocate" or "reserve"
  uint64_t value = 0;   // bytes, or another number that ranks compare

  using Fields = FieldList<&Call::pool, &Call::number, &Call::text, &Call::value>;
};

// Entries that are missing here, because the disk was full or too slow.
struct Lost {
  uint64_t entries = 0;

  using Fields = FieldList<&Lost::entries>;
};

// All entries, by their kinds: the first one's is 1. Text and Lost come from the recorder itself, the others from
// pools.
using Event = std::variant<Text, PoolMade, PoolGone, SegmentMade, SegmentGone, BlockServed, BlockFreed, PoolBytes,
                           SmallBlocks, Registered, Deregistered, SpanBegan, SpanEnded, Call, Lost>;

template <typename Entry, typename... Entries>
constexpr uint8_t PlaceOf(const std::variant<Entries...>*) {
  uint8_t place = 0;
  static_cast<void>(((++place, std::is_same_v<Entry, Entries>) || ...));
  return place;
}
template <typename Entry>
inline constexpr uint8_t kKindOf = PlaceOf<Entry>(static_cast<const Event*>(nullptr));

}  // namespace commpool::internal::recording
