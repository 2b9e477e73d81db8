// What a communicator knows about its buffers: local registrations and windows. It is only metadata. One thread at a
// time.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "src/emulator/nccl/window_places.h"

namespace commpool::internal::emulated_nccl {

// One slot of the cache, rounded to pages. Registrations of the same range, or of a range inside, share it.
struct LocalRegistration {
  uintptr_t begin = 0;  // rounded down to a page
  uintptr_t end = 0;
  uintptr_t buffer = 0;  // as the first registration gave it
  size_t bytes = 0;
  int references = 0;
  std::set<int> imported_by;  // ranks to which a collective made the buffer known
};

// Owns the local registrations of one communicator, sorted by address. It follows NCCL 2.28.9,
// src/register/register.cc: a registration of the same range, or of a range inside, adds a reference to the slot; a
// partial overlap makes a new slot.
class RegistrationCache {
 public:
  struct Added {
    LocalRegistration* slot;
    bool created;
  };
  Added Add(const void* buffer, size_t bytes);
  // Returns the first slot that covers the range; null if there is none.
  LocalRegistration* Find(const void* buffer, size_t bytes) const;
  bool Holds(const LocalRegistration* slot) const;
  // Drops one reference. If it was the last, returns the slot, so that the caller cleans up. REQUIRES: Holds(slot).
  std::unique_ptr<LocalRegistration> Release(LocalRegistration* slot);

  const std::vector<std::unique_ptr<LocalRegistration>>& slots() const { return slots_; }
  void Clear() { slots_.clear(); }

 private:
  std::vector<std::unique_ptr<LocalRegistration>> slots_;
};

struct EmulatedWindow {
  uint64_t number = 0;  // the same on all ranks: the order of registration
  uintptr_t buffer = 0;
  size_t bytes = 0;
  int flags = 0;
  LocalRegistration* local = nullptr;  // NCCL also registers a window's buffer locally
  uintptr_t mapping = 0;               // the whole mapping is registered
  size_t mapping_bytes = 0;
  uint64_t physical = 0;
  bool on_device = true;
  unsigned long long multicast = 0;  // the multicast object that the memory is bound to; 0: none
  WindowPlaceInRange place = {};
  ncclWindow_t handle = nullptr;  // the address of its record

  // Returns where a byte of the buffer is in the communicator's range.
  uint64_t PlaceOf(uint64_t offset) const { return place.offset + (buffer - mapping) + offset; }
};

// Owns the windows and their records for one communicator. A window's handle is the address of its record, so a new
// window that takes an old record has the old handle.
class CommunicatorWindows {
 public:
  EmulatedWindow* Add(const EmulatedWindow& window);
  // Returns the window that holds the address; null if there is none.
  const EmulatedWindow* Find(const void* buffer) const;
  const EmulatedWindow* OfHandle(ncclWindow_t handle) const;
  const EmulatedWindow* FindPhysical(uint64_t physical) const;
  // Returns the window whose memory is mapped at an offset of the communicator's range; null if there is none.
  const EmulatedWindow* MappedAt(uint64_t offset) const;
  // Returns a record as a device reads it: it keeps the data of a window that ended. REQUIRES: some window had it.
  const EmulatedWindow& Record(uint32_t record) const { return records_.at(record); }
  // Keeps the record as it is. REQUIRES: the window is here.
  void Remove(const EmulatedWindow* window);

  const std::vector<EmulatedWindow*>& windows() const { return windows_; }
  void Clear() { windows_.clear(); }

 private:
  std::map<uint32_t, EmulatedWindow> records_;
  std::vector<EmulatedWindow*> windows_;
};

}  // namespace commpool::internal::emulated_nccl
