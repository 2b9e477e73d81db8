#include "src/pool/blocks/kept_blocks.h"

#include <algorithm>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/try.h"

namespace commpool::internal {

namespace {

// Copies are split into parts: several copy engines then work at once, each with its next part ready.
constexpr uint64_t kPartBytes = 64 * kMiB;

}  // namespace

ReservedVector<KeptBlocks::Range> KeptBlocks::LiveRanges(const BlockStore& blocks, uint64_t* bytes) {
  ReservedVector<Range> ranges;
  uint64_t segment = 0;
  for (const commpool_block& block : blocks.List()) {
    if (block.state != COMMPOOL_BLOCK_LIVE) continue;
    const engine::Address address = reinterpret_cast<engine::Address>(block.pointer);
    const bool follows = !ranges.empty() && segment == block.segment &&
                         ranges.back().device.address + ranges.back().device.bytes == address;
    segment = block.segment;
    if (follows) {
      ranges.back().device.bytes += block.bytes;
    } else {
      ranges.push_back({.device = {address, block.bytes}});
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& one, const Range& other) { return one.device.address < other.device.address; });
  *bytes = 0;
  for (Range& range : ranges) {
    range.offset = *bytes;
    *bytes += range.device.bytes;
  }
  return ranges;
}

Status KeptBlocks::Keep(const BlockStore& blocks) {
  uint64_t bytes = 0;
  ReservedVector<Range> ranges = LiveRanges(blocks, &bytes);
  if (bytes == 0) return Status();
  const ContextGuard current = basis_.MakeCurrent();
  PinnedMemory memory = COMMPOOL_TRY(PinnedMemory::Make(basis_.driver, bytes));
  memory_ = std::move(memory);
  ranges_ = std::move(ranges);
  bytes_.store(bytes, std::memory_order_relaxed);
  Status status = Await(Start({.address = 0, .bytes = UINT64_MAX}, Direction::kToHost));
  if (!status.ok()) Drop();
  return status;
}

Status KeptBlocks::StartRestoring(const engine::SegmentRange& range) { return Start(range, Direction::kToDevice); }

Status KeptBlocks::AwaitRestoring() { return Await(Status()); }

Status KeptBlocks::MakeStreams() {
  for (CopyStream& stream : streams_) {
    if (stream.valid()) continue;
    CopyStream made = COMMPOOL_TRY(CopyStream::Make(basis_.driver));
    stream = std::move(made);
  }
  return Status();
}

Status KeptBlocks::Start(const engine::SegmentRange& range, Direction direction) {
  const CUdeviceptr end = range.address + range.bytes;
  auto kept = std::partition_point(ranges_.begin(), ranges_.end(), [&](const Range& before) {
    return before.device.address + before.device.bytes <= range.address;
  });
  Status status = kept == ranges_.end() ? Status() : MakeStreams();
  for (; kept != ranges_.end() && kept->device.address < end; ++kept) {
    const CUdeviceptr last = std::min<CUdeviceptr>(kept->device.address + kept->device.bytes, end);
    uint64_t part = 0;
    for (CUdeviceptr at = std::max<CUdeviceptr>(kept->device.address, range.address); at < last && status.ok();
         at += part) {
      part = std::min<uint64_t>(kPartBytes, last - at);
      const CUdeviceptr host = memory_.address() + kept->offset + (at - kept->device.address);
      CopyStream& stream = streams_[turn_++ % kStreams];
      status = direction == Direction::kToHost ? stream.Copy(host, at, part) : stream.Copy(at, host, part);
    }
  }
  return status;
}

Status KeptBlocks::Await(const Status& started) {
  const ContextGuard current = basis_.MakeCurrent();
  Status status = started;
  for (CopyStream& stream : streams_) {
    if (!stream.valid()) continue;
    Status ended = stream.Await();
    if (status.ok()) status = ended;
  }
  // No copy may still run when its memory is released.
  if (!status.ok()) basis_.driver.cuda.cuCtxSynchronize();
  for (CopyStream& stream : streams_) stream = CopyStream();
  return status;
}

void KeptBlocks::Drop() {
  if (!memory_.valid()) return;
  const ContextGuard current = basis_.MakeCurrent();
  if (basis_.device->health().broken()) memory_.Abandon();
  memory_ = PinnedMemory();
  ranges_.clear();
  bytes_.store(0, std::memory_order_relaxed);
}

}  // namespace commpool::internal
