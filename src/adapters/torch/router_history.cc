// The router's part for snapshots, recorded history and observers.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "src/adapters/torch/allocation.h"
#include "src/adapters/torch/failures.h"
#include "src/adapters/torch/history.h"
#include "src/adapters/torch/known_pools.h"
#include "src/adapters/torch/router.h"
#include "src/adapters/torch/segments.h"

namespace commpool::torch_adapter {
namespace {

using torch_names::BlockInfo;
using torch_names::SegmentInfo;
using torch_names::SnapshotInfo;
using torch_names::TraceEntry;

void AddBlock(const commpool_block& block, SegmentInfo* segment) {
  BlockInfo info;
  info.size = block.bytes;
  info.allocated = block.state == COMMPOOL_BLOCK_LIVE;
  info.active = IsActive(block);
  info.requested_size = info.active ? block.requested_bytes : 0;
  if (info.allocated) info.context_when_allocated = TorchHistory().ContextOf(block.pointer);
  segment->total_size += block.bytes;
  segment->requested_size += info.requested_size;
  if (info.allocated) segment->allocated_size += block.bytes;
  if (info.active) segment->active_size += block.bytes;
  if (info.allocated && segment->stream == nullptr) segment->stream = ShownStream(block);
  segment->blocks.push_back(info);
}

// Adds ours after PyTorch's own segments and continues their numbers, because a snapshot is ordered by
// registration_counter.
void AddPoolSegments(const KnownPool& known, SnapshotInfo* snapshot) {
#if COMMPOOL_TORCH_AT_LEAST(11)
  int32_t counter = 0;
  for (const SegmentInfo& other : snapshot->segments) counter = std::max(counter, other.registration_counter + 1);
#endif
  for (const SegmentBlocks& blocks : SegmentsOf(known.pool)) {
    SegmentInfo segment;
    segment.device = static_cast<c10::DeviceIndex>(blocks.front().device);
    segment.address = reinterpret_cast<size_t>(blocks.front().pointer);
    segment.owner_private_pool_id = Pools().ShownId(known);
    segment.is_large = IsLarge(blocks);
#if COMMPOOL_TORCH_AT_LEAST(11)
    segment.registration_counter = counter++;
#endif
    for (const commpool_block& block : blocks) AddBlock(block, &segment);
    snapshot->segments.push_back(std::move(segment));
  }
}

// Merges ours into the devices' traces, ordered by time.
void AddPoolTraces(SnapshotInfo* snapshot) {
  for (size_t device = 0; device < snapshot->device_traces.size(); ++device) {
    std::vector<TraceEntry>& trace = snapshot->device_traces[device];
    std::vector<TraceEntry> ours = TorchHistory().TraceOf(static_cast<int>(device));
    const auto middle = static_cast<std::ptrdiff_t>(trace.size());
    std::move(ours.begin(), ours.end(), std::back_inserter(trace));
    std::inplace_merge(trace.begin(), trace.begin() + middle, trace.end(),
                       [](const TraceEntry& one, const TraceEntry& other) { return one.time_.t_ < other.time_.t_; });
  }
}

// Adds ours to what PyTorch's own allocator found. That allocator knows none of our ids: for such an id it returns
// settings and traces, but no segment.
SnapshotInfo WithOurs(SnapshotInfo found, const MempoolId_t& id, bool include_traces) {
  for (const KnownPool& known : Pools().Named(id)) AddPoolSegments(known, &found);
  if (include_traces) AddPoolTraces(&found);
  return found;
}

// If a thread records only ours, the request to PyTorch ends here. The program did not mean what PyTorch would do
// besides, such as to stop the record of pinned memory.
template <typename AskNative>
void Record(const History::Wish& wish, bool clear, const AskNative& ask_native) {
  if (!History::ours_only) ask_native();
  TorchHistory().Record(wish, clear && !History::ours_only);
  TORCH_CHECK(!History::ours_only, "recorded for commpool's pools alone");
}

}  // namespace

#if COMMPOOL_TORCH_AT_LEAST(11)
torch_names::SnapshotInfo Router::snapshot(MempoolId_t id, bool include_traces) {
  return WithOurs(Native()->snapshot(id, include_traces), id, include_traces);
}

void Router::recordHistory(bool enabled, torch_names::CreateContextFn recorder, size_t entries,
                           torch_names::RecordContext when, bool clear, const std::vector<std::string>& skipped) {
  Record({enabled, recorder, entries, when, skipped}, clear,
         [&] { Native()->recordHistory(enabled, recorder, entries, when, clear, skipped); });
}
#else
torch_names::SnapshotInfo Router::snapshot(MempoolId_t id) { return WithOurs(Native()->snapshot(id), id, true); }

void Router::recordHistory(bool enabled, torch_names::CreateContextFn recorder, size_t entries,
                           torch_names::RecordContext when, bool clear) {
  Record({enabled, recorder, entries, when, {}}, clear,
         [&] { Native()->recordHistory(enabled, recorder, entries, when, clear); });
}
#endif

void Router::pushCompileContext(std::string& context) {
  History::PushCompileContext(context);
  Native()->pushCompileContext(context);
}

void Router::popCompileContext() {
  History::PopCompileContext();
  Native()->popCompileContext();
}

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

#if COMMPOOL_TORCH_AT_LEAST(14)
void Router::annotateMemory(const void* pointer, const std::string& metadata) {
  const std::optional<commpool_block> block = OurBlock(pointer);
  if (!block) return Native()->annotateMemory(pointer, metadata);
  TorchHistory().Annotated(*block, metadata);
}
#endif

}  // namespace commpool::torch_adapter
