// Where segments come from: each backing is one file behind this seam, and passes tests/backing/conformance.h.
//
// A Backing makes Segments; a Segment frees itself. Any thread may use them, one at a time for each object. Neither
// takes a lock, and callers hold none that forbids driver calls (rule 1). Errors name the call, the device, the bytes
// and the likely cause.
#ifndef COMMPOOL_SRC_BACKING_BACKING_H_
#define COMMPOOL_SRC_BACKING_BACKING_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "commpool/status.h"
#include "src/backing/device_context.h"
#include "src/base/host_reserve.h"
#include "src/driver/handles.h"
#include "src/driver/loader.h"

namespace commpool::internal {

// Where a segment's physical memory is, and for whom it is made.
struct Placement {
  enum class Kind { kDevice, kHostNuma };
  Kind kind = Kind::kDevice;
  int device = 0;      // whose allocations it serves; its own memory where kind is kDevice
  int numa_node = -1;  // of kHostNuma
};

// Whether something can be done and, where not, why: for refusals and for `commpool info`.
struct Capability {
  bool available = true;
  std::string reason;  // empty where available

  static Capability Yes() { return {}; }
  static Capability No(std::string why) { return {false, std::move(why)}; }
};

class PageSource;

// A segment's physical memory, which can go and come back under its addresses. Each call does what is left to do, and
// nobody uses the memory: the pool has quiesced the device and deregistered the range before.
class Sleeper {
 public:
  virtual ~Sleeper() = default;

  // Out of its addresses; it is the segment's still. Where that fails it is mapped as before.
  virtual Status UnmapAll() = 0;
  // Gives back what is mapped nowhere.
  virtual void ReleaseUnmapped() = 0;
  // To its addresses, for the device and these peers. Where it fails nothing is mapped. REQUIRES: nothing is missing.
  virtual Status MapAll(const ReservedSet<int>& peers) = 0;
  // Makes what was given back, and maps it likewise: from an address on, `at_least` bytes where there are so many.
  // Returns where the rest begins; the end of the range: there is none. Where it fails some of it may be there, which
  // UnmapAll takes out. REQUIRES: the device's context is current.
  virtual Result<CUdeviceptr> WakeFrom(CUdeviceptr from, uint64_t at_least, PageSource& source,
                                       const ReservedSet<int>& peers) = 0;
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

// Makes the physical memory that an expandable pool maps where it needs it. Any thread.
class PageSource {
 public:
  virtual ~PageSource() = default;

  virtual const Driver& driver() const = 0;
  virtual const std::shared_ptr<DeviceContext>& context() const = 0;
  // kOutOfMemory where the device has no more. `bytes` is a multiple of the granularity.
  virtual Result<PhysicalMemory> MakePage(uint64_t bytes) = 0;
};

// What a segment is made for.
struct SegmentRequest {
  uint64_t bytes = 0;
  // The stream that uses the memory first. A backing may order its making behind that stream's work; then the memory is
  // ready for this stream alone, and for others behind what the stream has submitted when Make() returns. Null where
  // the memory must be ready for every stream. Never a stream that captures.
  CUstream stream = nullptr;
  // Other devices that get access to it as it is made, where the backing grants so early. REQUIRES: CanGrant each.
  std::span<const int> peers = {};
};

class Backing {
 public:
  virtual ~Backing() = default;

  virtual const char* name() const = 0;  // its row's
  virtual const Placement& placement() const = 0;
  virtual uint64_t granularity() const = 0;  // segments are multiples of it

  // At least the bytes requested, in one physical handle where the backing has handles. kOutOfMemory where the device
  // has no more; kInvalidArgument for zero and for sizes that overflow.
  virtual Result<std::unique_ptr<Segment>> Make(const SegmentRequest& request) = 0;

  // Whether Make grants the request's peers: who made another backing's segment grants them.
  virtual bool grants_when_made() const { return false; }
  // Whether the memory that Make returns may be ready for the requested stream alone.
  virtual bool makes_in_stream_order() const { return false; }

  // Null where the backing's memory cannot move among addresses.
  virtual PageSource* pages() { return nullptr; }

  // Whether `peer` can be granted access, whether its access can be taken back, and whether NCCL takes its segments.
  virtual Capability CanGrant(int peer) const = 0;
  virtual Capability CanRevoke() const = 0;
  virtual Capability CanRegisterLocal() const = 0;
  virtual Capability CanRegisterWindow() const = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_BACKING_H_
