// Where a rank has mapped the memory of a symmetric pool's other ranks: for each segment that of all ranks, its own
// included, side by side at one stride.
//
// A sleep unmaps all and keeps the addresses. One thread at a time changes it, with the device's context current, and
// nobody uses what is unmapped; any thread may ask meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/handles.h"
#include "src/library/engine/types.h"
#include "src/library/sharing/imported_segments.h"

namespace commpool::internal {

// An address of this rank's on each rank: rank r's is `first` + r * `stride_bytes`.
struct PeerPlaces {
  CUdeviceptr first = 0;
  uint64_t stride_bytes = 0;
  int ranks = 0;
};

class PeerMappings {
 public:
  PeerMappings(const Driver& driver, int device) : driver_(driver), device_(device) {}
  // Calls no driver: what is still mapped stays so until the process ends, like the memory of a pool without a close.
  ~PeerMappings();

  // Maps a segment's memory of all ranks, by rank: at the addresses of its last mapping, where there was one.
  Status Map(const SegmentName& own, const std::vector<PhysicalMemory>& ranks);
  // Unmaps a segment, or all, and keeps the addresses; OK where it is not there. UnmapAll goes on after a failure, and
  // returns the first.
  Status Unmap(uint64_t segment);
  Status UnmapAll();
  // Unmaps a segment and gives its addresses back; OK where it is not there.
  Status Forget(uint64_t segment);

  // The addresses of all segments, mapped or not.
  std::vector<engine::SegmentRange> Reserved() const;
  bool IsMapped(uint64_t segment) const;
  // Nothing for an address in no segment that is mapped.
  std::optional<PeerPlaces> Find(CUdeviceptr own) const;

 private:
  struct Row {
    SegmentName own;
    AddressRange range = {};
    std::vector<Mapping> ranks = {};  // the changing thread's
    bool mapped = false;              // guarded by the lock
  };

  Row* FindRow(uint64_t segment);
  Status UnmapRow(Row& row);
  Result<std::vector<Mapping>> MapAll(const Row& row, const std::vector<PhysicalMemory>& ranks) const;

  const Driver& driver_;
  const int device_;
  mutable Mutex mutex_{LockRank::kLeaf};
  // By number. The thread that changes them uses rows without the lock: nobody else adds or removes one.
  std::map<uint64_t, Row> rows_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal
