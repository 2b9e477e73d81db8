// Addresses of released segments, kept for the backing's next segment of the same size. To reserve and free addresses
// takes the driver longer than a pool needs for all its own work in a growth. The segments of a backing own the kept
// addresses together: when the last segment goes, all of them go.
//
// Addresses come here when nobody uses them any more: the memory is unmapped and released, as before cuMemAddressFree.
// The driver would give freed addresses to the next caller in the process; kept ones go only to their own backing. So a
// stale registration, or a stale pointer in a graph, does no more harm than with the driver, and never harms another
// pool. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/handles.h"

namespace commpool::internal {

class KeptAddresses {
 public:
  // The most that is kept; the oldest goes first. Addresses are no memory, but a process has only 128 TiB of them.
  static constexpr size_t kMostRanges = 8;
  static constexpr uint64_t kMostBytes = uint64_t{256} << 30;

  // All ranges have this alignment.
  KeptAddresses(const Driver& driver, uint64_t alignment) : driver_(driver), alignment_(alignment) {}

  // Returns kept addresses, else new ones. Where the driver has none left, it frees kept ones of other sizes first.
  Result<AddressRange> Take(uint64_t bytes);
  // Keeps the addresses of a range; does nothing for an empty one. REQUIRES: nothing is mapped or registered there.
  Status Keep(AddressRange range);
  // From now on it makes no driver call for kept addresses.
  void Abandon();

 private:
  AddressRange TakeAt(size_t place) COMMPOOL_REQUIRES(mutex_);
  std::vector<AddressRange> TakeAll();

  const Driver& driver_;
  const uint64_t alignment_;
  Mutex mutex_{LockRank::kLeaf};
  std::vector<AddressRange> ranges_ COMMPOOL_GUARDED_BY(mutex_);  // in order of arrival
  uint64_t bytes_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace commpool::internal
