#include "src/emulator/nccl/window_records.h"

#include <cstring>

namespace commpool::internal::emulated_nccl {

namespace {

constexpr size_t kRecordsOfPage = 64;
constexpr size_t kAlignment = 512;  // that of CUDA's pools; a page is a multiple of it

}  // namespace

ncclWindow_t WindowRecords::Write(uint32_t number, const WindowRecord& record) {
  while (pages_.size() <= number / kRecordsOfPage) {
    const size_t bytes = kRecordsOfPage * record_bytes_;
    pages_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes)));
    std::memset(pages_.back().get(), 0, bytes);
  }
  std::byte* const place = pages_[number / kRecordsOfPage].get() + number % kRecordsOfPage * record_bytes_;
  std::memcpy(place, &record, sizeof record);
  return reinterpret_cast<ncclWindow_t>(place);
}

}  // namespace commpool::internal::emulated_nccl
