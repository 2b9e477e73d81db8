#include "src/pool/blocks/kept_blocks.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/bytes.h"

namespace commpool::internal {

namespace {

// Two engines copy in each direction, and each should find its next part waiting.
constexpr size_t kStreams = 4;
constexpr uint64_t kPartBytes = 64 * kMiB;

}  // namespace

Status KeptBlocks::Keep(const PoolBasis& basis, const BlockStore& blocks) {
  ReservedVector<engine::SegmentRange> ranges;
  uint64_t bytes = 0;
  engine::SegmentIndex segment = 0;
  for (const BlockDescription& block : blocks.List()) {
    if (block.state != BlockState::kLive) continue;
    bytes += block.range.bytes;
    const bool follows = !ranges.empty() && segment == block.segment &&
                         ranges.back().address + ranges.back().bytes == block.range.address;
    segment = block.segment;
    if (follows) {
      ranges.back().bytes += block.range.bytes;
    } else {
      ranges.push_back(block.range);
    }
  }
  if (bytes == 0) return Status();
  const ContextGuard current = basis.MakeCurrent();
  Result<PinnedMemory> memory = PinnedMemory::Make(basis.driver, bytes);
  if (!memory.ok()) return memory.status();
  memory_ = std::move(*memory);
  ranges_ = std::move(ranges);
  bytes_.store(bytes, std::memory_order_relaxed);
  Status status = Copy(basis, Direction::kToHost);
  if (!status.ok()) Drop(basis);
  return status;
}

Status KeptBlocks::Restore(const PoolBasis& basis) {
  return memory_.valid() ? Copy(basis, Direction::kToDevice) : Status();
}

Status KeptBlocks::Copy(const PoolBasis& basis, Direction direction) {
  const ContextGuard current = basis.MakeCurrent();
  std::array<CopyStream, kStreams> streams;
  Status status;
  for (CopyStream& stream : streams) {
    Result<CopyStream> made = CopyStream::Make(basis.driver);
    if (!made.ok()) return made.status();
    stream = std::move(*made);
  }
  size_t turn = 0;
  CUdeviceptr host = memory_.address();
  for (const engine::SegmentRange& range : ranges_) {
    for (uint64_t done = 0, part = 0; done < range.bytes && status.ok(); done += part, host += part) {
      part = std::min(kPartBytes, range.bytes - done);
      const CUdeviceptr device = range.address + done;
      CopyStream& stream = streams[turn++ % kStreams];
      status = direction == Direction::kToHost ? stream.Copy(host, device, part) : stream.Copy(device, host, part);
    }
  }
  for (CopyStream& stream : streams) {
    Status ended = stream.Await();
    if (status.ok()) status = ended;
  }
  // Nothing may run on when its memory goes.
  if (!status.ok()) basis.driver.cuda.cuCtxSynchronize();
  return status;
}

void KeptBlocks::Drop(const PoolBasis& basis) {
  if (!memory_.valid()) return;
  const ContextGuard current = basis.MakeCurrent();
  if (basis.device->health().broken()) memory_.Abandon();
  memory_ = PinnedMemory();
  bytes_.store(0, std::memory_order_relaxed);
}

}  // namespace commpool::internal
