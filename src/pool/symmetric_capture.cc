// Symmetric pools and stream captures: blocks that a graph keeps, and what a live graph forbids.
#include <algorithm>
#include <optional>
#include <utility>

#include "src/driver/graph_handles.h"
#include "src/pool/symmetric_pool.h"

namespace commpool::internal {

Status SymmetricPool::BeginCapture(CaptureHandle capture, CUstream stream) {
  Status status = CheckOpen();
  if (!status.ok()) return status;
  if (configuration_.frees == engine::FreeOrder::kOrdered) {
    return Status(StatusCode::kNotSupported,
                  Title() +
                      " has ordered frees, which take effect at once: what a graph freed would serve others while "
                      "the graph is replayed. Captures need deferred frees");
  }
  ContextGuard guard(driver_, device_->context());
  status = captures_.Begin(capture, stream);
  if (!status.ok()) return Status(status.code(), Title() + ": " + status.message());
  device_->BeginCapture();
  if (shared_.annotations.capture_announced != nullptr) shared_.annotations.capture_announced(stream, 1);
  return Status();
}

void SymmetricPool::EndCapture(CaptureHandle capture) {
  const CUstream stream = captures_.End(capture);
  if (stream == nullptr) return;
  device_->EndCapture();
  if (shared_.annotations.capture_announced != nullptr) shared_.annotations.capture_announced(stream, 0);
}

Result<engine::Part> SymmetricPool::PartOf(StreamKey stream) const {
  if (!captures_.any_open() || !IsReachable(stream)) return engine::kCommonPart;
  ContextGuard guard(driver_, device_->context());
  return captures_.PartOf(StreamOfKey(stream));
}

Status SymmetricPool::AwaitOutsideCapture(const engine::StreamUse& use) {
  if (use.fence != engine::kNoFence) return device_->Await(use.fence, configuration_.deadline_ms);
  if (!IsReachable(use.stream)) {
    return Status(StatusCode::kFailedPrecondition,
                  "the block was used on another thread's default stream, which a capture cannot wait for: synchronise "
                  "the device before the capture and reclaim()");
  }
  Result<FenceId> fence = device_->fences().Record(use.stream);
  if (!fence.ok()) return fence.status();
  Status status = device_->Await(*fence, configuration_.deadline_ms);
  device_->fences().Retire(*fence);
  return status;
}

Result<CUdeviceptr> SymmetricPool::FinishInCapture(engine::Served served, uint64_t requested, StreamKey stream,
                                                   engine::Part part) {
  ContextGuard guard(driver_, device_->context());
  const RelaxedCapture relaxed(driver_);
  if (!served.waits.empty()) CountHostWait();
  std::vector<engine::StreamUse> inside;  // streams of the same capture: a device-side wait is an edge of the graph
  for (const engine::StreamUse& use : served.waits) {
    const Result<engine::Part> user = PartOf(use.stream);
    if (!user.ok()) return Status(user.status().code(), Title() + ": " + user.status().message());
    if (use.fence == engine::kNoFence && *user == part) {
      inside.push_back(use);
      continue;
    }
    if (use.fence == engine::kNoFence && *user != engine::kCommonPart) {
      return Status(StatusCode::kFailedPrecondition,
                    Title() + ": the block was used on a stream of another capture, which this one cannot wait for");
    }
    Status status = AwaitOutsideCapture(use);
    if (!status.ok()) return Status(status.code(), Title() + ": " + status.message());
  }
  served.waits = std::move(inside);
  return FinishServing(served, requested, stream);
}

Status SymmetricPool::CheckCaptures(CollectiveCall call) const {
  const bool between_ranks_alone =
      call == CollectiveCall::kCreate || call == CollectiveCall::kReclaim || call == CollectiveCall::kVerify;
  if (between_ranks_alone) return Status();
  if (captures_.any_open()) {
    return Status(StatusCode::kFailedPrecondition,
                  "a stream is being captured with the pool, and nothing is made, registered or given back meanwhile");
  }
  const bool ends_registrations =
      call == CollectiveCall::kTrim || call == CollectiveCall::kDeregister || call == CollectiveCall::kClose;
  return ends_registrations ? captures_.CheckNoneLive() : Status();
}

void SymmetricPool::KeepGraphsBlocks(std::vector<engine::Sequence>* freed) const {
  std::erase_if(*freed, [&](engine::Sequence sequence) {
    return std::any_of(graph_blocks_.begin(), graph_blocks_.end(),
                       [&](const auto& entry) { return entry.second.sequence == sequence; });
  });
}

void SymmetricPool::CollectGraphs() {
  const std::vector<engine::Part> gone = captures_.TakeGone();
  std::vector<std::pair<CUdeviceptr, StreamKey>> to_fence;
  {
    MutexLock lock(mutex_);
    for (auto block = graph_blocks_.begin(); block != graph_blocks_.end();) {
      GraphBlock& of_graph = block->second;
      of_graph.gone |= std::find(gone.begin(), gone.end(), of_graph.part) != gone.end();
      for (const StreamKey stream : of_graph.gone ? of_graph.streams : std::vector<StreamKey>()) {
        to_fence.emplace_back(block->first, stream);
      }
      block = of_graph.gone && of_graph.streams.empty() ? graph_blocks_.erase(block) : std::next(block);
    }
  }
  ContextGuard guard(driver_, device_->context());
  for (const auto& [address, stream] : to_fence) {
    // A stream that is captured again takes no fence of the past: the block waits for a later call.
    const Result<CUgraph> graph = GraphInCapture(driver_, IsReachable(stream) ? StreamOfKey(stream) : nullptr);
    if (!graph.ok() || *graph != nullptr) continue;
    Result<FenceId> fence = device_->fences().Record(stream);
    if (!fence.ok()) continue;  // quarantined, as rule 9 asks for
    MutexLock lock(mutex_);
    engine_.AttachFence(address, stream, *fence);
    GraphBlock& block = graph_blocks_[address];
    std::erase(block.streams, stream);
    if (block.streams.empty()) graph_blocks_.erase(address);
  }
}

bool SymmetricPool::IsToldOfFrees(CUdeviceptr address) const {
  MutexLock lock(mutex_);
  return !graph_blocks_.contains(address);
}

Result<engine::Freed> SymmetricPool::FreeInEngine(CUdeviceptr address) {
  Result<engine::Freed> freed = engine_.Free(address);
  const auto block = graph_blocks_.find(address);
  // Nothing may be recorded for a graph; and a stream of it may be captured still.
  if (freed.ok() && block != graph_blocks_.end()) block->second.streams = std::exchange(freed->streams_to_fence, {});
  Publish();
  return freed;
}

void SymmetricPool::ForgetStream(StreamKey stream) {
  {
    MutexLock lock(mutex_);
    for (auto& [address, block] : graph_blocks_) std::erase(block.streams, stream);
  }
  PoolBase::ForgetStream(stream);
}

}  // namespace commpool::internal
