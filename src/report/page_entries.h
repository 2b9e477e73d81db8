// The entries of one page of a recording.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

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

template <typename Taker, typename... Entries>
bool TakeEntryOf(uint8_t kind, FieldReader& reader, int64_t time, Taker& taker, const std::variant<Entries...>*) {
  return ((kind == recording::kKindOf<Entries> && TakeEntry<Entries>(reader, time, taker)) || ...);
}

}  // namespace detail

// Calls `taker.Take(time, entry)` for each entry, where the taker has such a function. False where the bytes are no
// entries; those before were taken.
template <typename Taker>
bool TakeEntries(std::string_view bytes, int64_t time, Taker& taker) {
  FieldReader reader(bytes);
  while (!reader.at_end()) {
    uint8_t kind = 0;
    uint64_t since = 0;
    reader.Read(kind);
    reader.Read(since);
    if (!reader.ok()) return false;
    time = TimeOf(static_cast<uint64_t>(time) + static_cast<uint64_t>(TimeOf(since)));
    if (!detail::TakeEntryOf(kind, reader, time, taker, static_cast<const recording::Event*>(nullptr))) return false;
  }
  return reader.ok();
}

}  // namespace commpool::internal::report
