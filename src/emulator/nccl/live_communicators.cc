#include "src/emulator/nccl/live_communicators.h"

#include <string>
#include <utility>

#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/releases.h"

namespace commpool::internal::emulated_nccl {

LiveCommunicators& LiveCommunicators::Get() {
  // Never destroyed, because detached threads may end after main.
  static auto* const live = new LiveCommunicators;
  return *live;
}

ncclComm_t LiveCommunicators::Add(std::shared_ptr<EmulatedCommunicator> communicator) {
  const std::lock_guard lock(mutex_);
  const ncclComm_t handle = communicator->handle();
  live_[handle] = {std::move(communicator), nullptr};
  return handle;
}

ncclComm_t LiveCommunicators::Reserve(std::shared_ptr<AsyncWork> work) {
  const std::lock_guard lock(mutex_);
  const auto handle = reinterpret_cast<ncclComm_t>(work.get());
  live_[handle] = {nullptr, std::move(work)};
  return handle;
}

bool LiveCommunicators::Fill(ncclComm_t handle, std::shared_ptr<EmulatedCommunicator> communicator) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(handle);
  if (found == live_.end() || found->second.work != communicator->async()) return false;
  found->second.communicator = std::move(communicator);
  return true;
}

LiveCommunicators::Entry LiveCommunicators::Find(ncclComm_t handle) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(handle);
  return found == live_.end() ? Entry() : found->second;
}

LiveCommunicators::Entry LiveCommunicators::Remove(ncclComm_t handle) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(handle);
  if (found == live_.end()) return {};
  Entry removed = std::move(found->second);
  live_.erase(found);
  return removed;
}

ncclResult_t EnterCall(const char* name) {
  if (ClaimedVersion() < FirstReleaseOf(name)) {
    // The real library of that release lacks the symbol, so a program that links it would not start.
    COMMPOOL_NCCL_WARN("NCCL %d has no %s, which begins with %d", ClaimedVersion(), name, FirstReleaseOf(name));
    return ncclInvalidUsage;
  }
  const int injected = GetDriver().commpoolEmulatorEnterCall(name);
  return injected < 0 ? ncclSuccess : static_cast<ncclResult_t>(injected);
}

LiveCommunicators::Entry FindEntry(const char* name, ncclComm_t handle) {
  if (handle == nullptr) return {};
  LiveCommunicators::Entry found = LiveCommunicators::Get().Find(handle);
  if (!found.exists()) {
    // In NCCL itself this would be a use after free.
    GetDriver().commpoolEmulatorReport("use of a communicator that does not exist", name);
  }
  return found;
}

namespace {

// NCCL 2.28.9, src/init.cc: the program must ask ncclCommGetAsyncError until a nonblocking communicator is ready.
ncclResult_t CheckReady(ncclComm_t handle, LiveCommunicators::Entry* entry) {
  if (!entry->exists()) return ncclInvalidArgument;
  const ncclResult_t state = entry->work == nullptr ? ncclSuccess : entry->work->result();
  // The initialisation may have ended since the look-up.
  if (entry->communicator == nullptr) *entry = LiveCommunicators::Get().Find(handle);
  if (state == ncclSuccess && entry->communicator == nullptr) return ncclInvalidArgument;
  if (state != ncclInProgress) return state;
  COMMPOOL_NCCL_WARN("Attempt to use communicator before the previous operation returned ncclSuccess");
  return ncclInvalidArgument;
}

}  // namespace

std::shared_ptr<EmulatedCommunicator> FindReported(const char* name, ncclComm_t handle) {
  LiveCommunicators::Entry found = FindEntry(name, handle);
  return CheckReady(handle, &found) == ncclSuccess ? found.communicator : nullptr;
}

Call::Call(const char* name, ncclComm_t handle, Unfinished unfinished) : result_(EnterCall(name)) {
  if (result_ != ncclSuccess) return;
  LiveCommunicators::Entry found = FindEntry(name, handle);
  if (unfinished == Unfinished::kWait && found.work != nullptr) {
    found.work->Wait();
    communicator_ = LiveCommunicators::Get().Find(handle).communicator;
    if (communicator_ == nullptr) return;
  } else if (unfinished == Unfinished::kGoOn && found.communicator != nullptr) {
    communicator_ = found.communicator;
  } else {
    result_ = CheckReady(handle, &found);
    if (result_ != ncclSuccess) return;
    communicator_ = found.communicator;
  }
  entered_ = communicator_->Enter(name);
  if (!entered_) result_ = ncclInvalidUsage;
}

Call::~Call() {
  if (entered_) communicator_->Leave();
}

}  // namespace commpool::internal::emulated_nccl
