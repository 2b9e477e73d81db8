// The entries of one page of a recording.
#ifndef COMMPOOL_SRC_REPORT_PAGE_ENTRIES_H_
#define COMMPOOL_SRC_REPORT_PAGE_ENTRIES_H_

#include <cstdint>
#include <string_view>

#include "src/library/base/fields.h"
#include "src/library/recording/entries.h"

namespace commpool::internal::report {

// What came before a chapter: nothing that is known, all, or something with a part that is missing.
enum class Before : uint8_t { kNothing, kWhole, kGap };

// 36 years of nanoseconds: sums of a few times never overflow.
inline constexpr int64_t kLastTime = INT64_MAX / 8;
constexpr int64_t TimeOf(uint64_t nanoseconds) {
  return nanoseconds < uint64_t{kLastTime} ? static_cast<int64_t>(nanoseconds) : kLastTime;
}

namespace detail {

// Returns whether the entry could be read.
template <typename Entry, typename Taker>
bool TakeEntry(FieldReader& reader, int64_t time, Taker& taker) {
  Entry entry;
  reader.Read(entry);
  if (!reader.ok()) return false;
  if constexpr (requires { taker.Take(time, entry); }) taker.Take(time, entry);
  return true;
}

template <typename Taker>
bool TakeEntryOf(recording::EntryKind kind, FieldReader& reader, int64_t time, Taker& taker) {
  using enum recording::EntryKind;
  switch (kind) {
    case kText:
      return TakeEntry<recording::Text>(reader, time, taker);
    case kPoolMade:
      return TakeEntry<recording::PoolMade>(reader, time, taker);
    case kPoolGone:
      return TakeEntry<recording::PoolGone>(reader, time, taker);
    case kSegmentMade:
      return TakeEntry<recording::SegmentMade>(reader, time, taker);
    case kSegmentGone:
      return TakeEntry<recording::SegmentGone>(reader, time, taker);
    case kBlockServed:
      return TakeEntry<recording::BlockServed>(reader, time, taker);
    case kBlockFreed:
      return TakeEntry<recording::BlockFreed>(reader, time, taker);
    case kPoolBytes:
      return TakeEntry<recording::PoolBytes>(reader, time, taker);
    case kSmallBlocks:
      return TakeEntry<recording::SmallBlocks>(reader, time, taker);
    case kRegistered:
      return TakeEntry<recording::Registered>(reader, time, taker);
    case kDeregistered:
      return TakeEntry<recording::Deregistered>(reader, time, taker);
    case kSpanBegan:
      return TakeEntry<recording::SpanBegan>(reader, time, taker);
    case kSpanEnded:
      return TakeEntry<recording::SpanEnded>(reader, time, taker);
    case kCall:
      return TakeEntry<recording::Call>(reader, time, taker);
    case kLost:
      return TakeEntry<recording::Lost>(reader, time, taker);
  }
  return false;
}

}  // namespace detail

// Calls `taker.Take(time, entry)` for each entry, where the taker has such a function. False where the bytes are no
// entries; those before were taken.
template <typename Taker>
bool TakeEntries(std::string_view bytes, int64_t time, Taker& taker) {
  FieldReader reader(bytes);
  while (!reader.at_end()) {
    recording::EntryKind kind{};
    uint64_t since = 0;
    reader.Read(kind);
    reader.Read(since);
    if (!reader.ok()) return false;
    time = TimeOf(static_cast<uint64_t>(time) + static_cast<uint64_t>(TimeOf(since)));
    if (!detail::TakeEntryOf(kind, reader, time, taker)) return false;
  }
  return reader.ok();
}

}  // namespace commpool::internal::report

#endif  // COMMPOOL_SRC_REPORT_PAGE_ENTRIES_H_
