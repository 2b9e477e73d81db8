// DeviceState: what pools of one device share: its primary context, its health, its fences and its account. DeviceTable
// owns them. Any thread.
#ifndef COMMPOOL_SRC_POOL_SHARED_DEVICE_STATE_H_
#define COMMPOOL_SRC_POOL_SHARED_DEVICE_STATE_H_

#include <future>
#include <map>
#include <memory>
#include <string>

#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/base/mutex.h"
#include "src/driver/handles.h"
#include "src/pool/options.h"
#include "src/pool/shared/announced_captures.h"
#include "src/pool/shared/memory_account.h"
#include "src/stream/device_health.h"
#include "src/stream/fence_table.h"

namespace commpool::internal {

// Waits for everything submitted to the device by now, on a thread of its own that may outlive the caller. Returns
// cuCtxSynchronize's result. The context must stay retained until then, or until the process ends. Any thread.
std::future<CUresult> BeginToSynchronise(const Driver& driver, const PrimaryContext& context);
// Waits for the device, and returns cuCtxSynchronize's result. kDeadlineExceeded where the deadline passes: then the
// wait continues on its own thread.
Result<CUresult> SynchroniseWithin(const Driver& driver, const PrimaryContext& context, uint64_t deadline_ms);
// SynchroniseWithin for any device. A wait that continues after the deadline keeps the device's primary context
// retained, for good.
Result<CUresult> SynchroniseWithin(const Driver& driver, int device, uint64_t deadline_ms);

// DeviceTable makes it at the device's first use; all pools there share it. No lock: the parts have their own.
class DeviceState {
 public:
  DeviceState(const Driver& driver, PrimaryContext context, uint64_t total_bytes,
              std::shared_ptr<AnnouncedCaptures> captures)
      : driver_(driver),
        context_(std::move(context)),
        captures_(std::move(captures)),
        fences_(driver, context_.device(), health_),
        account_("device " + std::to_string(context_.device()), total_bytes) {}
  ~DeviceState();

  int device() const { return context_.device(); }
  const PrimaryContext& context() const { return context_; }
  DeviceHealth& health() { return health_; }
  FenceTable& fences() { return fences_; }
  // The part of the device's memory that pools have reserved.
  MemoryAccount& account() { return account_; }

  // The captures of all devices.
  AnnouncedCaptures& captures() const { return *captures_; }
  // Whether a stream of the device captures. Then a wait for the device would break the capture, and so would a
  // question about an event that was recorded on that stream meanwhile.
  bool capturing() const { return captures_->OnDevice(device()); }
  // kFailedPrecondition while a stream captures. A call that will wait for the device asks this before it changes
  // anything.
  Status CheckNotCapturing() const { return CheckNotCapturing(device()); }
  Status CheckNotCapturing(int device) const;

  // Waits on the host for everything submitted to the device, at most until the deadline. Call it before memory is
  // unmapped and before a registration ends (rule 5).
  Status Quiesce(uint64_t deadline_ms);

  // Waits on the host for a fence, at most until the deadline. For fences of other devices' streams: Quiesce does not
  // wait for these.
  Status Await(FenceId fence, uint64_t deadline_ms);

 private:
  const Driver& driver_;
  PrimaryContext context_;
  const std::shared_ptr<AnnouncedCaptures> captures_;
  DeviceHealth health_;
  FenceTable fences_;
  MemoryAccount account_;
};

// The devices in use; each is made at its first use.
class DeviceTable {
 public:
  // `limit`: the first limit of each device.
  explicit DeviceTable(const Driver& driver, const DeviceLimit& limit = {}) : driver_(driver), limit_(limit) {}

  // kInvalidArgument for a device that does not exist; the message has the number of devices.
  Result<std::shared_ptr<DeviceState>> Get(int device);

  AnnouncedCaptures& captures() const { return *captures_; }

  // The account for memory at a placement: each device has one, and each host NUMA node.
  Result<std::shared_ptr<MemoryAccount>> AccountOf(const Placement& placement);

 private:
  const Driver& driver_;
  const DeviceLimit limit_;
  const std::shared_ptr<AnnouncedCaptures> captures_ = std::make_shared<AnnouncedCaptures>();
  Mutex mutex_{LockRank::kLeaf};
  std::map<int, std::shared_ptr<DeviceState>> devices_ COMMPOOL_GUARDED_BY(mutex_);
  std::map<int, std::shared_ptr<MemoryAccount>> host_accounts_ COMMPOOL_GUARDED_BY(mutex_);  // by NUMA node
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_DEVICE_STATE_H_
