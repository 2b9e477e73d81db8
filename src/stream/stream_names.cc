#include "src/stream/stream_names.h"

#include "src/base/try.h"
#include "src/driver/diagnosis.h"
#include "src/driver/graph_handles.h"

namespace commpool::internal {

namespace {

CUstream Left() { return reinterpret_cast<CUstream>(1); }  // no stream's handle: marks a place that was taken once

bool IsDefault(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

}  // namespace

Result<StreamName> StreamNames::NameOf(CUstream stream) const {
  if (IsDefault(stream)) return StreamName{KeyOfStream(stream), KeyOfStream(stream)};
  if (const Place* const promised = Find(stream)) {
    return StreamName{KeyOfStream(stream), promised->identity.load(std::memory_order_relaxed)};
  }
  const StreamKey key = COMMPOOL_TRY(AskFor(stream));
  if (key != KeyOfCaptured(stream)) {
    Show(key, stream);
    return StreamName{key, key};
  }
  // Scopes that began before the capture also catch the captured stream.
  const Shown& newest = newest_[PlaceOf(stream) % kShown];
  const StreamKey known = newest.stream.load(std::memory_order_acquire) == stream ? newest.key.load() : key;
  return StreamName{key, known};
}

void StreamNames::Show(StreamKey key, CUstream stream) const {
  Shown& shown = shown_[(key >> 3) % kShown];
  if (shown.key.load(std::memory_order_relaxed) == key) return;
  // Two writers at once may mix a handle with another's number. Then a message shows a wrong handle, which does no
  // harm.
  for (Shown* const place : {&shown, &newest_[PlaceOf(stream) % kShown]}) {
    place->key.store(key, std::memory_order_relaxed);
    place->stream.store(stream, std::memory_order_release);
  }
}

uint64_t StreamNames::ShownHandle(StreamKey key) const {
  if (!IsUnpromised(key)) return key;
  const Shown& shown = shown_[(key >> 3) % kShown];
  const CUstream stream = shown.stream.load(std::memory_order_acquire);
  return shown.key.load(std::memory_order_relaxed) == key ? reinterpret_cast<uint64_t>(stream) : 0;
}

Result<StreamKey> StreamNames::AskFor(CUstream stream) const {
  const char* const cause = "the stream was destroyed or never made";
  const auto capturing = COMMPOOL_TRY(CaptureStatusOf(driver_, stream, cause));
  if (capturing != CU_STREAM_CAPTURE_STATUS_NONE) return KeyOfCaptured(stream);
  unsigned long long id = 0;
  const CUresult result = driver_.cuda.cuStreamGetId(stream, &id);
  if (result == CUDA_ERROR_NOT_SUPPORTED) return KeyOfStream(stream);  // older drivers give no numbers
  COMMPOOL_TRY(CheckCuda(driver_, result, {.call = "cuStreamGetId", .likely_cause = cause}));
  return KeyOfId(id);
}

bool StreamNames::HasKey(CUstream stream, StreamKey key) const {
  const Result<StreamKey> asked = AskFor(stream);
  return asked.ok() && *asked == key;
}

const StreamNames::Place* StreamNames::Find(CUstream stream) const {
  for (size_t place = PlaceOf(stream);; place = (place + 1) % kPlaces) {
    const CUstream there = places_[place].stream.load(std::memory_order_acquire);
    if (there == nullptr) return nullptr;
    if (there == stream) return &places_[place];
  }
}

bool StreamNames::IsPromised(CUstream stream) const { return IsDefault(stream) || Find(stream) != nullptr; }

Status StreamNames::Promise(CUstream stream) {
  if (IsPromised(stream)) return Status();
  const StreamName name = COMMPOOL_TRY(NameOf(stream));
  const StreamKey identity = name.identity;
  MutexLock lock(mutex_);
  if (Find(stream) != nullptr || taken_ == kMostPromised) return Status();
  size_t place = PlaceOf(stream);
  CUstream there = places_[place].stream.load(std::memory_order_relaxed);
  while (there != nullptr && there != Left()) {
    place = (place + 1) % kPlaces;
    there = places_[place].stream.load(std::memory_order_relaxed);
  }
  if (there == nullptr) ++taken_;
  places_[place].identity.store(identity, std::memory_order_relaxed);
  places_[place].stream.store(stream, std::memory_order_release);
  return Status();
}

void StreamNames::Release(CUstream stream) {
  MutexLock lock(mutex_);
  for (size_t place = PlaceOf(stream);; place = (place + 1) % kPlaces) {
    const CUstream there = places_[place].stream.load(std::memory_order_relaxed);
    if (there == nullptr) return;
    if (there == stream) return places_[place].stream.store(Left(), std::memory_order_release);
  }
}

}  // namespace commpool::internal
