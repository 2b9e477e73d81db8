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
  for (const KnownPool& known : Pools().Named(id)) AddPoolSegments(known, &found);
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
  for (const KnownPool& known : Pools().Named(id)) AddPoolSegments(known, &found);
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

void Router::attachOutOfMemoryObserver(torch_names::OutOfMemoryObserver observer) {
  ObserveOutOfMemory(observer);
  Native()->attachOutOfMemoryObserver(std::move(observer));
}

#if COMMPOOL_TORCH_AT_LEAST(12)
std::shared_ptr<c10::GatheredContext> Router::getContextForPointer(const void* pointer) {
  auto context = TorchHistory().ContextOf(pointer);
  return context != nullptr ? context : Native()->getContextForPointer(pointer);
}
#endif

}  // namespace commpool::torch_adapter
