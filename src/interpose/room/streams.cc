#include "src/interpose/room/streams.h"

#include <algorithm>

#include "src/interpose/audit/ledger.h"

namespace commpool::run {

namespace {

using audit::RealDriver;
using audit::WithContext;

bool MayCapture(CUstream stream) { return RealDriver::Get().IsCapturing(stream).value_or(true); }

// What fails is not known to be idle.
bool IsDone(CUstream stream) {
  const auto query = RealDriver::Get().cuStreamQuery;
  return query != nullptr && query(stream) == CUDA_SUCCESS;
}

}  // namespace

Streams& Streams::Get() {
  static auto* const streams = new Streams();  // programs end streams in their last destructors
  return *streams;
}

void Streams::MadeContext(CUcontext context, int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  devices_[context] = device;
}

void Streams::EndedContext(CUcontext context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  devices_.erase(context);
  std::erase_if(streams_, [&](const auto& stream) { return stream.second == context; });
  std::erase_if(left_, [&](const Left& left) { return left.context == context; });
}

void Streams::EndedDevice(int device) {
  std::vector<CUcontext> ended;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [context, of] : devices_) {
      if (of == device) ended.push_back(context);
    }
  }
  for (const CUcontext context : ended) EndedContext(context);
}

void Streams::Made(CUstream stream) {
  CUcontext context = nullptr;
  const RealDriver& driver = RealDriver::Get();
  if (driver.cuCtxGetCurrent == nullptr || driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return;
  const int device = driver.CurrentDevice();
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_[stream] = context;
  devices_.try_emplace(context, device);
}

void Streams::Ends(CUstream stream) {
  const RealDriver& driver = RealDriver::Get();
  const Relaxed relaxed;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = streams_.find(stream);
  if (known == streams_.end()) return;
  const CUcontext context = known->second;
  streams_.erase(known);
  if (MayCapture(stream) || IsDone(stream) || driver.cuEventCreate == nullptr) return;
  const WithContext current(driver, context);
  Left left{context, nullptr};
  if (driver.cuEventCreate(&left.event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return;
  driver.cuEventRecord(left.event, stream);
  left_.push_back(left);
}

bool Streams::AnyCaptures() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool has_own = RealDriver::Get().CurrentDevice() != audit::kNoDevice;  // a thread without a context has none
  return (has_own && MayCapture(CU_STREAM_PER_THREAD)) ||
         std::any_of(streams_.begin(), streams_.end(), [](const auto& stream) { return MayCapture(stream.first); });
}

bool Streams::IsIdle(CUcontext context) {
  const WithContext current(RealDriver::Get(), context);
  return IsDone(CU_STREAM_LEGACY) && IsDone(CU_STREAM_PER_THREAD);
}

bool Streams::HasPassed(const Left& left) {
  const RealDriver& driver = RealDriver::Get();
  if (driver.cuEventQuery(left.event) != CUDA_SUCCESS) return false;
  driver.cuEventDestroy(left.event);
  return true;
}

bool Streams::AllIdle() {
  const Relaxed relaxed;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(left_, [&](const Left& left) { return HasPassed(left); });
  return left_.empty() &&
         std::all_of(devices_.begin(), devices_.end(), [&](const auto& context) { return IsIdle(context.first); }) &&
         std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) { return IsDone(stream.first); });
}

}  // namespace commpool::run
