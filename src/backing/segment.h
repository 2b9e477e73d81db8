// One contiguous range of memory, as a backing makes it: a Segment frees itself.
//
// Any thread may use one, one at a time. It takes no lock, and its callers hold none that forbids driver calls (rule
// 1). Errors name the call, the device, the bytes and the likely cause.
#ifndef COMMPOOL_SRC_BACKING_SEGMENT_H_
#define COMMPOOL_SRC_BACKING_SEGMENT_H_

#include <cuda.h>

#include <cstdint>
#include <span>

#include "commpool/status.h"
#include "src/driver/handles.h"

namespace commpool::internal {

class Backing;

// A segment's physical memory, which can go and come back under its addresses. Each call does what is left to do, and
// nobody uses the memory: the pool has quiesced the device and deregistered the range before.
class Sleeper {
 public:
  virtual ~Sleeper() = default;

  // Out of its addresses; it is the segment's still. Where that fails it is mapped as before.
  virtual Status UnmapAll() = 0;
  // Gives back what is mapped nowhere.
  virtual void ReleaseUnmapped() = 0;
  // To its addresses, for the device and its peers. Where it fails nothing is mapped. REQUIRES: nothing is missing.
  virtual Status MapAll() = 0;
  // Has the backing make what was given back, and maps it likewise: from an address on, `at_least` bytes where there
  // are so many. Returns where the rest begins; the end of the range: there is none. Where it fails some of it may be
  // there, which UnmapAll takes out. REQUIRES: the device's context is current.
  virtual Result<CUdeviceptr> WakeFrom(CUdeviceptr from, uint64_t at_least, Backing& backing) = 0;
  virtual uint64_t missing_bytes() const = 0;
};

// One contiguous range of memory, granted to its own device. Frees itself without waiting for anybody: the pool has
// quiesced the device and deregistered the range before.
class Segment {
 public:
  virtual ~Segment() = default;

  virtual CUdeviceptr address() const = 0;
  virtual uint64_t bytes() const = 0;  // of the range: the request, rounded up to the granularity

  // The physical memory, which exists apart from the addresses that it is mapped to. Null where the backing has no
  // single handle of its own for it, and once it was freed.
  virtual const PhysicalMemory* memory() const { return nullptr; }

  // Null where memory and addresses cannot be parted.
  virtual Sleeper* sleeper() { return nullptr; }

  // Lets other devices of this process read and write the range, all of them in one call where the driver takes it so.
  // After a failure any of them may have access. Revoke takes it back.
  virtual Status Grant(std::span<const int> peers) = 0;
  Status Grant(int peer) { return Grant(std::span<const int>(&peer, 1)); }
  virtual Status Revoke(int peer) = 0;

  // The addresses stay reserved when the memory goes. Does nothing where the backing's own free ends both.
  virtual void KeepAddresses() {}
  // Frees now and says what failed; the destructor does the same and logs. At most one of them calls the driver.
  virtual Status Release() = 0;
  // After a sticky context error, or at exit: the segment calls the driver no more, and its memory ends with the
  // process.
  virtual void Abandon() = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_SEGMENT_H_
