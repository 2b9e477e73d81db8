// Handle: owns an object that one driver call made, and releases it by another driver call.
//
// The traits of a handle say what it holds and how to release that:
//
//   struct EventTraits {
//     using Value = CUevent;  // errors name its `device` and its `bytes`, where it has them
//     static constexpr CallSite kRelease{.call = "cuEventDestroy"};
//     static CUresult Release(const CudaDriver& cuda, const Value& event) { return cuda.cuEventDestroy(event); }
//     static constexpr bool kKeptAfterFailure = true;  // a release that failed may be tried again; else it ends all
//   };
//
// A class that derives from Handle<Traits> adds a factory and names for parts of the value, but no members. Move-only.
// One thread at a time uses a handle. It keeps a pointer to its Driver.
#ifndef COMMPOOL_SRC_DRIVER_HANDLE_H_
#define COMMPOOL_SRC_DRIVER_HANDLE_H_

#include <cuda.h>

#include <utility>

#include "commpool/status.h"
#include "src/driver/diagnosis.h"
#include "src/driver/loader.h"

namespace commpool::internal {

// For destructors, which cannot return an error: logs it, unless the driver or the context is ending with the process.
void LogFailedRelease(const Driver& driver, CUresult result, const CallSite& site);

template <typename Traits>
class Handle {
 public:
  using Value = typename Traits::Value;

  Handle() = default;
  // Owns an object that a call has just made.
  Handle(const Driver& driver, Value value) : driver_(&driver), value_(value) {}
  Handle(Handle&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), value_(std::exchange(other.value_, Value{})) {}
  // Releases at once what this handle owned.
  Handle& operator=(Handle&& other) noexcept {
    Handle taken(std::move(other));
    std::swap(driver_, taken.driver_);
    std::swap(value_, taken.value_);
    return *this;
  }
  ~Handle() {
    if (valid()) LogFailedRelease(*driver_, Traits::Release(driver_->cuda, value_), Site());
  }

  bool valid() const { return driver_ != nullptr; }

  // Releases the object and returns the error, if any; OK where the handle is empty.
  Status Release() {
    if (!valid()) return Status();
    Status status = CheckCuda(*driver_, Traits::Release(driver_->cuda, value_), Site());
    if (status.ok() || !requires { Traits::kKeptAfterFailure; }) driver_ = nullptr;
    return status;
  }

  // Empties the handle without a driver call: after an error that lost the context, or where others own the object.
  void Abandon() { driver_ = nullptr; }

 protected:
  // REQUIRES: valid().
  const Driver& driver() const { return *driver_; }
  const Value& value() const { return value_; }

 private:
  CallSite Site() const {
    CallSite site = Traits::kRelease;
    if constexpr (requires { value_.device; }) site.device = value_.device;
    if constexpr (requires { value_.bytes; }) site.bytes = value_.bytes;
    return site;
  }

  const Driver* driver_ = nullptr;
  Value value_{};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_HANDLE_H_
