// GraphBlocks: the waits before a capture gets a block, and the fences that the block needs once its graph is gone.
#include "src/pool/symmetric/graph_blocks.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "src/base/try.h"
#include "src/driver/graph_handles.h"

namespace commpool::internal {

// An event that exists is waited for. Else a new one behind all of the stream's work, where an event can be recorded on
// that stream.
Status GraphBlocks::Await(const engine::StreamUse& use) const {
  // A stream without a fence captures nothing here: the caller has looked.
  FenceTable& fences = basis_.fences();
  if (use.fence != engine::kNoFence) return fences.Await(use.fence, basis_.deadline_ms());
  if (!IsReachable(use.stream)) {
    return Status(StatusCode::kFailedPrecondition,
                  "the block was used on another thread's default stream, or on one that may be gone (option streams), "
                  "which a capture cannot wait for: synchronise "
                  "the device before the capture and reclaim()");
  }
  const FenceId fence = COMMPOOL_TRY(fences.Record(use.stream));
  Status status = fences.Await(fence, basis_.deadline_ms());
  fences.Retire(fence);
  return status;
}

// A wait on the device for work outside of the capture would pull that work into the graph, or fail. So the host waits.
Status GraphBlocks::AwaitOutside(engine::Part part, std::vector<engine::StreamUse>* waits) const {
  if (waits->empty()) return Status();
  // The calls below are made while a stream captures, which allows them in relaxed mode only.
  const RelaxedCapture relaxed(basis_.driver);
  PoolEvents::Count(basis_.events.host_waits);
  std::vector<engine::StreamUse> inside;
  for (const engine::StreamUse& use : *waits) {
    // A use by a stream of this capture needs no wait of the host.
    const engine::Part user = COMMPOOL_TRY(captures_.PartOf(use.stream));
    if (use.fence == engine::kNoFence && user == part) {
      inside.push_back(use);
      continue;
    }
    if (use.fence == engine::kNoFence && user != engine::kCommonPart) {
      return Status(
          StatusCode::kFailedPrecondition,
          basis_.title + ": the block was used on a stream of another capture, which this one cannot wait for");
    }
    Status status = Await(use);
    if (!status.ok()) return basis_.Named(status);
  }
  *waits = std::move(inside);
  return Status();
}

void GraphBlocks::Add(CUdeviceptr address, engine::Sequence sequence, engine::Part part) {
  graph_blocks_[address] = {.sequence = sequence, .part = part};
}

// The caller then finds no stream to fence. Collect takes them up again.
void GraphBlocks::Free(CUdeviceptr address, engine::Freed* freed) {
  const auto block = graph_blocks_.find(address);
  if (block != graph_blocks_.end()) block->second.streams = std::exchange(freed->streams_to_fence, {});
}

// Other ranks may offer the same block. It serves again when all have, so this rank alone can hold it back.
void GraphBlocks::Keep(std::vector<engine::Sequence>* freed) const {
  for (const auto& [address, block] : graph_blocks_) std::erase(*freed, block.sequence);
}

// Takes the lock by itself: BlockStore asks before it closes the block.
bool GraphBlocks::Has(CUdeviceptr address) const {
  MutexLock lock(blocks_.mutex());
  return graph_blocks_.contains(address);
}

// A block of a graph that is gone stays in the table as long as it needs fences: a fence that cannot be recorded now is
// asked for again by the next call.
std::vector<std::pair<CUdeviceptr, StreamKey>> GraphBlocks::TakeMissingFences(const std::vector<engine::Part>& gone) {
  std::vector<std::pair<CUdeviceptr, StreamKey>> missing;
  MutexLock lock(blocks_.mutex());
  for (auto entry = graph_blocks_.begin(); entry != graph_blocks_.end();) {
    GraphBlock& block = entry->second;
    // Stays set: TakeGone returns each graph once.
    block.gone |= std::find(gone.begin(), gone.end(), block.part) != gone.end();
    if (block.gone) {
      for (const StreamKey stream : block.streams) missing.emplace_back(entry->first, stream);
    }
    entry = block.gone && block.streams.empty() ? graph_blocks_.erase(entry) : std::next(entry);
  }
  return missing;
}

// The engine opens the block once all of its fences are there and have passed.
void GraphBlocks::GiveFence(CUdeviceptr address, StreamKey stream, FenceId fence) {
  MutexLock lock(blocks_.mutex());
  if (fence == engine::kNoFence) {
    blocks_.engine().CancelFence(address, stream);
  } else {
    blocks_.engine().AttachFence(address, stream, fence);
  }
  GraphBlock& block = graph_blocks_[address];
  std::erase(block.streams, stream);
  // The last fence is there: from here on it is an ordinary freed block.
  if (block.streams.empty()) graph_blocks_.erase(address);
}

// Calls the driver, so it holds no lock.
void GraphBlocks::Collect() {
  // A graph that is gone is reported once. TakeMissingFences notes it in the entries before anything can fail.
  const std::vector<std::pair<CUdeviceptr, StreamKey>> missing = TakeMissingFences(captures_.TakeGone());
  if (missing.empty()) return;
  for (const auto& [address, stream] : missing) {
    // Nobody may record on it any more (rule 11). A wait for the whole device stands for its fence.
    if (MayHaveDied(stream)) {
      if (basis_.runtime.devices.Quiesce(PlaceOf(stream), basis_.deadline_ms()).ok())
        GiveFence(address, stream, engine::kNoFence);
      continue;
    }
    // A stream that captures again can record no fence for past work: the block waits for a later call.
    const ContextGuard current = basis_.MakeCurrent(stream);
    const Result<CUgraph> graph = GraphInCapture(basis_.driver, StreamOfKey(stream));
    if (!graph.ok() || *graph != nullptr) continue;
    Result<FenceId> fence = basis_.fences().Record(stream);
    if (fence.ok()) GiveFence(address, stream, *fence);  // else the block stays quarantined, as rule 9 asks
  }
}

// Entries without streams stay, so that the block is not offered while its graph lives. Collect erases them.
void GraphBlocks::ForgetStream(StreamKey stream) {
  MutexLock lock(blocks_.mutex());
  for (auto& [address, block] : graph_blocks_) std::erase(block.streams, stream);
}

}  // namespace commpool::internal
