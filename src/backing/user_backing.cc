#include "src/backing/user_backing.h"

#include <exception>
#include <utility>

#include "src/backing/plain_segment.h"
#include "src/base/bytes.h"
#include "src/driver/device_info.h"
#include "src/driver/handles.h"

namespace commpool {

namespace {

constexpr uint64_t kGranularity = 2 * kMiB;

Status Thrown(const char* function, const std::string& what) {
  return Status(StatusCode::kInternal, std::string("the user's ") + function + " function threw: " + what);
}

class UserBacking : public Backing {
 public:
  UserBacking(const Driver& driver, const Placement& placement, const UserAllocator& user, PrimaryContext context)
      : driver_(driver),
        placement_(placement),
        user_(user),
        context_(std::make_shared<PrimaryContext>(std::move(context))) {}

  const char* name() const override { return "user"; }
  const Placement& placement() const override { return placement_; }
  uint64_t granularity() const override { return kGranularity; }

  Result<std::unique_ptr<Segment>> Make(uint64_t bytes) override {
    const std::optional<uint64_t> rounded = CheckedRoundUp(bytes, kGranularity);
    if (bytes == 0 || !rounded || *rounded > PTRDIFF_MAX) {
      return Status(StatusCode::kInvalidArgument, "a segment of " + std::to_string(bytes) + " bytes cannot be made");
    }
    ContextGuard guard(driver_, *context_);
    Result<void*> pointer = CallAllocate(*rounded);
    if (!pointer.ok()) return pointer.status();
    const auto address = reinterpret_cast<CUdeviceptr>(*pointer);
    auto segment = std::make_unique<PlainSegment>(driver_, context_, address, *rounded, FunctionsOf());
    Status status = CheckMemory(address);
    if (!status.ok()) return status;  // the segment frees what the user made
    return std::unique_ptr<Segment>(std::move(segment));
  }

  Capability CanGrant(int) const override {
    return Capability::No("access to a user backing's memory is its functions' to give");
  }
  Capability CanRevoke() const override {
    return Capability::No("access to a user backing's memory is its functions' to take");
  }
  Capability CanRegisterLocal() const override {
    return driver_.nccl.has_local_registration() ? Capability::Yes()
                                                 : Capability::No("ncclCommRegister needs NCCL 2.19");
  }
  Capability CanRegisterWindow() const override {
    return Capability::No(
        "a user backing's segments need not be one cuMemCreate allocation each, which windows need: use "
        "the vmm or nccl backing");
  }

 private:
  Result<void*> CallAllocate(uint64_t bytes) const {
    void* pointer = nullptr;
    try {
      pointer = user_.allocate(static_cast<ptrdiff_t>(bytes), placement_.device, nullptr, user_.context);
    } catch (const std::exception& exception) {
      return Thrown("allocate", exception.what());
    } catch (...) {
      return Thrown("allocate", "something that is no std::exception");
    }
    if (pointer != nullptr) return pointer;
    return Status(StatusCode::kOutOfMemory, "the user's allocate function returned null for " + FormatBytes(bytes) +
                                                " on device " + std::to_string(placement_.device));
  }

  // The driver must know the memory: a host pointer by mistake is found here and not in a kernel.
  Status CheckMemory(CUdeviceptr address) const {
    unsigned type = 0;
    const CUresult result = driver_.cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    if (result == CUDA_SUCCESS) return Status();
    return Status(StatusCode::kInvalidArgument,
                  "the user's allocate function returned memory that the CUDA driver does not know");
  }

  PlainSegment::Functions FunctionsOf() const {
    const UserAllocator user = user_;
    const int device = placement_.device;
    return {[user, device](CUdeviceptr address, uint64_t bytes) {
              try {
                user.free(reinterpret_cast<void*>(address), static_cast<ptrdiff_t>(bytes), device, nullptr,
                          user.context);
              } catch (const std::exception& exception) {
                return Thrown("free", exception.what());
              } catch (...) {
                return Thrown("free", "something that is no std::exception");
              }
              return Status();
            },
            [](int) { return Status(StatusCode::kNotSupported, "a user backing grants no access"); },
            [](int) { return Status(StatusCode::kFailedPrecondition, "a user backing revokes no access"); }};
  }

  const Driver& driver_;
  const Placement placement_;
  const UserAllocator user_;
  const std::shared_ptr<const PrimaryContext> context_;
};

}  // namespace

Result<std::unique_ptr<Backing>> MakeUserBacking(const Driver& driver, const Placement& placement,
                                                 const UserAllocator& user) {
  if (user.allocate == nullptr || user.free == nullptr) {
    return Status(StatusCode::kInvalidArgument, "a user backing needs both functions: user_allocate and user_free");
  }
  Result<PrimaryContext> context = PrimaryContext::Retain(driver, placement.device);
  if (!context.ok()) return context.status();
  return std::unique_ptr<Backing>(std::make_unique<UserBacking>(driver, placement, user, std::move(*context)));
}

}  // namespace commpool
