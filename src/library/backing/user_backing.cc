// The user backing: a program's own functions, of PyTorch's pluggable signature with a context last.
//
// The backing calls the functions outside every lock, with the device's context current; an exception that leaves one
// becomes a Status. `allocate` gets the stream that a segment is made for, or null where it is for no stream in
// particular. `free` always gets null, because the pool has waited for the device before. Peer access is a matter of
// these functions. They must return memory that the device can use, aligned to 512 bytes; the backing checks that as
// far as the driver tells. They may not call commpool.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "src/library/backing/backing.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/base/user_function.h"

namespace commpool::internal {

namespace {

constexpr UserFunctionKind kAllocate = {"a user backing's allocate function"};
constexpr UserFunctionKind kFree = {"a user backing's free function"};
constexpr uint64_t kAlignment = 512;  // the smallest alignment of a pool's blocks
constexpr const char* kTheirsToShare = "access to a user backing's memory is given and taken by the user's functions";

// Such as "the user's allocate function (2 MiB on device 0)".
std::string Describe(const char* function, uint64_t bytes, int device) {
  return std::string("the user's ") + function + " function (" + FormatBytes(bytes) + " on device " +
         std::to_string(device) + ")";
}

class UserBacking : public Backing {
 public:
  UserBacking(const BackingBasis& basis, const UserAllocator& user)
      : Backing(kUserBacking, basis, kDevicePageBytes), user_(user) {}

 private:
  MemoryKind memory() const override { return MemoryKind::kForeign; }
  Result<std::unique_ptr<Segment>> MakeSegment(uint64_t bytes, const SegmentRequest& request) override {
    const std::string what = Describe("allocate", bytes, placement().device);
    if (bytes > PTRDIFF_MAX) return InvalidArgument(what, " takes no size over ", PTRDIFF_MAX);
    void* pointer = nullptr;
    COMMPOOL_TRY(CallUserFunction(kAllocate, what, [&] {
      pointer = user_.allocate(static_cast<ptrdiff_t>(bytes), placement().device, request.stream, user_.context);
    }));
    if (pointer == nullptr) return OutOfMemory(what, " returned null");
    auto segment =
        std::make_unique<PlainSegment>(*this, pointer, bytes, [=, user = user_, device = placement().device] {
          return CallUserFunction(kFree, Describe("free", bytes, device), [&] {
            user.free(pointer, static_cast<ptrdiff_t>(bytes), device, nullptr, user.context);
          });
        });
    const std::string complaint = WhyUnusable(segment->address());
    // The segment frees what the user's function made.
    if (!complaint.empty()) return InvalidArgument(what, " returned ", complaint);
    return std::unique_ptr<Segment>(std::move(segment));
  }

  // Empty for usable memory. Finds a mistake here rather than in a kernel.
  std::string WhyUnusable(CUdeviceptr address) const {
    if (address % kAlignment != 0) return "memory that is not aligned to 512 bytes";
    // The user's functions may have changed the current context.
    ContextGuard guard(driver(), context()->get());
    unsigned type = 0;
    if (driver().cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS) {
      return "memory that the CUDA driver does not know";
    }
    int owner = placement().device;
    const bool on_device = type == CU_MEMORYTYPE_DEVICE;  // other kinds, such as pinned host memory, serve every device
    if (on_device &&
        driver().cuda.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == CUDA_SUCCESS &&
        owner != placement().device) {
      return "memory of device " + std::to_string(owner);
    }
    return "";
  }

  const UserAllocator user_;
};

// kInvalidArgument where one of the functions is null.
Result<std::unique_ptr<Backing>> MakeUserBacking(BackingBasis basis, const BackingRequest& request) {
  const UserAllocator& user = request.user;
  if (user.allocate == nullptr || user.free == nullptr) {
    return InvalidArgument("a user backing needs both functions: user_", user.allocate == nullptr ? "allocate" : "free",
                           " is null");
  }
  return std::unique_ptr<Backing>(std::make_unique<UserBacking>(basis, user));
}

}  // namespace

constinit const BackingRow kUserBacking = {
    .kind = BackingKind::kUser,
    .name = "user",
    .places = Places::kDevice,
    .maker = Maker::kProgram,
    .make = MakeUserBacking,
    .why_no_revoke = kTheirsToShare,
    .opening = Opening::kUntold,
};

}  // namespace commpool::internal
