// DeviceState: waits for a device with a limit, although the driver has none.
#include "src/pool/shared/device_state.h"

#include <chrono>
#include <thread>

#include "src/base/host_patience.h"
#include "src/base/try.h"
#include "src/driver/device_info.h"

namespace commpool::internal {

// The thread shares the task and copies the driver's table, so it needs nothing of its caller.
std::future<CUresult> BeginToSynchronise(const Driver& driver, const PrimaryContext& context) {
  auto synchronise = std::make_shared<std::packaged_task<CUresult()>>([cuda = driver.cuda, handle = context.get()] {
    // This thread is new and so in global mode: a capture anywhere would forbid the wait.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuda.cuThreadExchangeStreamCaptureMode(&mode);
    const CUresult current = cuda.cuCtxSetCurrent(handle);
    return current == CUDA_SUCCESS ? cuda.cuCtxSynchronize() : current;
  });
  std::future<CUresult> result = synchronise->get_future();
  Insist([&] { std::thread([synchronise] { (*synchronise)(); }).detach(); });
  return result;
}

// The caller keeps the context retained: the thread that waits may need it longer than this call.
Result<CUresult> SynchroniseWithin(const Driver& driver, const PrimaryContext& context, uint64_t deadline_ms) {
  // A collective with a dead rank never ends. When the deadline passes, the wait for it continues on its own thread.
  std::future<CUresult> result = BeginToSynchronise(driver, context);
  if (result.wait_for(std::chrono::milliseconds(deadline_ms)) == std::future_status::ready) return result.get();
  return Status(StatusCode::kDeadlineExceeded, "device " + std::to_string(context.device()) + " is still busy after " +
                                                   std::to_string(deadline_ms) +
                                                   " ms, nothing was changed: a collective waits for a rank?");
}

// For peers, of which the pool has no context of its own.
Result<CUresult> SynchroniseWithin(const Driver& driver, int device, uint64_t deadline_ms) {
  PrimaryContext context = COMMPOOL_TRY(PrimaryContext::Retain(driver, device));
  const Result<CUresult> result = SynchroniseWithin(driver, context, deadline_ms);
  // The wait still runs on its own thread, and needs the context.
  if (!result.ok()) context.Abandon();
  return result;
}

// The last pool of the device, or the table, lets go of it. It waits for nothing.
DeviceState::~DeviceState() {
  if (!health_.broken()) {
    // Destroys spare events in their own context.
    ContextGuard guard(driver_, context_);
    fences_.Clear();
    return;
  }
  // Rule 9: nobody calls the driver for a context that is lost.
  fences_.Abandon();
  context_.Abandon();
}

// The caller refuses with it before anything has changed.
Status DeviceState::CheckNotCapturing(int device) const {
  if (!captures_->OnDevice(device)) return Status();
  return Status(StatusCode::kFailedPrecondition,
                "a stream of device " + std::to_string(device) +
                    " is being captured, and waiting for the device would break the capture: end it first");
}

// A failed wait may be the first news of a lost context, so the result goes through the device's health.
Status DeviceState::Quiesce(uint64_t deadline_ms) {
  if (health_.broken()) return health_.first_error();
  COMMPOOL_TRY(CheckNotCapturing());
  const CUresult result = COMMPOOL_TRY(SynchroniseWithin(driver_, context_, deadline_ms));
  return health_.Check(driver_, result, {.call = "cuCtxSynchronize", .device = device()});
}

// Asks again and again: a wait of the driver for an event has no limit.
Status DeviceState::Await(FenceId fence, uint64_t deadline_ms) {
  ContextGuard guard(driver_, context_);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms);
  for (;;) {
    bool passed = COMMPOOL_TRY(fences_.Passed(fence));
    if (passed) return Status();
    if (std::chrono::steady_clock::now() > deadline) {
      return Status(StatusCode::kDeadlineExceeded, "another device still uses memory of device " +
                                                       std::to_string(device()) + " after " +
                                                       std::to_string(deadline_ms) + " ms, nothing was released");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// Makes the state without the lock, because that calls the driver. Of two threads that race one wins, and both get its
// state.
Result<std::shared_ptr<DeviceState>> DeviceTable::Get(int device) {
  {
    MutexLock lock(mutex_);
    const auto found = devices_.find(device);
    if (found != devices_.end()) return found->second;
  }
  DeviceInfo info = COMMPOOL_TRY(DescribeDevice(driver_, device));
  PrimaryContext context = COMMPOOL_TRY(PrimaryContext::Retain(driver_, device));
  auto state = std::make_shared<DeviceState>(driver_, std::move(context), info.total_bytes, captures_);
  // Before another thread can find the state.
  state->account().SetLimit(limit_.For(info.total_bytes));
  MutexLock lock(mutex_);
  return devices_.emplace(device, std::move(state)).first->second;  // another thread may have been faster
}

// The pointer to a device's account keeps the whole state of the device alive.
Result<std::shared_ptr<MemoryAccount>> DeviceTable::AccountOf(const Placement& placement) {
  if (placement.kind == Placement::Kind::kDevice) {
    std::shared_ptr<DeviceState> state = COMMPOOL_TRY(Get(placement.device));
    return std::shared_ptr<MemoryAccount>(state, &state->account());
  }
  MutexLock lock(mutex_);
  std::shared_ptr<MemoryAccount>& account = host_accounts_[placement.numa_node];
  if (account == nullptr) {
    account = std::make_shared<MemoryAccount>(NameOf(placement));
  }
  return account;
}

}  // namespace commpool::internal
