#include "src/library/backing/kept_addresses.h"

#include <utility>

#include "src/library/base/try.h"

namespace commpool::internal {

AddressRange KeptAddresses::TakeAt(size_t place) {
  AddressRange taken = std::move(ranges_[place]);
  ranges_.erase(ranges_.begin() + place);
  bytes_ -= taken.bytes();
  return taken;
}

Result<AddressRange> KeptAddresses::Take(uint64_t bytes) {
  {
    MutexLock lock(mutex_);
    for (size_t place = ranges_.size(); place-- > 0;) {
      if (ranges_[place].bytes() == bytes) return TakeAt(place);
    }
  }
  Result<AddressRange> reserved = AddressRange::Reserve(driver_, bytes, alignment_);
  if (reserved.ok() || TakeAll().empty()) return reserved;  // without the lock it frees what it took
  return AddressRange::Reserve(driver_, bytes, alignment_);
}

Status KeptAddresses::Keep(AddressRange range) {
  if (!range.valid() || range.bytes() > kMostBytes) return range.Release();
  std::vector<AddressRange> over;  // freed without the lock
  {
    MutexLock lock(mutex_);
    while (ranges_.size() == kMostRanges || bytes_ + range.bytes() > kMostBytes) over.push_back(TakeAt(0));
    bytes_ += range.bytes();
    ranges_.push_back(std::move(range));
  }
  return FirstFailureOf(over, [](AddressRange& gone) { return gone.Release(); });
}

std::vector<AddressRange> KeptAddresses::TakeAll() {
  MutexLock lock(mutex_);
  bytes_ = 0;
  return std::exchange(ranges_, {});
}

void KeptAddresses::Abandon() {
  for (AddressRange& range : TakeAll()) range.Abandon();
}

}  // namespace commpool::internal
