// DeviceState: waits for a device with a limit, although the driver has none.
#include "src/library/pool/shared/device_state.h"

#include <vector>

#include "src/library/base/interruption.h"
#include "src/library/base/start_thread.h"
#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"

namespace commpool::internal {

// The thread shares the task and copies the driver's table, so it needs nothing of its caller.
Result<std::future<CUresult>> BeginToSynchronise(const Driver& driver, const PrimaryContext& context) {
  auto entering = std::make_shared<std::promise<void>>();
  const std::future<void> entered = entering->get_future();
  auto wait = [cuda = driver.cuda, handle = context.get(), entering] {
    // This thread is new and so in global mode: a capture anywhere would forbid the wait.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuda.cuThreadExchangeStreamCaptureMode(&mode);
    const CUresult current = cuda.cuCtxSetCurrent(handle);
    entering->set_value();
    return current == CUDA_SUCCESS ? cuda.cuCtxSynchronize() : current;
  };
  auto synchronise = std::make_shared<std::packaged_task<CUresult()>>(std::move(wait));
  std::future<CUresult> result = synchronise->get_future();
  COMMPOOL_TRY(StartThread("a wait for a device", [synchronise] { (*synchronise)(); })).detach();
  entered.wait();  // else it could begin much later, in a capture of the program, and break it
  return result;
}

// The caller refuses with it before anything has changed. The question to the legacy stream breaks no capture; a
// capture of a nonblocking stream that nobody announced does not show there, and nobody can find it.
Status DeviceState::CheckNotCapturing() const {
  if (!capturing()) {
    if (place_.health.broken()) return Status();  // rule 9
    const ContextGuard current(driver_, context());
    CUstreamCaptureStatus unspecified = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = driver_.cuda.cuStreamIsCapturing(CU_STREAM_LEGACY, &unspecified);
    if (result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
      return place_.health.Check(driver_, result, {.call = "cuStreamIsCapturing", .device = device()});
    }
  }
  return FailedPrecondition("a stream of device ", device(),
                            " is being captured, and waiting for the device would break the capture: end it first");
}

// A failed wait may be the first news of a lost context, so the result goes through the device's health.
Status DeviceState::Quiesce(const Patience& patience, FunctionRef<bool()> is_vain) {
  if (health().broken()) return health().first_error();
  COMMPOOL_TRY(CheckNotCapturing());
  // A collective with a dead rank never ends. When the deadline passes, the wait for it continues on its own thread,
  // which may need the context longer than this call: the place keeps it retained.
  std::future<CUresult> wait = COMMPOOL_TRY(BeginToSynchronise(driver_, context()));
  WaitSlices slices(patience.end);
  do {
    const auto next_look = is_vain ? std::chrono::steady_clock::now() + std::chrono::milliseconds(20) : slices.end();
    if (wait.wait_until(next_look) == std::future_status::ready) {
      return health().Check(driver_, wait.get(), {.call = "cuCtxSynchronize", .device = device()});
    }
  } while (!slices.Over() && !(is_vain && is_vain()));
  return DeadlineExceeded("device ", device(), " is still busy after ", patience.ms,
                          " ms, nothing was changed: a collective waits for a rank?");
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
  Place* const place = COMMPOOL_TRY(places_.Get(device));
  auto state = std::make_shared<DeviceState>(driver_, *place, info.total_bytes, captures_);
  // Before another thread can find the state.
  state->account().SetLimit(limit_.For(info.total_bytes));
  state->account().SetHeadroom(limit_.headroom);
  MutexLock lock(mutex_);
  return devices_.emplace(device, std::move(state)).first->second;  // another thread may have been faster
}

Status DeviceTable::CheckNotCapturing(const std::set<int>& devices) {
  for (const int device : devices) {
    const std::shared_ptr<DeviceState> state = COMMPOOL_TRY(Get(device));
    COMMPOOL_TRY(state->CheckNotCapturing());
  }
  return Status();
}

Status DeviceTable::Quiesce(const std::set<int>& devices, const Patience& patience, FunctionRef<bool()> is_vain) {
  COMMPOOL_TRY(CheckNotCapturing(devices));
  for (const int device : devices) {
    const std::shared_ptr<DeviceState> state = COMMPOOL_TRY(Get(device));
    COMMPOOL_TRY(state->Quiesce(patience, is_vain));
  }
  return Status();
}

// The pointer to a device's account keeps the whole state of the device alive.
Result<std::shared_ptr<MemoryAccount>> DeviceTable::AccountOf(const Placement& placement, const std::string& budget) {
  if (placement.kind == Placement::Kind::kDevice) {
    std::shared_ptr<DeviceState> state = COMMPOOL_TRY(Get(placement.device));
    std::shared_ptr<MemoryAccount> whole(state, &state->account());
    if (budget.empty()) return whole;
    MutexLock lock(mutex_);
    const auto limit = budgets_.find(budget);
    if (limit == budgets_.end()) return NotFound("there is no budget named ", budget, ": make it before the pool");
    std::shared_ptr<MemoryAccount>& part = budget_accounts_[{placement.device, budget}];
    if (part == nullptr) {
      const std::string place = "budget " + budget + " of " + whole->place();
      part = std::make_shared<MemoryAccount>(place, whole->capacity(), whole, limit->second);
    }
    return part;
  }
  MutexLock lock(mutex_);
  std::shared_ptr<MemoryAccount>& account = host_accounts_[placement.numa_node];
  if (account == nullptr) account = std::make_shared<MemoryAccount>(NameOf(placement));
  return account;
}

// Pools take from the accounts meanwhile: each has a lock of its own.
void DeviceTable::SetBudget(const std::string& name, uint64_t bytes) {
  std::vector<std::shared_ptr<MemoryAccount>> parts;
  {
    MutexLock lock(mutex_);
    budgets_[name] = bytes;
    for (const auto& [place, part] : budget_accounts_) {
      if (place.second == name) parts.push_back(part);
    }
  }
  for (const std::shared_ptr<MemoryAccount>& part : parts) part->SetLimit(bytes);
}

}  // namespace commpool::internal
