// Memory of other processes that this one has mapped: an import's segments, and a symmetric pool's peers.
//
// A sleep unmaps all and keeps the addresses.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/handles.h"
#include "src/library/engine/types.h"

namespace commpool::internal {

// The numbers are those of the C ABI.
enum class ImportAddresses : int { kAny = 0, kSame = 1 };

// A segment as its owner names it.
struct SegmentName {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t number = 0;  // never comes back, unlike its address

  bool Holds(uint64_t place) const { return place >= address && place - address < bytes; }
};

// The segments of another process's pool that an import has mapped: each once, read and write, on one device. One
// thread at a time; every call needs the device's context current.
class ImportedSegments {
 public:
  ImportedSegments(const Driver& driver, int device, ImportAddresses addresses)
      : driver_(driver), device_(device), addresses_(addresses) {}

  // Maps memory of another process; again, at the same place, where it was mapped before a sleep.
  Status Map(const SegmentName& name, PhysicalMemory memory);
  // Where an address of the owner's is here; nothing where that segment is not mapped, or does not hold all the bytes.
  std::optional<CUdeviceptr> Find(uint64_t segment, uint64_t address, uint64_t bytes = 1) const;
  // The number of the newest segment that was mapped for an address of the owner's.
  std::optional<uint64_t> NumberOf(uint64_t address) const;

  // Unmaps all and lets the memory go. REQUIRES: nobody uses it.
  Status UnmapAll();
  // What UnmapAll unmapped and Map has not mapped again.
  std::vector<SegmentName> Unmapped() const;
  // Forgets a segment that its owner has given back while it was unmapped.
  void Forget(uint64_t segment) { mapped_.erase(segment); }

 private:
  struct Mapped {
    SegmentName name;
    AddressRange range = {};
    PhysicalMemory memory = {};
    Mapping mapping = {};
  };
  Result<AddressRange> Reserve(const SegmentName& name) const;

  const Driver& driver_;
  const int device_;
  const ImportAddresses addresses_;
  std::map<uint64_t, Mapped> mapped_;  // by number
};

// An address of this rank's on each rank: rank r's is `first` + r * `stride_bytes`.
struct PeerPlaces {
  CUdeviceptr first = 0;
  uint64_t stride_bytes = 0;
  int ranks = 0;
};

// Where a rank has mapped the memory of a symmetric pool's other ranks: for each segment that of all ranks, its own
// included, side by side at one stride. One thread at a time changes it, with the device's context current, and nobody
// uses what is unmapped; any thread may ask meanwhile.
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
