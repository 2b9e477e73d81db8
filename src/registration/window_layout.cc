#include "src/registration/window_layout.h"

#include <algorithm>
#include <iterator>

#include "src/base/bytes.h"

namespace commpool::internal {

namespace {

constexpr uint32_t kRecordsOfPage = 64;

}  // namespace

uint64_t WindowLayout::LowestGap(uint64_t bytes) const {
  uint64_t from = 0;
  for (auto taken = taken_.begin(); taken != taken_.end() && taken->first < from + bytes; ++taken) {
    from = RoundUp(taken->second, granularity_);
  }
  return from;
}

uint32_t WindowLayout::NextRecord() const {
  return open_pages_.empty() ? pages_ * kRecordsOfPage
                             : *free_records_.lower_bound(open_pages_.back() * kRecordsOfPage);
}

void WindowLayout::TakeAddresses(uint64_t from, uint64_t to) {
  for (const auto& [offset, end] : std::map(taken_)) {
    if (offset >= to) break;
    if (end <= from) continue;
    // What counted as somebody else's: its other parts still do.
    taken_.erase(offset);
    if (offset < from) taken_.emplace(offset, from);
    if (end > to) taken_.emplace(to, end);
  }
  taken_.emplace(from, to);
}

void WindowLayout::OpenPages(uint32_t count) {
  for (; pages_ < count; ++pages_) {
    open_pages_.push_back(pages_);
    for (uint32_t record = 0; record < kRecordsOfPage; ++record) {
      free_records_.insert(pages_ * kRecordsOfPage + record);
    }
  }
}

void WindowLayout::TakeRecord(uint32_t record) {
  const uint32_t page = record / kRecordsOfPage;
  OpenPages(page + 1);
  free_records_.erase(record);
  const auto next = free_records_.lower_bound(page * kRecordsOfPage);
  if (next == free_records_.end() || *next / kRecordsOfPage != page) std::erase(open_pages_, page);
}

WindowSpot WindowLayout::Add(uint64_t bytes) {
  const WindowSpot spot = Next(bytes);
  TakeAddresses(spot.offset, spot.offset + bytes);
  TakeRecord(spot.record);
  return spot;
}

void WindowLayout::Learn(uint64_t bytes, const WindowSpot& spot) {
  // Gaps and records that NCCL passed over are not free.
  for (uint64_t gap = LowestGap(bytes); gap < spot.offset; gap = LowestGap(bytes)) {
    const auto next = taken_.lower_bound(gap);
    TakeAddresses(gap, next == taken_.end() ? spot.offset : std::min(next->first, spot.offset));
  }
  TakeAddresses(spot.offset, spot.offset + bytes);
  const uint32_t page = spot.record / kRecordsOfPage;
  OpenPages(page + 1);
  const bool was_free = free_records_.contains(spot.record);
  while (was_free && NextRecord() != spot.record) TakeRecord(NextRecord());
  TakeRecord(spot.record);
}

void WindowLayout::Remove(const WindowSpot& spot) {
  taken_.erase(spot.offset);
  const uint32_t page = spot.record / kRecordsOfPage;
  if (std::find(open_pages_.begin(), open_pages_.end(), page) == open_pages_.end()) open_pages_.push_back(page);
  free_records_.insert(spot.record);
}

}  // namespace commpool::internal
