// Backing: makes segments, one contiguous range of memory each. Each backing is one file behind this interface, and
// passes tests/backing/conformance.h.
//
// A new backing is a file that ends with its row, and a line in backings.inc. Any thread may use a Backing. It takes no
// lock, and its callers hold none that forbids driver calls (rule 1). Errors name the call, the device, the bytes and
// the likely cause.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/registrar.h"
#include "commpool/status.h"
#include "src/library/base/bytes.h"
#include "src/library/base/socket.h"
#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"
#include "src/library/driver/tables.h"

namespace commpool::internal {

class Backing;
struct BackingRow;
class Territory;

// Where a segment's physical memory is, and the device that it is made for.
struct Placement {
  enum class Kind { kDevice = COMMPOOL_LOCATION_DEVICE, kHostNuma = COMMPOOL_LOCATION_HOST_NUMA };
  Kind kind = Kind::kDevice;
  int device = 0;      // the device that uses the memory; where kind is kDevice the memory lies there too
  int numa_node = -1;  // of kHostNuma; -1: the nearest, or for a backing of the host alone any
};

// OK, or kNotSupported and why. For device memory the peer must reach its owner; for host memory the peer must map host
// NUMA memory.
Status CanReach(const Driver& driver, const Placement& placement, int peer);

// "device 0", "host NUMA node 1", "host".
std::string NameOf(const Placement& placement);

CUmemLocation LocationOf(const Placement& placement);

// The granularity of memory for which the driver tells none: the page size of cudaMalloc.
inline constexpr uint64_t kDevicePageBytes = 2 * kMiB;

// The granularity of cuMemCreate memory: the driver's recommendation, or multicast's minimum where that is larger (with
// less, NVLS would fall back silently). It only asks, and makes no multicast object.
Result<uint64_t> FindGranularity(const Driver& driver, const DeviceInfo& info, const Placement& placement);

// A device's primary context, which a backing and all its segments retain together, and give up together. Any thread.
class DeviceContext {
 public:
  explicit DeviceContext(PrimaryContext context) : context_(std::move(context)) {}
  ~DeviceContext() {
    if (abandoned_) context_.Abandon();
  }

  CUcontext get() const { return context_.get(); }
  int device() const { return context_.device(); }
  // From now on no owner calls the driver, not even the last one.
  void Abandon() { abandoned_ = true; }

 private:
  PrimaryContext context_;
  std::atomic<bool> abandoned_{false};
};

// One contiguous range of memory, granted to its own device. Any thread may use it, but one at a time. It frees itself
// without a wait: before, the pool has quiesced the device and deregistered the range.
class Segment {
 public:
  virtual ~Segment() = default;

  CUdeviceptr address() const { return address_; }
  uint64_t bytes() const { return bytes_; }  // of the range: the request, rounded up to the granularity

  // This segment as a territory, where memory and addresses can be separated; else null.
  virtual Territory* territory() { return nullptr; }

  // Lets other devices of this process use the range as the backing grants it, all of them in one call where the driver
  // takes it so. After a failure any of them may have access. Revoke takes it back. REQUIRES: the backing CanGrant
  // each.
  Status Grant(std::span<const int> peers);
  Status Grant(int peer) { return Grant(std::span<const int>(&peer, 1)); }
  Status Revoke(int peer);

  // A descriptor by which other processes import the memory: the segment's own, open until the memory goes, in a sleep
  // too. -1 for memory without a handle, such as cudaMalloc's, which processes share by CUDA's IPC.
  Result<int> Descriptor();
  // The bytes by which they import it where the machine has a fabric; nothing elsewhere.
  std::optional<CUmemFabricHandle> FabricHandle();

  // Keeps the addresses reserved when the memory goes. Does nothing where the backing frees both in one call.
  virtual void KeepAddresses() {}
  // Frees now and says what failed; the destructor does the same and logs. Where the driver unmaps nothing the memory
  // stays as it is, and a second call tries again. Else nobody calls the driver a second time.
  Status Release();
  // False once it was released, also where the driver did not free all of it, or abandoned.
  bool lives() const { return lives_; }
  // After a sticky context error, or at exit: the segment calls the driver no more, and its memory ends with the
  // process.
  virtual void Abandon();

 protected:
  Segment(const Backing& backing, CUdeviceptr address, uint64_t bytes);

  const Driver& driver() const { return driver_; }
  const DeviceContext& context() const { return *context_; }

  // The parts that differ between backings. Called with the device's context current, on live memory, for other
  // devices. The base does nothing: such memory is open to all whom the backing can grant.
  virtual Status GrantPeers(std::span<const int>) { return Status(); }
  // The base refuses, with the reason of the backing's row. A backing that can do it overrides this.
  virtual Status RevokePeer(int peer);
  virtual Status ReleaseMemory() = 0;

  // For a ReleaseMemory that failed: the memory is still there, and Release may be called again.
  void LiveOn() { lives_ = true; }
  // For destructors of derived classes: in the base destructor their functions are gone.
  void ReleaseAndLog();
  // Call it when the memory goes: an open descriptor keeps it, and the next memory has handles of its own.
  void DropHandles();

 private:
  Status CheckLives(const char* what) const;

  const BackingRow& row_;
  const Driver& driver_;
  const std::shared_ptr<DeviceContext> context_;  // a segment may outlive its backing
  const CUdeviceptr address_;
  const uint64_t bytes_;
  PrivateDescriptor descriptor_;  // opened by the first Descriptor()
  bool fabric_is_known_ = false;
  std::optional<CUmemFabricHandle> fabric_;  // as the first FabricHandle() found it
  bool lives_ = true;
};

// Memory that one call frees. The segment may outlive its backing, and so may what `free` uses.
class PlainSegment final : public Segment {
 public:
  PlainSegment(const Backing& backing, void* memory, uint64_t bytes, std::function<Status()> free)
      : Segment(backing, reinterpret_cast<CUdeviceptr>(memory), bytes), free_(std::move(free)) {}
  ~PlainSegment() override { ReleaseAndLog(); }

 private:
  Status ReleaseMemory() override { return free_(); }

  const std::function<Status()> free_;
};

// The numbers are those of the C ABI.
enum class BackingKind : int {
#define COMMPOOL_BACKING(name, number) k##name = COMMPOOL_BACKING_##number,
#include "src/library/backing/backings.inc"
#undef COMMPOOL_BACKING
};

// A program's own functions: PyTorch's pluggable signature, with a context last.
struct UserAllocator {
  commpool_user_allocate allocate = nullptr;
  commpool_user_free free = nullptr;
  void* context = nullptr;
};

// What other devices may do that are granted access.
enum class Grants { kReadWrite = COMMPOOL_GRANTS_READ_WRITE, kRead = COMMPOOL_GRANTS_READ };

// A pool's request for a backing.
struct BackingRequest {
  BackingKind kind = BackingKind::kVmm;
  Placement placement = {};
  UserAllocator user = {};  // for a backing that needs a program's functions
  Grants grants = Grants::kReadWrite;
};

// Where a backing can make memory at all. Memory of kHost is also the CPU's, which waits for no stream.
enum class Places { kDevice, kDeviceAndHostNuma, kHost };
// Whether a backing works by itself, or with functions that the program brings.
enum class Maker { kLibrary, kProgram };
// Whether its memory stays at its addresses, or comes in pages that an expandable pool maps where it needs them.
enum class Movement { kNever, kInPages };

// What every backing has. The driver must outlive the backing and its segments.
struct BackingBasis {
  const Driver& driver;
  DeviceInfo info;
  Placement placement;
  std::shared_ptr<DeviceContext> context;  // for the placement's device
  Grants grants;
};

// Who uses a backing's memory without being granted access.
enum class Opening {
  kOwnDevice,
  kReachingDevices,
  kAllDevices,
  kUntold,  // devices that the program chooses, and that nobody tells us
};

// A backing's row in the table, defined in the backing's own file.
struct BackingRow {
  BackingKind kind;
  const char* name;  // "vmm"
  Places places;
  Maker maker = Maker::kLibrary;
  Movement movement = Movement::kNever;
  // Whether the backing can be made here and, where not, why; asked for one of `places`. Null where it always can.
  Status (*can_make)(const Driver& driver, const DeviceInfo& info, const Placement& placement) = nullptr;
  // REQUIRES: can_make() says yes. What the request points to must outlive the backing and its segments.
  Result<std::unique_ptr<Backing>> (*make)(BackingBasis basis, const BackingRequest& request) = nullptr;
  // Why access that was granted cannot be taken back; null where it can.
  const char* why_no_revoke = nullptr;
  Opening opening = Opening::kOwnDevice;
};

#define COMMPOOL_BACKING(name, number) extern const BackingRow k##name##Backing;
#include "src/library/backing/backings.inc"
#undef COMMPOOL_BACKING

// Kinds of memory that NCCL treats differently.
enum class MemoryKind {
  kVirtual,      // one cuMemCreate handle on a device, with a shareable type
  kHostVirtual,  // one cuMemCreate handle on a host NUMA node
  kUnshareable,  // one cuMemCreate handle without a shareable type
  kLinear,       // memory of cudaMalloc
  kForeign,      // a user's functions made it
  kPinned,       // pages of the host that CUDA has pinned
};

// How far memory can be shared, best first. Ranks tell each other the number.
enum class Reach : uint32_t {
  kHosts,      // fabric handles, and descriptors where the device has them
  kProcesses,  // descriptors
  kNobody,     // no handle
};

// What a backing's memory is, and why it is nothing better: for people.
struct MemoryFacts {
  std::string what;  // "host NUMA node 1, file descriptor handles"
  std::string why;   // what the driver refused; empty where it refused nothing
};

// Whether ncclCommRegister takes the memory. NCCL may take memory and still not use it, without an error: only its
// legacy paths use cudaMalloc memory (NCCL_LEGACY_CUDA_REGISTER=1).
Status CanRegisterLocalMemory(const NcclLibrary& nccl, MemoryKind memory);

// Whether ncclCommWindowRegister takes the memory. Ranks import each other's handle, so a segment must have exactly
// one.
Status CanRegisterWindowMemory(const NcclLibrary& nccl, MemoryKind memory);

// A request for a segment.
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

  const char* name() const { return row_.name; }
  const BackingRow& row() const { return row_; }
  const Driver& driver() const { return basis_.driver; }
  const Placement& placement() const { return basis_.placement; }
  const std::shared_ptr<DeviceContext>& context() const { return basis_.context; }
  Grants grants() const { return basis_.grants; }
  uint64_t granularity() const { return granularity_; }  // segments are multiples of it

  // At least the bytes requested, in one physical handle where the backing has handles. kOutOfMemory where the device
  // has no more; kInvalidArgument for zero and for sizes that overflow.
  Result<std::unique_ptr<Segment>> Make(const SegmentRequest& request);
  // Whether the memory that Make returns may be ready for the requested stream alone.
  bool makes_in_stream_order() const { return row_.maker == Maker::kProgram; }

  virtual MemoryFacts Facts() const { return {NameOf(placement()), ""}; }
  // How far host memory can be shared, as it was made first; for other memory kHosts. From SettleOn on it is made so
  // and no other way: ranks settle on the least reach of any rank.
  virtual Reach reach() const { return Reach::kHosts; }
  virtual void SettleOn(Reach) {}

  // Physical memory for one page of an expandable pool; a multiple of the granularity. kOutOfMemory where the device
  // has no more. REQUIRES: the backing's memory comes in pages, and the device's context is current.
  virtual Result<PhysicalMemory> MakePage(uint64_t bytes);

  // The devices that read and write it without being granted access; those that the driver does not tell are left out.
  std::vector<int> OpenTo() const;
  // Whether other devices may, or the memory is the host's.
  bool OthersMayUse() const;
  // Whether `peer` can be granted access, whether its access can be taken back, and whether NCCL takes its segments.
  virtual Status CanGrant(int peer) const;
  Status CanRevoke() const;
  // Whether another process can map its segments by a handle.
  Status CanShare() const;
  Status CanRegisterLocal() const { return CanRegisterLocalMemory(driver().nccl, memory()); }
  virtual Status CanRegisterWindow() const { return CanRegisterWindowMemory(driver().nccl, memory()); }
  // Fills in what registrars ask of its segments' handles, as far as the backing knows so far.
  virtual void AddHandleTraits(commpool_segment_traits& traits) const;
  // Whether cudaMalloc makes its memory, as far as it knows so far.
  bool IsOfCudaMalloc() const { return memory() == MemoryKind::kLinear; }

 protected:
  Backing(const BackingRow& row, const BackingBasis& basis, uint64_t granularity)
      : row_(row), basis_(basis), granularity_(granularity) {}

  // `bytes` is the request, rounded up; the device's context is current.
  virtual Result<std::unique_ptr<Segment>> MakeSegment(uint64_t bytes, const SegmentRequest& request) = 0;
  // The kind of memory that the backing makes, as far as it knows so far.
  virtual MemoryKind memory() const = 0;

 private:
  const BackingRow& row_;
  const BackingBasis basis_;
  const uint64_t granularity_;
};

}  // namespace commpool::internal
