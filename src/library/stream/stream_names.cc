#include "src/library/stream/stream_names.h"

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/graph_handles.h"

namespace commpool::internal {

namespace {

CUstream Left() { return reinterpret_cast<CUstream>(1); }  // no stream's handle: marks an entry that was taken once

}  // namespace

Result<StreamName> StreamNames::NameOf(CUstream stream) const {
  if (const Known* const promised = Find(stream)) {
    const StreamKey identity = promised->key.load(std::memory_order_relaxed);
    return StreamName{KeyOfStream(stream, PlaceOf(identity)), identity};
  }
  const StreamKey name = COMMPOOL_TRY(AskFor(stream));
  const bool numbered = name != NameOfCaptured(stream);
  const StreamKey known = ShownOf(name).key.load(std::memory_order_relaxed);
  if (numbered && WithoutPlace(known) == name) return StreamName{known, known};
  const int place = COMMPOOL_TRY(places_.OfStream(stream));
  const StreamKey key = AtPlace(place, name);
  if (numbered) {
    Show(key, stream);
    return StreamName{key, key};
  }
  // Scopes that began before the capture also catch the captured stream. A stream of another place had this handle
  // before, and is gone.
  const Known& newest = newest_[HashOf(stream) % kShown];
  const StreamKey before = newest.stream.load(std::memory_order_acquire) == stream ? newest.key.load() : key;
  return StreamName{key, PlaceOf(before) == place ? before : key};
}

void StreamNames::Show(StreamKey key, CUstream stream) const {
  // Two writers at once may mix a handle with another's number. Then a message shows a wrong handle, which does no
  // harm.
  for (Known* const entry : {&ShownOf(WithoutPlace(key)), &newest_[HashOf(stream) % kShown]}) {
    entry->key.store(key, std::memory_order_relaxed);
    entry->stream.store(stream, std::memory_order_release);
  }
}

uint64_t StreamNames::ShownHandle(StreamKey key) const {
  const StreamKey name = WithoutPlace(key);
  if (IsPerThread(key)) return name & ~engine::kUnpromisedBit;
  if (!IsUnpromised(key)) return name;
  const Known& shown = ShownOf(name);
  const CUstream stream = shown.stream.load(std::memory_order_acquire);
  return shown.key.load(std::memory_order_relaxed) == key ? reinterpret_cast<uint64_t>(stream) : 0;
}

Result<StreamKey> StreamNames::AskFor(CUstream stream) const {
  const char* const cause = "the stream was destroyed or never made";
  const auto capturing = COMMPOOL_TRY(CaptureStatusOf(driver_, stream, cause));
  if (capturing != CU_STREAM_CAPTURE_STATUS_NONE) return NameOfCaptured(stream);
  unsigned long long id = 0;
  const CUresult result = driver_.cuda.cuStreamGetId(stream, &id);
  COMMPOOL_TRY(CheckCuda(driver_, result, {.call = "cuStreamGetId", .likely_cause = cause}));
  return NameOfId(id);
}

Result<bool> StreamNames::HasNameOf(CUstream stream, StreamKey key) const {
  const StreamKey name = COMMPOOL_TRY(AskFor(stream));
  return name == WithoutPlace(key);
}

const StreamNames::Known* StreamNames::Find(CUstream stream) const {
  for (size_t entry = HashOf(stream);; entry = (entry + 1) % kEntries) {
    const CUstream there = promised_[entry].stream.load(std::memory_order_acquire);
    if (there == nullptr) return nullptr;
    if (there == stream) return &promised_[entry];
  }
}

Status StreamNames::Promise(CUstream stream) {
  if (IsPromised(stream)) return Status();
  const StreamName name = COMMPOOL_TRY(NameOf(stream));
  MutexLock lock(mutex_);
  if (Find(stream) != nullptr) return Status();
  size_t entry = HashOf(stream);
  const auto there = [&] { return promised_[entry].stream.load(std::memory_order_relaxed); };
  while (there() != nullptr && there() != Left()) entry = (entry + 1) % kEntries;
  const bool is_new = there() == nullptr;
  if (is_new && taken_ == kMostPromised) return Status();
  if (is_new) ++taken_;
  promised_[entry].key.store(name.identity, std::memory_order_relaxed);
  promised_[entry].stream.store(stream, std::memory_order_release);
  return Status();
}

// Where no look-up goes on from an entry, it becomes one that was never taken.
void StreamNames::Release(CUstream stream) {
  MutexLock lock(mutex_);
  const Known* const found = Find(stream);
  if (found == nullptr) return;
  const auto at = [&](size_t entry) -> std::atomic<CUstream>& { return promised_[entry % kEntries].stream; };
  size_t entry = static_cast<size_t>(found - promised_.data()) + kEntries;
  at(entry).store(Left(), std::memory_order_release);
  while (at(entry).load(std::memory_order_relaxed) == Left() &&
         at(entry + 1).load(std::memory_order_relaxed) == nullptr) {
    at(entry--).store(nullptr, std::memory_order_release);
    --taken_;
  }
}

}  // namespace commpool::internal
