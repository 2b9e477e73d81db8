// One contiguous range of memory, as a backing makes it. A Segment frees itself.
//
// Any thread may use a segment, but one at a time. It takes no lock, and its callers hold none that forbids driver
// calls (rule 1). Errors name the call, the device, the bytes and the likely cause.
#ifndef COMMPOOL_SRC_BACKING_SEGMENT_H_
#define COMMPOOL_SRC_BACKING_SEGMENT_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "commpool/status.h"
#include "src/base/try.h"
#include "src/driver/handles.h"

namespace commpool::internal {

class Backing;
struct BackingRow;
class Territory;

// A device's primary context, which a backing and all its segments retain together, and give up together. Any thread.
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

  CUcontext get() const { return context_.get(); }
  int device() const { return context_.device(); }
  // From now on no owner calls the driver, not even the last one.
  void Abandon() { abandoned_ = true; }

 private:
  PrimaryContext context_;
  std::atomic<bool> abandoned_{false};
};

// One contiguous range of memory, granted to its own device. It frees itself without a wait: before, the pool has
// quiesced the device and deregistered the range.
class Segment {
 public:
  virtual ~Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  CUdeviceptr address() const { return address_; }
  uint64_t bytes() const { return bytes_; }  // of the range: the request, rounded up to the granularity

  // This segment as a territory, where memory and addresses can be separated; else null.
  virtual Territory* territory() { return nullptr; }

  // Lets other devices of this process read and write the range, all of them in one call where the driver takes it so.
  // After a failure any of them may have access. Revoke takes it back.
  Status Grant(std::span<const int> peers);
  Status Grant(int peer) { return Grant(std::span<const int>(&peer, 1)); }
  Status Revoke(int peer);

  // Keeps the addresses reserved when the memory goes. Does nothing where the backing frees both in one call.
  virtual void KeepAddresses() {}
  // Frees now and says what failed; the destructor does the same and logs. At most one of them calls the driver.
  Status Release();
  // After a sticky context error, or at exit: the segment calls the driver no more, and its memory ends with the
  // process.
  virtual void Abandon();

 protected:
  Segment(const Backing& backing, CUdeviceptr address, uint64_t bytes);

  const Driver& driver() const { return driver_; }
  const DeviceContext& context() const { return *context_; }

  // The parts that differ between backings. Called with the device's context current, on live memory, for other
  // devices.
  virtual Status GrantPeers(std::span<const int> peers) = 0;
  // The base refuses, with the reason of the backing's row. A backing that can do it overrides this.
  virtual Status RevokePeer(int peer);
  virtual Status ReleaseMemory() = 0;

  // For destructors of derived classes: in the base destructor their functions are gone.
  void ReleaseAndLog();

 private:
  Status CheckLives(const char* what) const;

  const BackingRow& row_;
  const Driver& driver_;
  const std::shared_ptr<DeviceContext> context_;  // a segment may outlive its backing
  const CUdeviceptr address_;
  const uint64_t bytes_;
  bool lives_ = true;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_SEGMENT_H_
