#include "src/library/stream/stream_places.h"

#include <memory>

#include "src/library/base/check.h"
#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

Result<CUcontext> CurrentContext(const Driver& driver) {
  CUcontext context = nullptr;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuCtxGetCurrent(&context), {.call = "cuCtxGetCurrent"}));
  return context;
}

}  // namespace

Result<bool> Place::IsCapturing(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver.cuda.cuStreamIsCapturing(stream, &status);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  COMMPOOL_TRY(health.Check(driver, result, {.call = "cuStreamIsCapturing"}));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

StreamPlaces::~StreamPlaces() {
  for (std::atomic<Place*>& entry : places_) {
    const std::unique_ptr<Place> place(entry.load());
    if (place != nullptr && place->health.broken()) place->context.Abandon();
  }
}

// Retains the context without the lock. Of two threads that race one wins, and both get its place.
Result<Place*> StreamPlaces::Get(int device) {
  if (device < 0 || static_cast<size_t>(device) >= kMostPlaces) return InvalidArgument("there is no device ", device);
  std::atomic<Place*>& entry = places_[static_cast<size_t>(device)];
  if (Place* const known = entry.load(std::memory_order_acquire)) return known;
  auto place = std::make_unique<Place>();
  place->context = COMMPOOL_TRY(PrimaryContext::Retain(driver_, device));
  MutexLock lock(mutex_);
  if (entry.load() == nullptr) entry.store(place.release(), std::memory_order_release);
  return entry.load();
}

Place& StreamPlaces::At(int device) const {
  Place* const place = places_[static_cast<size_t>(device)].load(std::memory_order_acquire);
  COMMPOOL_CHECK(place != nullptr, "a stream's key names a device that was never in use");
  return *place;
}

Result<int> StreamPlaces::OfContext(CUcontext context) {
  for (const std::atomic<Place*>& entry : places_) {
    const Place* const place = entry.load(std::memory_order_acquire);
    if (place != nullptr && place->context.get() == context) return place->device();
  }
  const ContextGuard guard(driver_, context);
  CUdevice device = 0;
  COMMPOOL_TRY(CheckCuda(driver_, driver_.cuda.cuCtxGetDevice(&device), {.call = "cuCtxGetDevice"}));
  const Place* const place = COMMPOOL_TRY(Get(device));
  if (place->context.get() == context) return device;
  return NotSupported("the stream belongs to a context of device ", device,
                      " that is not its primary context, as cuCtxCreate makes them: make the stream while the primary "
                      "context is current (cuDevicePrimaryCtxRetain, or cudaSetDevice)");
}

Result<std::optional<int>> StreamPlaces::Current() {
  const CUcontext context = COMMPOOL_TRY(CurrentContext(driver_));
  if (context == nullptr) return std::optional<int>();
  const int device = COMMPOOL_TRY(OfContext(context));
  return std::optional<int>(device);
}

// The driver answers only where some context is current. A thread without one borrows that of device 0.
Result<int> StreamPlaces::OfStream(CUstream stream) {
  const ContextGuard put_back(driver_);
  const CUcontext current = COMMPOOL_TRY(CurrentContext(driver_));
  if (current == nullptr) {
    const Place* const borrowed = COMMPOOL_TRY(Get(0));
    driver_.cuda.cuCtxSetCurrent(borrowed->context.get());
  }
  CUcontext context = nullptr;
  COMMPOOL_TRY(CheckCuda(driver_, driver_.cuda.cuStreamGetCtx(stream, &context),
                         {.call = "cuStreamGetCtx", .likely_cause = "the stream was destroyed or never made"}));
  return OfContext(context);
}

}  // namespace commpool::internal
