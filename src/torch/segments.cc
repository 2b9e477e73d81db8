#include "src/torch/segments.h"

#include <algorithm>

#include "src/torch/commpool_calls.h"

namespace commpool::torch_adapter {
namespace {

constexpr uint64_t kSmallSegment = 2 << 20;  // as in PyTorch
constexpr uint64_t kUnit = 512;              // PyTorch rounds large blocks up to it

void Increase(commpool_counter* counter, uint64_t amount) {
  counter->current += amount;
  counter->total += amount;
  counter->peak = std::max(counter->peak, counter->current);
}

// Returns the counter as if everything that it does not count had always been there. `current` counts everything.
commpool_counter Shifted(commpool_counter counter, uint64_t current) {
  const uint64_t uncounted = current - counter.current;
  return {current, counter.peak + uncounted, counter.total + uncounted};
}

commpool_counter Less(const commpool_counter& counter, uint64_t amount) {
  const uint64_t less = std::min(amount, counter.current);
  return {counter.current - less, counter.peak - less, counter.total - less};
}

uint64_t RoundedUp(uint64_t requested) { return (requested + kUnit - 1) / kUnit * kUnit; }

bool Continues(const commpool_block& before, const commpool_block& block) {
  return before.segment == block.segment && before.state != COMMPOOL_BLOCK_UNMAPPED &&
         static_cast<std::byte*>(before.pointer) + before.bytes == block.pointer;
}

}  // namespace

void LargeBlocks::Made(uint64_t requested) {
  Increase(&requested_bytes, requested);
  Increase(&allocated_bytes, RoundedUp(requested));
  Increase(&allocated_blocks, 1);
}

void LargeBlocks::Freed(uint64_t requested) {
  requested_bytes.current -= requested;
  allocated_bytes.current -= RoundedUp(requested);
  --allocated_blocks.current;
}

void LargeBlocks::ResetPeaks() {
  for (commpool_counter* const counter : {&requested_bytes, &allocated_bytes, &allocated_blocks})
    counter->peak = counter->current;
}

std::vector<commpool_block> BlocksOf(commpool_pool pool) {
  std::vector<commpool_block> blocks;
  size_t count = 0;
  // Other threads may allocate in the meantime, so it asks again until all blocks fit.
  while (Commpool().pool_blocks(pool, blocks.data(), sizeof(commpool_block), blocks.size(), &count) == COMMPOOL_OK) {
    const bool all = count <= blocks.size();
    blocks.resize(all ? count : count + count / 8 + 16);
    if (all) return blocks;
  }
  return {};
}

std::vector<SegmentBlocks> SegmentsOf(commpool_pool pool) {
  std::vector<SegmentBlocks> segments;
  const std::vector<commpool_block> blocks = BlocksOf(pool);
  for (size_t place = 0; place < blocks.size(); ++place) {
    if (blocks[place].state == COMMPOOL_BLOCK_UNMAPPED) continue;
    if (place == 0 || !Continues(blocks[place - 1], blocks[place])) segments.emplace_back();
    segments.back().push_back(blocks[place]);
  }
  return segments;
}

bool IsLarge(const SegmentBlocks& segment) {
  return std::any_of(segment.begin(), segment.end(), [](const commpool_block& block) {
    return block.bytes > (IsActive(block) ? kSmallRequest : kSmallSegment);
  });
}

commpool_statistics LargeOf(commpool_pool pool, const commpool_statistics& all, const LargeBlocks& counted) {
  commpool_statistics large = all;
  uint64_t requested = 0;
  uint64_t allocated = 0;
  uint64_t blocks = 0;
  uint64_t small_segments = 0;
  uint64_t small_reserved = 0;
  large.pending_bytes = 0;
  for (const SegmentBlocks& segment : SegmentsOf(pool)) {
    const bool is_small = !IsLarge(segment);
    small_segments += is_small ? 1 : 0;
    for (const commpool_block& block : segment) {
      if (is_small) small_reserved += block.bytes;
      if (block.bytes <= kSmallRequest) continue;
      if (block.state == COMMPOOL_BLOCK_PENDING) large.pending_bytes += block.bytes;
      if (block.state != COMMPOOL_BLOCK_LIVE) continue;
      requested += block.requested_bytes;
      allocated += block.bytes;
      ++blocks;
    }
  }
  large.requested_bytes = Shifted(counted.requested_bytes, requested);
  large.allocated_bytes = Shifted(counted.allocated_bytes, allocated);
  large.allocated_blocks = Shifted(counted.allocated_blocks, blocks);
  large.reserved_segments = Less(all.reserved_segments, small_segments);
  large.reserved_bytes = Less(all.reserved_bytes, small_reserved);
  return large;
}

}  // namespace commpool::torch_adapter
