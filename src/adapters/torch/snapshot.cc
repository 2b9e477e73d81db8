#include "src/adapters/torch/snapshot.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "src/adapters/torch/commpool_calls.h"
#include "src/adapters/torch/history.h"
#include "src/adapters/torch/versions.h"

namespace commpool::torch_adapter {
namespace {

using c10::cuda::CUDACachingAllocator::BlockInfo;
using c10::cuda::CUDACachingAllocator::SegmentInfo;
using c10::cuda::CUDACachingAllocator::TraceEntry;

constexpr uint64_t kLargeBlock = 1 << 20;  // PyTorch's border between its small and its large pool

std::vector<commpool_block> BlocksOf(commpool_pool pool) {
  std::vector<commpool_block> blocks;
  size_t count = 0;
  // Other threads allocate meanwhile: asked again until all fit.
  while (Commpool().pool_blocks(pool, blocks.data(), sizeof(commpool_block), blocks.size(), &count) == COMMPOOL_OK) {
    const bool all = count <= blocks.size();
    blocks.resize(all ? count : count + count / 8 + 16);
    if (all) return blocks;
  }
  return {};
}

BlockInfo ToBlock(const commpool_block& block) {
  BlockInfo info;
  info.size = block.bytes;
  info.allocated = block.state == COMMPOOL_BLOCK_LIVE;
  info.active = info.allocated || block.state == COMMPOOL_BLOCK_PENDING;
  info.requested_size = info.active ? block.requested_bytes : 0;
  if (info.allocated) info.context_when_allocated = TorchHistory().ContextOf(block.pointer);
  return info;
}

void AddBlock(const commpool_block& block, SegmentInfo* segment) {
  const BlockInfo info = ToBlock(block);
  segment->total_size += block.bytes;
  segment->requested_size += info.requested_size;
  if (info.allocated) segment->allocated_size += block.bytes;
  if (info.active) segment->active_size += block.bytes;
  if (info.allocated && segment->stream == nullptr) segment->stream = ShownStream(block);
  segment->is_large = segment->total_size > kLargeBlock;
  segment->blocks.push_back(info);
}

// Unmapped addresses of an expandable pool are no memory: they end one segment, and the next mapped block begins
// another.
bool Continues(const commpool_block& before, const commpool_block& block) {
  return before.segment == block.segment && before.state != COMMPOOL_BLOCK_UNMAPPED &&
         static_cast<std::byte*>(before.pointer) + before.bytes == block.pointer;
}

int32_t NextCounter([[maybe_unused]] const SnapshotInfo& snapshot) {
#if COMMPOOL_TORCH_AT_LEAST(11)
  int32_t next = 0;
  for (const SegmentInfo& segment : snapshot.segments) next = std::max(next, segment.registration_counter + 1);
  return next;
#else
  return 0;
#endif
}

}  // namespace

void AddPoolSegments(const KnownPool& known, SnapshotInfo* snapshot) {
  const std::vector<commpool_block> blocks = BlocksOf(known.pool);
  [[maybe_unused]] int32_t counter = NextCounter(*snapshot);
  for (size_t place = 0; place < blocks.size(); ++place) {
    const commpool_block& block = blocks[place];
    if (block.state == COMMPOOL_BLOCK_UNMAPPED) continue;
    if (place == 0 || !Continues(blocks[place - 1], block)) {
      SegmentInfo segment;
      segment.device = static_cast<c10::DeviceIndex>(block.device);
      segment.address = reinterpret_cast<size_t>(block.pointer);
      segment.owner_private_pool_id = known.id;
#if COMMPOOL_TORCH_AT_LEAST(11)
      segment.registration_counter = counter++;
#endif
      snapshot->segments.push_back(segment);
    }
    AddBlock(block, &snapshot->segments.back());
  }
}

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

std::vector<void*> LiveAddresses(const std::vector<KnownPool>& pools) {
  std::vector<void*> addresses;
  for (const KnownPool& known : pools)
    for (const commpool_block& block : BlocksOf(known.pool))
      if (block.state == COMMPOOL_BLOCK_LIVE) addresses.push_back(block.pointer);
  return addresses;
}

}  // namespace commpool::torch_adapter
