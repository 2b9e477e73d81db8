// A device's primary context, which a backing and all its segments retain together, and give up together.
//
// Any thread.
#ifndef COMMPOOL_SRC_BACKING_DEVICE_CONTEXT_H_
#define COMMPOOL_SRC_BACKING_DEVICE_CONTEXT_H_

#include <atomic>
#include <memory>
#include <utility>

#include "commpool/status.h"
#include "src/base/try.h"
#include "src/driver/handles.h"

namespace commpool::internal {

class DeviceContext {
 public:
  static Result<std::shared_ptr<DeviceContext>> Retain(const Driver& driver, int device) {
    PrimaryContext context = COMMPOOL_TRY(PrimaryContext::Retain(driver, device));
    return std::make_shared<DeviceContext>(std::move(context));
  }

  explicit DeviceContext(PrimaryContext context) : context_(std::move(context)) {}
  ~DeviceContext() {
    if (abandoned_) context_.Abandon();
  }
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  CUcontext get() const { return context_.get(); }
  int device() const { return context_.device(); }
  // No owner calls the driver any more, the last one included.
  void Abandon() { abandoned_ = true; }

 private:
  PrimaryContext context_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_DEVICE_CONTEXT_H_
