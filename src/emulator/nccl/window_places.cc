#include "src/emulator/nccl/window_places.h"

#include <bit>

namespace commpool::internal::emulated_nccl {

namespace {

constexpr uint32_t kRecordsOfPage = 64;

}  // namespace

std::optional<uint64_t> WindowPlaces::LowestGap(uint64_t bytes) const {
  uint64_t gap = 0;
  for (const auto& [offset, end] : taken_) {
    if (gap + bytes <= offset) return gap;
    gap = (end + granularity_ - 1) / granularity_ * granularity_;
  }
  if (gap + bytes > range_bytes_) return std::nullopt;
  return gap;
}

std::optional<WindowPlaceInRange> WindowPlaces::Take(uint64_t bytes) {
  const std::optional<uint64_t> offset = LowestGap(bytes);
  if (!offset) return std::nullopt;
  taken_.emplace(*offset, *offset + bytes);
  return WindowPlaceInRange{*offset, bytes, TakeRecord()};
}

void WindowPlaces::Free(const WindowPlaceInRange& place) {
  taken_.erase(place.offset);
  FreeRecord(place.record);
}

uint32_t WindowPlaces::TakeRecord() {
  if (pages_with_free_.empty()) {
    pages_with_free_.push_back(static_cast<uint32_t>(free_records_.size()));
    free_records_.push_back(~uint64_t{0});
  }
  const uint32_t page = pages_with_free_.back();
  uint64_t& free = free_records_[page];
  const auto record = static_cast<uint32_t>(std::countr_zero(free));
  free &= free - 1;
  if (free == 0) pages_with_free_.pop_back();
  return page * kRecordsOfPage + record;
}

void WindowPlaces::FreeRecord(uint32_t record) {
  const uint32_t page = record / kRecordsOfPage;
  uint64_t& free = free_records_[page];
  if (free == 0) pages_with_free_.push_back(page);
  free |= uint64_t{1} << record % kRecordsOfPage;
}

}  // namespace commpool::internal::emulated_nccl
