// AnnouncedCaptures: which devices have an open capture. A capture that was announced to one pool binds all pools of
// the process.
//
// While a device has a capture, we may not wait for the device or ask its streams for progress: that would break the
// capture. Other calls that a capture forbids to every thread, only as a precaution, run in relaxed mode
// (driver/graph_handles.h). Any thread.
#ifndef COMMPOOL_SRC_POOL_SHARED_ANNOUNCED_CAPTURES_H_
#define COMMPOOL_SRC_POOL_SHARED_ANNOUNCED_CAPTURES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <set>

namespace commpool::internal {

// DeviceTable and the device states share one. Pools count captures in and out; no lock, only atomic counts.
class AnnouncedCaptures {
 public:
  // Call them when a capture begins and ends. `devices`: those of its streams and of its pool.
  void Begin(const std::set<int>& devices) { Count(devices, 1); }
  void End(const std::set<int>& devices) { Count(devices, -1); }

  bool any() const { return all_.load(std::memory_order_acquire) > 0; }
  bool OnDevice(int device) const { return CountOf(device).load(std::memory_order_acquire) > 0; }

  // Call it where a destroyed pool cannot release its memory because of a capture: OtherPools asks the pool again once
  // no capture is open.
  void Postpone() { postponed_.store(true, std::memory_order_release); }
  bool TakePostponed() { return !any() && postponed_.exchange(false, std::memory_order_acq_rel); }

 private:
  static constexpr size_t kMostDevices = 64;  // devices beyond share a count

  void Count(const std::set<int>& devices, int change) {
    all_.fetch_add(change, std::memory_order_acq_rel);
    for (const int device : devices) CountOf(device).fetch_add(change, std::memory_order_acq_rel);
  }
  std::atomic<int>& CountOf(int device) { return on_device_[static_cast<size_t>(device) % kMostDevices]; }
  const std::atomic<int>& CountOf(int device) const { return on_device_[static_cast<size_t>(device) % kMostDevices]; }

  std::atomic<bool> postponed_{false};
  std::atomic<int> all_{0};
  std::array<std::atomic<int>, kMostDevices> on_device_ = {};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_ANNOUNCED_CAPTURES_H_
