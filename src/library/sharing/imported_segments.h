// The segments of another process's pool that an import has mapped: each once, read and write, on one device.
//
// A sleep unmaps all and keeps their addresses. One thread at a time; every call needs the device's context current.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/library/driver/handles.h"

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

}  // namespace commpool::internal
