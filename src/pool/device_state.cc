#include "src/pool/device_state.h"

#include <chrono>
#include <thread>

#include "src/driver/device_info.h"

namespace commpool {

DeviceState::~DeviceState() {
  if (!health_.broken()) {
    // Spare events are destroyed in their own context.
    ContextGuard guard(driver_, context_);
    fences_.Clear();
    return;
  }
  fences_.Abandon();
  context_.Abandon();
}

Status DeviceState::Quiesce(uint64_t deadline_ms) {
  ContextGuard guard(driver_, context_);
  // The legacy stream comes after every blocking stream only, so non-blocking ones need the whole context's wait. That
  // has no bound of its own: a marker in the legacy stream is polled first, which catches the usual endless collective.
  Result<FenceId> marker = fences_.Record(KeyOfStream(CU_STREAM_LEGACY));
  if (!marker.ok()) return marker.status();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms);
  for (;;) {
    Result<bool> passed = fences_.Passed(*marker);
    if (!passed.ok()) return passed.status();
    if (*passed) break;
    if (std::chrono::steady_clock::now() > deadline) {
      return Status(StatusCode::kDeadlineExceeded, "device " + std::to_string(device()) + " is still busy after " +
                                                       std::to_string(deadline_ms) +
                                                       " ms, nothing was released: a collective waits for a rank?");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  fences_.Retire(*marker);
  return fences_.SynchronizeDevice();
}

Result<std::shared_ptr<DeviceState>> DeviceTable::Get(int device) {
  {
    MutexLock lock(mutex_);
    const auto found = devices_.find(device);
    if (found != devices_.end()) return found->second;
  }
  Result<DeviceInfo> info = DescribeDevice(driver_, device);
  if (!info.ok()) return info.status();
  Result<PrimaryContext> context = PrimaryContext::Retain(driver_, device);
  if (!context.ok()) return context.status();
  auto state = std::make_shared<DeviceState>(driver_, std::move(*context));
  MutexLock lock(mutex_);
  return devices_.emplace(device, std::move(state)).first->second;  // another thread may have been faster
}

}  // namespace commpool
