// DeviceState: what pools of one device share: its place (context and health) and its account. DeviceTable owns them,
// and the fences of all devices. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "commpool/status.h"
#include "src/library/backing/backing.h"
#include "src/library/base/function_ref.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/handles.h"
#include "src/library/pool/options.h"
#include "src/library/pool/shared/memory_account.h"
#include "src/library/stream/fence_table.h"
#include "src/library/stream/stream_places.h"

namespace commpool::internal {

// Which devices have an open capture. A capture that was announced to one pool binds all pools of the process. While a
// device has one, we may not wait for the device or ask its streams for progress: that would break the capture. Other
// calls that a capture forbids to every thread, only as a precaution, run in relaxed mode (driver/graph_handles.h).
//
// DeviceTable and the device states share one. Pools count captures in and out; no lock, only atomic counts.
class AnnouncedCaptures {
 public:
  // Call them when a capture begins and ends. `devices`: those of its streams and of its pool.
  void Begin(const std::set<int>& devices) { Count(devices, 1); }
  void End(const std::set<int>& devices) { Count(devices, -1); }

  // One load each, because allocations ask them.
  bool any() const { return all_.load(std::memory_order_acquire) > 0; }
  bool OnDevice(int device) const { return on_device_[IndexOf(device)].load(std::memory_order_acquire) > 0; }

  // Call it where a destroyed pool cannot release its memory now: a later call of OtherPools asks the pool again, once
  // no capture is open.
  void Postpone() { postponed_.store(true, std::memory_order_release); }
  // Whether such a call would find something to do.
  bool postponed() const { return !any() && postponed_.load(std::memory_order_acquire); }
  bool TakePostponed() { return !any() && postponed_.exchange(false, std::memory_order_acq_rel); }

 private:
  static constexpr size_t kMostDevices = 64;  // devices beyond share a count

  void Count(const std::set<int>& devices, int change) {
    all_.fetch_add(change, std::memory_order_acq_rel);
    for (const int device : devices) on_device_[IndexOf(device)].fetch_add(change, std::memory_order_acq_rel);
  }
  // Two devices that share a count forbid waits for each other: too careful, and never wrong.
  static size_t IndexOf(int device) { return static_cast<size_t>(device) % kMostDevices; }

  std::atomic<bool> postponed_{false};
  // Captures, whichever devices they have.
  std::atomic<int> all_{0};
  std::array<std::atomic<int>, kMostDevices> on_device_ = {};
};

// Waits for everything submitted to the device by now, on a thread of its own that may outlive the caller. Returns
// cuCtxSynchronize's result. The context must stay retained until then, or until the process ends. Any thread.
// kOutOfMemory where the host has no thread.
Result<std::future<CUresult>> BeginToSynchronise(const Driver& driver, const PrimaryContext& context);

// How long a call waits for devices: all its waits together, from the moment on when it makes this.
struct Patience {
  Patience(uint64_t most_ms)  // NOLINT(google-explicit-constructor): a deadline
      : ms(most_ms), end(std::chrono::steady_clock::now() + std::chrono::milliseconds(most_ms)) {}

  uint64_t ms;
  std::chrono::steady_clock::time_point end;
};

// DeviceTable makes it at the device's first use; all pools there share it. No lock: the parts have their own.
class DeviceState {
 public:
  DeviceState(const Driver& driver, Place& place, uint64_t total_bytes, AnnouncedCaptures& captures)
      : driver_(driver),
        place_(place),
        captures_(captures),
        account_("device " + std::to_string(place.device()), total_bytes) {}

  int device() const { return place_.device(); }
  const PrimaryContext& context() const { return place_.context; }
  DeviceHealth& health() { return place_.health; }
  // The part of the device's memory that pools have reserved.
  MemoryAccount& account() { return account_; }

  // The captures of all devices.
  AnnouncedCaptures& captures() const { return captures_; }
  // Whether a stream of the device captures. Then a wait for the device would break the capture. A question about an
  // event that was recorded on that stream meanwhile would break it too.
  bool capturing() const { return captures_.OnDevice(device()); }
  // kFailedPrecondition while a stream captures. A call that will wait for the device asks this before it changes
  // anything.
  Status CheckNotCapturing() const;

  // Waits on the host for everything submitted to the device, at most until the deadline. Call it before memory is
  // unmapped and before a registration ends (rule 5). Refuses in a capture of the device; kDeadlineExceeded leaves
  // everything as it is, and comes early where `is_vain` says that nobody needs the wait any more. Never call it under
  // a lock below `growth`.
  Status Quiesce(const Patience& patience, FunctionRef<bool()> is_vain = {});

 private:
  const Driver& driver_;
  Place& place_;
  AnnouncedCaptures& captures_;
  MemoryAccount account_;
};

// The devices in use; each is made at its first use. Runtime owns it. The pool factory, communicators that sleep and
// group calls ask it.
class DeviceTable {
 public:
  // `limit`: the first limit of each device.
  explicit DeviceTable(const Driver& driver, const DeviceLimit& limit = {})
      : driver_(driver), limit_(limit), places_(driver), fences_(driver, places_) {}

  // kInvalidArgument for a device that does not exist; the message has the number of devices. Calls the driver at the
  // first use of the device, without the lock.
  Result<std::shared_ptr<DeviceState>> Get(int device);

  // kFailedPrecondition while a stream of one of them captures.
  Status CheckNotCapturing(const std::set<int>& devices);
  // Waits on the host for everything submitted to the devices, as DeviceState::Quiesce does. kFailedPrecondition,
  // before the first wait, while a stream of one of them captures: a wait would break the capture.
  Status Quiesce(const std::set<int>& devices, const Patience& patience, FunctionRef<bool()> is_vain = {});

  StreamPlaces& places() { return places_; }
  FenceTable& fences() { return fences_; }
  AnnouncedCaptures& captures() { return captures_; }
  const AnnouncedCaptures& captures() const { return captures_; }

  // The account for memory at a placement: each device has one, and each host NUMA node. Of a budget: its part of the
  // device's. kNotFound where no budget has the name.
  Result<std::shared_ptr<MemoryAccount>> AccountOf(const Placement& placement, const std::string& budget = "");
  // Makes the budget, or changes its limit on every device.
  void SetBudget(const std::string& name, uint64_t bytes);

 private:
  const Driver& driver_;
  const DeviceLimit limit_;
  AnnouncedCaptures captures_;
  StreamPlaces places_;
  FenceTable fences_;
  Mutex mutex_{LockRank::kLeaf};
  std::map<std::string, uint64_t> budgets_ COMMPOOL_GUARDED_BY(mutex_) = limit_.budgets;  // the limits, by name
  std::map<std::pair<int, std::string>, std::shared_ptr<MemoryAccount>> budget_accounts_ COMMPOOL_GUARDED_BY(mutex_);
  // An entry stays as long as the table.
  std::map<int, std::shared_ptr<DeviceState>> devices_ COMMPOOL_GUARDED_BY(mutex_);
  std::map<int, std::shared_ptr<MemoryAccount>> host_accounts_ COMMPOOL_GUARDED_BY(mutex_);  // by NUMA node
};

}  // namespace commpool::internal
