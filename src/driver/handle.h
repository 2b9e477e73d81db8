// The one owner of what a driver call made and another driver call gives back.
//
// Traits of a handle say what it holds and how that is given back:
//
//   struct EventTraits {
//     using Value = CUevent;  // errors name its `device` and its `bytes`, where it has them
//     static constexpr CallSite kRelease{.call = "cuEventDestroy"};
//     static CUresult Release(const CudaDriver& cuda, const Value& event) { return cuda.cuEventDestroy(event); }
//     static constexpr bool kKeptAfterFailure = true;  // a release that failed may be tried again; else it ends all
//   };
//
// A class that derives from Handle<Traits> adds the factory and names for the parts of the value, and no members.
// Move-only. One thread at a time uses a handle; it keeps a pointer to its Driver.
#ifndef COMMPOOL_SRC_DRIVER_HANDLE_H_
#define COMMPOOL_SRC_DRIVER_HANDLE_H_

#include <cuda.h>

#include <utility>

#include "commpool/status.h"
#include "src/driver/diagnosis.h"
#include "src/driver/loader.h"

namespace commpool::internal {

// For destructors, which can tell nobody: logs, unless the driver or the context ends with the process anyway.
void LogFailedRelease(const Driver& driver, CUresult result, const CallSite& site);

template <typename Traits>
class Handle {
 public:
  using Value = typename Traits::Value;

  Handle() = default;
  // Owns what a call has just made.
  Handle(const Driver& driver, Value value) : driver_(&driver), value_(value) {}
  Handle(Handle&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), value_(std::exchange(other.value_, Value{})) {}
  // Gives back at once what this one owned.
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

  // Gives the object back and says what failed; OK where there is none.
  Status Release() {
    if (!valid()) return Status();
    Status status = CheckCuda(*driver_, Traits::Release(driver_->cuda, value_), Site());
    if (status.ok() || !requires { Traits::kKeptAfterFailure; }) driver_ = nullptr;
    return status;
  }

  // Empties the handle without a call: after an error that lost the context, or where somebody else owns the object.
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
