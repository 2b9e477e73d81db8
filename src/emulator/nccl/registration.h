// What a communicator knows about its buffers: local registrations and windows. Metadata only; one thread at a time.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_REGISTRATION_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_REGISTRATION_H_

#include <nccl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "src/emulator/nccl/window_places.h"

namespace commpool::internal::emulated_nccl {

// One slot of the cache: page-rounded, shared by registrations of the same or a contained range.
struct LocalRegistration {
  uintptr_t begin = 0;  // page-rounded
  uintptr_t end = 0;
  uintptr_t buffer = 0;  // as registered first
  size_t bytes = 0;
  int references = 0;
  std::set<int> imported_by;  // ranks that a collective has made the buffer known to
};

// NCCL 2.28.9, src/register/register.cc: slots sorted by address; the same or a contained range takes a
// further reference on the slot that is there; a partial overlap makes a second slot.
class RegistrationCache {
 public:
  struct Added {
    LocalRegistration* slot;
    bool created;
  };
  Added Add(const void* buffer, size_t bytes);
  // The first slot that covers the range; null where none does.
  LocalRegistration* Find(const void* buffer, size_t bytes) const;
  bool Holds(const LocalRegistration* slot) const;
  // Gives one reference back; the slot where it was the last, for the caller to clean up. REQUIRES: Holds(slot).
  std::unique_ptr<LocalRegistration> Release(LocalRegistration* slot);

  const std::vector<std::unique_ptr<LocalRegistration>>& slots() const { return slots_; }
  void Clear() { slots_.clear(); }

 private:
  std::vector<std::unique_ptr<LocalRegistration>> slots_;
};

struct EmulatedWindow {
  uint64_t number = 0;  // equal on all ranks: the order of registration
  uintptr_t buffer = 0;
  size_t bytes = 0;
  int flags = 0;
  LocalRegistration* local = nullptr;  // NCCL registers a window's buffer locally, too
  uintptr_t mapping = 0;               // the whole mapping is what is registered
  size_t mapping_bytes = 0;
  uint64_t physical = 0;
  bool on_device = true;
  unsigned long long multicast = 0;  // the multicast object that its memory is bound to; 0 for none
  WindowPlaceInRange place = {};

  // Where a byte of the buffer lies in the communicator's range.
  uint64_t PlaceOf(uint64_t offset) const { return place.offset + (buffer - mapping) + offset; }
};

// A window's address is that of its record, so a window that comes back to a record has the handle of the one before.
class CommunicatorWindows {
 public:
  EmulatedWindow* Add(const EmulatedWindow& window);
  // The window that holds the address; null where none does.
  const EmulatedWindow* Find(const void* buffer) const;
  const EmulatedWindow* FindPhysical(uint64_t physical) const;
  bool Holds(const EmulatedWindow* window) const;
  // The window whose memory is mapped at an offset of the communicator's range; null where there is none.
  const EmulatedWindow* MappedAt(uint64_t offset) const;
  // As a device reads it: nothing clears the record of a window that ended. REQUIRES: some window had it.
  const EmulatedWindow& Record(uint32_t record) const { return records_.at(record); }
  // Its record stays as it is. REQUIRES: Holds(window).
  void Remove(const EmulatedWindow* window);

  const std::vector<EmulatedWindow*>& windows() const { return windows_; }
  void Clear() { windows_.clear(); }

 private:
  std::map<uint32_t, EmulatedWindow> records_;
  std::vector<EmulatedWindow*> windows_;
};

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_REGISTRATION_H_
