// The router's part that is about snapshots, recorded history and observers.
#include <utility>

#include "src/adapters/torch/earlier.h"
#include "src/adapters/torch/failures.h"
#include "src/adapters/torch/history.h"
#include "src/adapters/torch/known_pools.h"
#include "src/adapters/torch/router.h"
#include "src/adapters/torch/snapshot.h"

namespace commpool::torch_adapter {
namespace {

constexpr MempoolId_t kEverything = {0, 0};

void AddOurs(const MempoolId_t& id, SnapshotInfo* snapshot) {
  const commpool_pool named = Pools().Named(id);
  for (int device = 0; device < KnownPools::kDevices; ++device)
    for (const KnownPool& known : Pools().OfDevice(device))
      if (id == kEverything || known.pool == named) AddPoolSegments(known, snapshot);
}

// Ends what PyTorch was asked for here: of what it would do else, as record pinned memory no more, nothing was meant.
[[noreturn]] void RecordOursOnly(const History::Wish& wish) {
  TorchHistory().Record(wish, false);
  TORCH_CHECK(false, "recorded for commpool's pools alone");
}

}  // namespace

// PyTorch's own allocator knows none of our ids: asked for one it has settings and traces, and no segment.
#if COMMPOOL_TORCH_AT_LEAST(11)
torch_names::SnapshotInfo Router::snapshot(MempoolId_t id, bool include_traces) {
  torch_names::SnapshotInfo found = Native()->snapshot(id, include_traces);
  AddOurs(id, &found);
  if (include_traces) AddPoolTraces(&found);
  return found;
}

void Router::recordHistory(bool enabled, torch_names::CreateContextFn recorder, size_t entries,
                           torch_names::RecordContext when, bool clear, const std::vector<std::string>& skipped) {
  if (RecordsOursOnly()) RecordOursOnly({enabled, recorder, entries, when, skipped});
  Native()->recordHistory(enabled, recorder, entries, when, clear, skipped);
  TorchHistory().Record({enabled, recorder, entries, when, skipped}, clear);
}
#else
torch_names::SnapshotInfo Router::snapshot(MempoolId_t id) {
  torch_names::SnapshotInfo found = Native()->snapshot(id);
  AddOurs(id, &found);
  AddPoolTraces(&found);
  return found;
}

void Router::recordHistory(bool enabled, torch_names::CreateContextFn recorder, size_t entries,
                           torch_names::RecordContext when, bool clear) {
  if (RecordsOursOnly()) RecordOursOnly({enabled, recorder, entries, when, {}});
  Native()->recordHistory(enabled, recorder, entries, when, clear);
  TorchHistory().Record({enabled, recorder, entries, when, {}}, clear);
}
#endif

void Router::recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) {
  Native()->recordAnnotation(annotation);
}

void Router::attachOutOfMemoryObserver(torch_names::OutOfMemoryObserver observer) {
  ObserveOutOfMemory(observer);
  Native()->attachOutOfMemoryObserver(std::move(observer));
}

void Router::attachAllocatorTraceTracker(torch_names::AllocatorTraceTracker tracker) {
  Native()->attachAllocatorTraceTracker(std::move(tracker));
}

#if COMMPOOL_TORCH_AT_LEAST(12)
void Router::attachOomRejectionObserver(torch_names::OomRejectionObserver observer) {
  Native()->attachOomRejectionObserver(std::move(observer));
}

std::shared_ptr<c10::GatheredContext> Router::getContextForPointer(const void* pointer) {
  auto context = TorchHistory().ContextOf(pointer);
  return context != nullptr ? context : Native()->getContextForPointer(pointer);
}
#endif

#if COMMPOOL_TORCH_AT_LEAST(14)
void Router::annotateMemory(const void* pointer, const std::string& metadata) {
  Native()->annotateMemory(pointer, metadata);
}
#endif

}  // namespace commpool::torch_adapter
