// Addresses of segments that are gone, kept for the backing's next segment of the same size: to reserve and free them
// takes the driver longer than all that a pool does itself in a growth. The segments own what is kept: who gives back
// all that it has leaves nothing behind.
//
// They come here once nothing is known of them any more: what was mapped there is unmapped and given back, as before
// cuMemAddressFree, after which the driver hands the same addresses to whoever asks next. So nobody who would be misled
// by what lies there later (a stale registration, a pointer in a graph) is worse off, and other pools are better off:
// kept addresses come back to their own backing alone. Any thread.
#ifndef COMMPOOL_SRC_BACKING_KEPT_ADDRESSES_H_
#define COMMPOOL_SRC_BACKING_KEPT_ADDRESSES_H_

#include <cstddef>
#include <cstdint>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/base/mutex.h"
#include "src/driver/handles.h"

namespace commpool::internal {

class KeptAddresses {
 public:
  // What is kept at most; what was kept longest goes first. Addresses are no memory, but a process has 128 TiB of them.
  static constexpr size_t kMostRanges = 8;
  static constexpr uint64_t kMostBytes = uint64_t{256} << 30;

  // All ranges have this alignment.
  KeptAddresses(const Driver& driver, uint64_t alignment) : driver_(driver), alignment_(alignment) {}
  KeptAddresses(const KeptAddresses&) = delete;
  KeptAddresses& operator=(const KeptAddresses&) = delete;

  // Addresses that were kept, else new ones. Where the driver has none left those of other sizes go back to it.
  Result<AddressRange> Take(uint64_t bytes);
  // REQUIRES: nothing is mapped there, nor registered. An empty range is none.
  Status Keep(AddressRange range);
  // The driver is called no more for what is kept.
  void Abandon();

 private:
  AddressRange Find(uint64_t bytes);
  AddressRange TakeAt(size_t place) COMMPOOL_REQUIRES(mutex_);
  // Whether there were some.
  bool FreeAll();

  const Driver& driver_;
  const uint64_t alignment_;
  Mutex mutex_{LockRank::kLeaf};
  ReservedVector<AddressRange> ranges_ COMMPOOL_GUARDED_BY(mutex_);  // in the order in which they came
  uint64_t bytes_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_KEPT_ADDRESSES_H_
