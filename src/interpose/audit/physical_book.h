// Which physical memory of cuMemCreate still lives: it does while a handle or a mapping of it is left. Makes no call.
// Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace commpool::audit {

using PhysicalId = uint64_t;  // never used twice; 0 is none
constexpr PhysicalId kNoPhysical = 0;

struct MappedPart {
  uint64_t address = 0;
  uint64_t bytes = 0;
  PhysicalId physical = kNoPhysical;
};

class PhysicalBook {
 public:
  // Memory that a new handle names.
  PhysicalId Make(uint64_t handle);
  // One more use of the handle, for memory that is mapped at an address.
  void Retain(uint64_t handle, uint64_t address);
  void Map(uint64_t address, uint64_t bytes, uint64_t handle);

  // What ends is taken before the driver's call, because another thread may get the same number at once. It goes back
  // where the call failed; else `Drop...` tells whether the memory is gone.
  PhysicalId TakeHandle(uint64_t handle);
  void PutBackHandle(uint64_t handle, PhysicalId physical);
  bool DropHandle(PhysicalId physical);
  std::vector<MappedPart> TakeMapped(uint64_t address, uint64_t bytes);
  void PutBackMapped(const std::vector<MappedPart>& parts);
  bool DropMapped(PhysicalId physical);

 private:
  struct Uses {
    uint64_t handles = 0;
    uint64_t mappings = 0;
  };
  struct Named {
    PhysicalId physical = kNoPhysical;
    uint64_t uses = 0;
  };

  bool IsGone(PhysicalId physical);

  std::mutex mutex_;  // of all that is below
  PhysicalId last_ = kNoPhysical;
  std::unordered_map<PhysicalId, Uses> uses_;
  std::unordered_map<uint64_t, Named> handles_;
  std::map<uint64_t, MappedPart> mapped_;
};

}  // namespace commpool::audit
