#include "src/emulator/nccl/live_communicators.h"

#include <string>
#include <utility>

namespace commpool::emulated_nccl {

LiveCommunicators& LiveCommunicators::Get() {
  // Never destroyed: detached threads may end after main.
  static auto* const live = new LiveCommunicators;
  return *live;
}

ncclComm_t LiveCommunicators::Add(std::shared_ptr<Communicator> communicator) {
  const std::lock_guard lock(mutex_);
  const ncclComm_t handle = communicator->handle();
  live_[handle] = std::move(communicator);
  return handle;
}

std::shared_ptr<Communicator> LiveCommunicators::Find(ncclComm_t handle) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(handle);
  return found == live_.end() ? nullptr : found->second;
}

void LiveCommunicators::Remove(ncclComm_t handle) {
  const std::lock_guard lock(mutex_);
  live_.erase(handle);
}

ncclResult_t EnterCall(const char* name) {
  const int injected = GetDriver().commpoolEmulatorEnterCall(name);
  return injected < 0 ? ncclSuccess : static_cast<ncclResult_t>(injected);
}

std::shared_ptr<Communicator> FindReported(const char* name, ncclComm_t handle) {
  if (handle == nullptr) return nullptr;
  std::shared_ptr<Communicator> found = LiveCommunicators::Get().Find(handle);
  if (found == nullptr) {
    // Use after free in NCCL itself.
    GetDriver().commpoolEmulatorReport("use of a communicator that does not exist", name);
  }
  return found;
}

Call::Call(const char* name, ncclComm_t handle) : result_(EnterCall(name)) {
  if (result_ != ncclSuccess) return;
  communicator_ = FindReported(name, handle);
  if (communicator_ == nullptr) {
    result_ = ncclInvalidArgument;
    return;
  }
  entered_ = communicator_->Enter(name);
  if (!entered_) result_ = ncclInvalidUsage;
}

Call::~Call() {
  if (entered_) communicator_->Leave();
}

}  // namespace commpool::emulated_nccl
