#include "src/backing/kept_addresses.h"

#include <algorithm>
#include <utility>

namespace commpool::internal {

AddressRange KeptAddresses::Find(uint64_t bytes) {
  MutexLock lock(mutex_);
  for (size_t place = count_; place-- > 0;) {
    if (ranges_[place].bytes() != bytes) continue;
    AddressRange found = std::move(ranges_[place]);
    std::move(ranges_.begin() + place + 1, ranges_.begin() + count_, ranges_.begin() + place);
    --count_;
    bytes_ -= bytes;
    return found;
  }
  return AddressRange();
}

AddressRange KeptAddresses::TakeFirst() {
  AddressRange first = std::move(ranges_.front());
  std::move(ranges_.begin() + 1, ranges_.begin() + count_, ranges_.begin());
  --count_;
  bytes_ -= first.bytes();
  return first;
}

void KeptAddresses::SegmentBegins() {
  MutexLock lock(mutex_);
  ++segments_;
}

void KeptAddresses::SegmentEnded() {
  {
    MutexLock lock(mutex_);
    if (--segments_ > 0) return;
  }
  FreeAll();
}

Result<AddressRange> KeptAddresses::Take(uint64_t bytes) {
  AddressRange kept = Find(bytes);
  if (kept.valid()) return kept;
  Result<AddressRange> reserved = AddressRange::Reserve(driver_, bytes, alignment_);
  if (reserved.ok() || !FreeAll()) return reserved;
  return AddressRange::Reserve(driver_, bytes, alignment_);
}

Status KeptAddresses::Keep(AddressRange range) {
  if (!range.valid()) return Status();
  Ranges over;  // freed without the lock
  size_t over_count = 0;
  {
    MutexLock lock(mutex_);
    if (ended_ || range.bytes() > kMostBytes) {
      over[over_count++] = std::move(range);
    } else {
      while (count_ == kMostRanges || bytes_ + range.bytes() > kMostBytes) over[over_count++] = TakeFirst();
      bytes_ += range.bytes();
      ranges_[count_++] = std::move(range);
    }
  }
  Status first;
  for (size_t place = 0; place < over_count; ++place) {
    Status status = over[place].Release();
    if (first.ok()) first = std::move(status);
  }
  return first;
}

bool KeptAddresses::FreeAll() {
  Ranges all;  // freed at the end of this function
  MutexLock lock(mutex_);
  std::swap(all, ranges_);
  bytes_ = 0;
  return std::exchange(count_, 0) > 0;
}

void KeptAddresses::End() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
  }
  FreeAll();
}

void KeptAddresses::Abandon() {
  MutexLock lock(mutex_);
  for (AddressRange& range : ranges_) range.Abandon();
  count_ = 0;
  bytes_ = 0;
}

}  // namespace commpool::internal
