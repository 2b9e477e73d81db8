#include "src/torch/history.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "src/torch/known_pools.h"
#include "src/torch/segments.h"

namespace commpool::torch_adapter {
namespace {

using torch_names::SegmentInfo;
using torch_names::SnapshotInfo;
using Entry = History::Entry;
using Action = Entry::Action;

constexpr const char* kNoCompileContext = "N/A";  // PyTorch's text

// Returns the stream of a block as PyTorch shows it: the default stream is 0.
cudaStream_t ShownStream(const commpool_block& block) {
  auto* stream = reinterpret_cast<cudaStream_t>(block.stream);
  return stream == cudaStreamLegacy ? nullptr : stream;
}

void AddBlock(const commpool_block& block, SegmentInfo* segment) {
  torch_names::BlockInfo info;
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
    std::vector<Entry>& trace = snapshot->device_traces[device];
    std::vector<Entry> ours = TorchHistory().TraceOf(static_cast<int>(device));
    const auto middle = static_cast<std::ptrdiff_t>(trace.size());
    std::move(ours.begin(), ours.end(), std::back_inserter(trace));
    std::inplace_merge(trace.begin(), trace.begin() + middle, trace.end(),
                       [](const Entry& one, const Entry& other) { return one.time_.t_ < other.time_.t_; });
  }
}

}  // namespace

History::Entry History::MakeEntry(Action action, const commpool_block& block, uint64_t bytes, Context context) {
  const std::optional<KnownPool> known = Pools().Of(block.pool);
  Entry entry = {action,
                 static_cast<c10::DeviceIndex>(block.device),
                 reinterpret_cast<size_t>(block.pointer),
                 bytes,
                 ShownStream(block),
                 known ? Pools().ShownId(*known) : kEverything,
                 c10::getApproximateTime(),
                 std::move(context),
                 compile_contexts_.empty() ? kNoCompileContext : compile_contexts_.back()};
#if COMMPOOL_TORCH_AT_LEAST(10)
  entry.user_metadata_ = Native()->getUserMetadata();  // this thread's
#endif
  return entry;
}

History& TorchHistory() {
  static History* history = new History;
  return *history;
}

void History::Record(const Request& request, bool clear) {
  const std::lock_guard lock(mutex_);
  request_ = request;
  if (clear || !request.enabled) {
    traces_.clear();
    if (!request.enabled) contexts_.clear();
  }
  wanted_.store(request.enabled, std::memory_order_relaxed);
}

History::Context History::Gather(RecordContext level) {
  torch_names::CreateContextFn recorder = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (request_.when >= level) recorder = request_.recorder;
  }
  return recorder == nullptr ? nullptr : recorder();  // it may take Python's lock, so it is never called under ours
}

void History::Append(const char* name, Entry entry) {
  if (std::count(request_.skipped.begin(), request_.skipped.end(), name) != 0) return;
  std::deque<Entry>& trace = traces_[entry.device_];
  trace.push_back(std::move(entry));
  while (trace.size() > request_.entries) trace.pop_front();
}

void History::Allocated(const commpool_block& block) {
  const Context context = Gather(RecordContext::STATE);
  Entry entry = MakeEntry(Action::ALLOC, block, block.requested_bytes, nullptr);
  const std::lock_guard lock(mutex_);
  if (!request_.enabled) return;
  contexts_[block.pointer] = context;
  if (request_.when >= RecordContext::ALLOC) entry.context_ = context;
  Append("alloc", std::move(entry));
}

void History::Freed(const commpool_block& block) {
  const Context context = Gather(RecordContext::ALL);
  const std::lock_guard lock(mutex_);
  contexts_.erase(block.pointer);
  if (!request_.enabled) return;
  Append("free_requested", MakeEntry(Action::FREE_REQUESTED, block, block.requested_bytes, context));
  Append("free_completed", MakeEntry(Action::FREE_COMPLETED, block, block.requested_bytes, context));
}

void History::OutOfMemory(int device, uint64_t bytes, uint64_t device_free) {
  commpool_block block = {};
  block.device = device;
  // as in PyTorch: for this action the address is the free memory
  block.pointer = reinterpret_cast<void*>(device_free);
  const Context context = Gather(RecordContext::ALLOC);
  const std::lock_guard lock(mutex_);
  if (request_.enabled) Append("oom", MakeEntry(Action::OOM, block, bytes, context));
}

#if COMMPOOL_TORCH_AT_LEAST(14)
void History::Annotated(const commpool_block& block, const std::string& metadata) {
  if (!Wanted()) return;
  Entry entry = MakeEntry(Action::ANNOTATE, block, block.requested_bytes, Gather(RecordContext::ALLOC));
  entry.user_metadata_ = metadata;
  const std::lock_guard lock(mutex_);
  if (request_.enabled) Append("annotate", std::move(entry));
}
#endif

History::Context History::ContextOf(const void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = contexts_.find(pointer);
  return found == contexts_.end() ? nullptr : found->second;
}

std::vector<History::Entry> History::TraceOf(int device) {
  std::vector<Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    const auto found = traces_.find(device);
    if (found == traces_.end()) return entries;
    entries.assign(found->second.begin(), found->second.end());
  }
  static c10::ApproximateClockToUnixTimeConverter clock;
  const auto to_nanoseconds = clock.makeConverter();
  for (Entry& entry : entries) entry.time_.t_ = to_nanoseconds(entry.time_.approx_t_) / 1000;
  return entries;
}

SnapshotInfo WithOurs(SnapshotInfo found, const MempoolId_t& id, bool include_traces) {
  for (const KnownPool& known : Pools().Named(id)) AddPoolSegments(known, &found);
  if (include_traces) AddPoolTraces(&found);
  return found;
}

}  // namespace commpool::torch_adapter
