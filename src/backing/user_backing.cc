// The user backing: a program's own functions, of PyTorch's pluggable signature with a context last.
//
// It calls them outside every lock, with the device's context current; an exception that leaves one becomes a Status.
// `allocate` gets the stream that a segment is made for, or null where it is for no stream in particular; `free` always
// gets null, for the pool has waited for the device by then. Peer access is theirs to arrange. They must return memory
// that the device can use, aligned to 512 bytes: the backing checks that as far as the driver tells. They may not call
// commpool.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <utility>

#include "src/backing/backing_row.h"
#include "src/backing/device_context.h"
#include "src/backing/nccl_support.h"
#include "src/backing/owned_segment.h"
#include "src/backing/segment_size.h"
#include "src/base/user_function.h"

namespace commpool::internal {

namespace {

constexpr const char* kAllocateName = "a user backing's allocate function";
constexpr const char* kFreeName = "a user backing's free function";
constexpr uint64_t kAlignment = 512;  // the least that blocks of a pool have

Capability CannotShare() {
  return Capability::No("access to a user backing's memory is given and taken by the user's functions");
}

// "the user's allocate function (2 MiB on device 0)".
std::string Describe(const char* function, uint64_t bytes, int device) {
  return std::string("the user's ") + function + " function (" + FormatBytes(bytes) + " on device " +
         std::to_string(device) + ")";
}

// Runs a function of the user's: what it throws stops here, and what it asks of the library is refused.
template <typename Function>
Status CallUser(const char* name, const std::string& what, Function function) {
  const UserFunction running(name);
  try {
    function();
    return Status();
  } catch (const std::bad_alloc& exception) {
    return Status(StatusCode::kOutOfMemory, what + " threw std::bad_alloc: " + exception.what());
  } catch (const std::exception& exception) {
    return Status(StatusCode::kInvalidArgument, what + " threw an exception, which it may not: " + exception.what());
  } catch (...) {
    return Status(StatusCode::kInvalidArgument, what + " threw something, which it may not");
  }
}

class UserSegment : public OwnedSegment {
 public:
  UserSegment(const Driver& driver, std::shared_ptr<DeviceContext> context, CUdeviceptr address, uint64_t bytes,
              const UserAllocator& user)
      : OwnedSegment(driver, std::move(context), address, bytes), user_(user) {}
  ~UserSegment() override { ReleaseAndLog(); }

 private:
  Status GrantPeer(int peer) override {
    return Status(StatusCode::kNotSupported,
                  "granting access to device " + std::to_string(peer) + ": " + CannotShare().reason);
  }
  Capability CanRevoke() const override { return CannotShare(); }
  Status ReleaseMemory() override {
    const int device = context().device();
    return CallUser(kFreeName, Describe("free", bytes(), device), [&] {
      user_.free(reinterpret_cast<void*>(address()), static_cast<ptrdiff_t>(bytes()), device, nullptr, user_.context);
    });
  }

  const UserAllocator user_;
};

class UserBacking : public Backing {
 public:
  UserBacking(const Driver& driver, const Placement& placement, const UserAllocator& user,
              std::shared_ptr<DeviceContext> context)
      : driver_(driver), placement_(placement), user_(user), context_(std::move(context)) {}

  const char* name() const override { return kUserBacking.name; }
  const Placement& placement() const override { return placement_; }
  uint64_t granularity() const override { return kDevicePageBytes; }
  bool makes_in_stream_order() const override { return true; }

  Result<std::unique_ptr<Segment>> Make(const SegmentRequest& request) override {
    Result<uint64_t> rounded = RoundToGranularity(request.bytes, granularity());
    if (!rounded.ok()) return rounded.status();
    const std::string what = Describe("allocate", *rounded, placement_.device);
    if (*rounded > PTRDIFF_MAX) {
      return Status(StatusCode::kInvalidArgument, what + " takes no size over " + std::to_string(PTRDIFF_MAX));
    }
    ContextGuard guard(driver_, context_->get());
    void* pointer = nullptr;
    Status status = CallUser(kAllocateName, what, [&] {
      pointer = user_.allocate(static_cast<ptrdiff_t>(*rounded), placement_.device, request.stream, user_.context);
    });
    if (!status.ok()) return status;
    if (pointer == nullptr) return Status(StatusCode::kOutOfMemory, what + " returned null");
    const auto address = reinterpret_cast<CUdeviceptr>(pointer);
    auto segment = std::make_unique<UserSegment>(driver_, context_, address, *rounded, user_);
    const std::string complaint = WhyUnusable(address);
    // The segment gives back what the user made.
    if (!complaint.empty()) return Status(StatusCode::kInvalidArgument, what + " returned " + complaint);
    return std::unique_ptr<Segment>(std::move(segment));
  }

  Capability CanGrant(int peer) const override { return peer == placement_.device ? Capability::Yes() : CannotShare(); }
  Capability CanRevoke() const override { return CannotShare(); }
  Capability CanRegisterLocal() const override { return CanRegisterLocalMemory(driver_.nccl, MemoryKind::kForeign); }
  Capability CanRegisterWindow() const override { return CanRegisterWindowMemory(driver_.nccl, MemoryKind::kForeign); }

 private:
  // Empty for memory that serves. A mistake is found here and not in a kernel.
  std::string WhyUnusable(CUdeviceptr address) const {
    if (address % kAlignment != 0) return "memory that is not aligned to 512 bytes";
    // The user's functions may have changed what is current.
    ContextGuard guard(driver_, context_->get());
    unsigned type = 0;
    if (driver_.cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS) {
      return "memory that the CUDA driver does not know";
    }
    int owner = placement_.device;
    const bool on_device = type == CU_MEMORYTYPE_DEVICE;  // others, pinned host memory say, serve every device
    if (on_device &&
        driver_.cuda.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == CUDA_SUCCESS &&
        owner != placement_.device) {
      return "memory of device " + std::to_string(owner);
    }
    return "";
  }

  const Driver& driver_;
  const Placement placement_;
  const UserAllocator user_;
  const std::shared_ptr<DeviceContext> context_;
};

// kInvalidArgument where one of the functions is null.
Result<std::unique_ptr<Backing>> MakeUserBacking(const Driver& driver, const DeviceInfo&,
                                                 const BackingRequest& request) {
  const UserAllocator& user = request.user;
  if (user.allocate == nullptr || user.free == nullptr) {
    return Status(StatusCode::kInvalidArgument, std::string("a user backing needs both functions: user_") +
                                                    (user.allocate == nullptr ? "allocate" : "free") + " is null");
  }
  Result<std::shared_ptr<DeviceContext>> context = DeviceContext::Retain(driver, request.placement.device);
  if (!context.ok()) return context.status();
  return std::unique_ptr<Backing>(std::make_unique<UserBacking>(driver, request.placement, user, std::move(*context)));
}

}  // namespace

constinit const BackingRow kUserBacking = {
    .kind = BackingKind::kUser,
    .name = "user",
    .places = Places::kDevice,
    .maker = Maker::kProgram,
    .movement = Movement::kNever,
    .can_make = [](const Driver&, const DeviceInfo&, const Placement&) { return Capability::Yes(); },
    .make = MakeUserBacking,
    .memory = [](const DeviceInfo&, const Placement&) { return MemoryKind::kForeign; },
};

}  // namespace commpool::internal
