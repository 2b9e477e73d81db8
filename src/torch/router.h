// The router: PyTorch's allocator with commpool in front. A call that nothing of ours catches goes to the allocator
// that PyTorch had before. To an answer about memory the router adds our part.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/torch/allocation.h"
#include "src/torch/captures.h"
#include "src/torch/failures.h"
#include "src/torch/history.h"
#include "src/torch/known_pools.h"
#include "src/torch/native.h"
#include "src/torch/routings.h"

namespace commpool::torch_adapter {

#if COMMPOOL_TORCH_AT_LEAST(11)
using AllocatorOfPool = std::shared_ptr<TorchAllocator>;
#else
using AllocatorOfPool = TorchAllocator*;
#endif

// Owns no memory: each block belongs to PyTorch's allocator or to a pool of ours. PyTorch calls it as its allocator.
class alignas(64) Router final : public TorchAllocator {
 public:
  HotLine& hot() { return hot_; }
  // false: it only forwards. Live blocks of ours still find their way back.
  void Route(bool routes) { routes_.store(routes, std::memory_order_relaxed); }
  bool Routes() const { return routes_.load(std::memory_order_relaxed); }

  // Memory. allocation.cc has what is longer.
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return Native()->raw_deleter(); }
  bool is_simple_data_ptr(const c10::DataPtr& pointer) const override { return Native()->is_simple_data_ptr(pointer); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { Native()->copy_data(to, from, bytes); }
  void* raw_alloc(size_t bytes) override;
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* pointer) override;
  void* getBaseAllocation(void* pointer, size_t* bytes) override;
  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) override;
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex owner) override {
    Native()->enablePeerAccess(device, owner);
    Pools().AllowPeer(device, owner);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream,
                          bool peers) override;
#if COMMPOOL_TORCH_AT_LEAST(13)
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) override {
    return Native()->allocateWithAddress(bytes, address);
  }
#endif

  // To other processes: sharing.cc.
  torch_names::ShareableHandle shareIpcHandle(void* pointer) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return Native()->getIpcDevPtr(std::move(handle)); }

  // Of a device. router_device.cc has what is longer.
  bool initialized() override { return Native()->initialized(); }
  void init(int device_count) override { Native()->init(device_count); }
  void enable(bool value) override { Native()->enable(value); }
  bool isEnabled() const override { return Native()->isEnabled(); }
  std::string name() override { return Native()->name(); }  // libraries check for "native"
  double getMemoryFraction(c10::DeviceIndex device) override { return Native()->getMemoryFraction(device); }
  // The fraction limits PyTorch's pools and ours separately.
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    Native()->setMemoryFraction(fraction, device);
    LimitPools(device, fraction);
  }
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override;
  void emptyCache(MempoolId_t id) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    Native()->resetAccumulatedStats(device);
    Pools().ResetTotals(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    Native()->resetPeakStats(device);
    Pools().ResetPeaks(device);
  }
#if COMMPOOL_TORCH_AT_LEAST(10)
  std::vector<torch_names::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override {
    return Native()->getExpandableSegmentSizes(device);
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override { return Native()->getMemoryInfo(device); }
#endif

  // Private pools: ours that are a torch.cuda.MemPool, and captures.
  void beginAllocateToPool(c10::DeviceIndex device, MempoolId_t id, StreamFilter filter) override {
    TorchCaptures().EndFinished();
    if (TorchRoutings().Begin(device, id, filter)) return;
    try {
      Native()->beginAllocateToPool(device, id, std::move(filter));
    } catch (...) {
      TorchRoutings().End(device, id);
      throw;
    }
  }
  void endAllocateToPool(c10::DeviceIndex device, MempoolId_t id) override {
    if (!TorchRoutings().End(device, id)) Native()->endAllocateToPool(device, id);
    TorchCaptures().EndFinished();
  }
  void releasePool(c10::DeviceIndex device, MempoolId_t id) override {
    if (!TorchRoutings().Release(id)) Native()->releasePool(device, id);
  }
  int getPoolUseCount(c10::DeviceIndex device, MempoolId_t id) override {
    const std::optional<int> users = TorchRoutings().Users(id);
    return users ? *users : Native()->getPoolUseCount(device, id);
  }
  bool checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t id,
                                const std::unordered_set<void*>& expected) override;
  std::shared_ptr<torch_names::AllocatorState> getCheckpointState(c10::DeviceIndex device, MempoolId_t id) override {
    TORCH_CHECK(
        !TorchRoutings().IsOurs(id),
        "commpool: a MemPool of commpool's has no checkpoints; let torch.compile's CUDA graphs keep their own pool");
    return Native()->getCheckpointState(device, id);
  }
  torch_names::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device,
                                                      std::shared_ptr<torch_names::AllocatorState> state) override {
    return Native()->setCheckpointPoolState(device, std::move(state));
  }
  void createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id, AllocatorOfPool allocator) override {
    if (!TorchRoutings().CreateOrIncrease(device, id)) Native()->createOrIncrefPool(device, id, std::move(allocator));
  }
#if COMMPOOL_TORCH_AT_LEAST(11)
  void setUseOnOOM(c10::DeviceIndex device, MempoolId_t id, bool use_on_oom) override {
    if (!TorchRoutings().IsOurs(id)) return Native()->setUseOnOOM(device, id, use_on_oom);
    TORCH_CHECK(!use_on_oom, kLendsNothing);
  }
#else
  void setUseOnOOM(c10::DeviceIndex device, MempoolId_t id) override {
    TORCH_CHECK(!TorchRoutings().IsOurs(id), kLendsNothing);
    Native()->setUseOnOOM(device, id);
  }
#endif
#if COMMPOOL_TORCH_AT_LEAST(10)
  void setNoSplit(c10::DeviceIndex device, MempoolId_t id) override {
    TORCH_CHECK(!TorchRoutings().IsOurs(id), "commpool: a MemPool of commpool's splits its segments (no_split=True)");
    Native()->setNoSplit(device, id);
  }
#endif
#if COMMPOOL_TORCH_AT_LEAST(13)
  void markCaptureBegin(c10::DeviceIndex device) override { Native()->markCaptureBegin(device); }
  void markCaptureEnd(c10::DeviceIndex device) override {
    Native()->markCaptureEnd(device);
    TorchCaptures().EndFinished();
  }
#endif

  // Snapshots, recorded history and observers.
#if COMMPOOL_TORCH_AT_LEAST(11)
  torch_names::SnapshotInfo snapshot(MempoolId_t id, bool include_traces) override {
    return WithOurs(Native()->snapshot(id, include_traces), id, include_traces);
  }
  void recordHistory(bool enabled, torch_names::CreateContextFn recorder, size_t entries,
                     torch_names::RecordContext when, bool clear, const std::vector<std::string>& skipped) override {
    RecordOurs({enabled, recorder, entries, when, skipped}, clear,
               [&] { Native()->recordHistory(enabled, recorder, entries, when, clear, skipped); });
  }
#else
  torch_names::SnapshotInfo snapshot(MempoolId_t id) override { return WithOurs(Native()->snapshot(id), id, true); }
  void recordHistory(bool enabled, torch_names::CreateContextFn recorder, size_t entries,
                     torch_names::RecordContext when, bool clear) override {
    RecordOurs({enabled, recorder, entries, when, {}}, clear,
               [&] { Native()->recordHistory(enabled, recorder, entries, when, clear); });
  }
#endif
  bool isHistoryEnabled() override { return Native()->isHistoryEnabled(); }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override {
    Native()->recordAnnotation(annotation);
  }
  void pushCompileContext(std::string& context) override {
    History::PushCompileContext(context);
    Native()->pushCompileContext(context);
  }
  void popCompileContext() override {
    History::PopCompileContext();
    Native()->popCompileContext();
  }
  void attachOutOfMemoryObserver(torch_names::OutOfMemoryObserver observer) override {
    ObserveOutOfMemory(observer);
    Native()->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(torch_names::AllocatorTraceTracker tracker) override {
    Native()->attachAllocatorTraceTracker(std::move(tracker));
  }
#if COMMPOOL_TORCH_AT_LEAST(10)
  void setUserMetadata(const std::string& metadata) override { Native()->setUserMetadata(metadata); }
  std::string getUserMetadata() override { return Native()->getUserMetadata(); }
#endif
#if COMMPOOL_TORCH_AT_LEAST(12)
  void attachOomRejectionObserver(torch_names::OomRejectionObserver observer) override {
    Native()->attachOomRejectionObserver(std::move(observer));
  }
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer) override {
    auto context = TorchHistory().ContextOf(pointer);
    return context != nullptr ? context : Native()->getContextForPointer(pointer);
  }
#endif
#if COMMPOOL_TORCH_AT_LEAST(14)
  bool supportsUserMetadata() override { return Native()->supportsUserMetadata(); }
  void annotateMemory(const void* pointer, const std::string& metadata) override {
    const std::optional<commpool_block> block = OurBlock(pointer);
    if (!block) return Native()->annotateMemory(pointer, metadata);
    TorchHistory().Annotated(*block, metadata);
  }
#endif

 private:
  static constexpr const char* kLendsNothing =
      "commpool: a MemPool of commpool's lends no memory to others (use_on_oom=True)";

  // Allocates from PyTorch's own allocator. If that is out of memory, our idle pools give memory back, and it tries
  // again.
  [[gnu::noinline]] static c10::DataPtr AllocateNative(size_t bytes);
  // Allocates from whatever catches the request. It is a separate function, so a forwarded allocation saves no
  // registers for it.
  [[gnu::noinline]] c10::DataPtr AllocateRouted(size_t bytes);

  HotLine hot_;
  std::atomic<bool> routes_{false};
};
static_assert(sizeof(Router) == 64, "what an allocation reads is one line");

// The router lives for ever, because programs may free blocks when everything else is gone.
Router& TheRouter();

}  // namespace commpool::torch_adapter
