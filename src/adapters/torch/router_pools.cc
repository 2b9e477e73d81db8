// The router's part for private pools: our pools that are a torch.cuda.MemPool, and captures.
#include <algorithm>
#include <iterator>
#include <utility>

#include "src/adapters/torch/allocation.h"
#include "src/adapters/torch/captures.h"
#include "src/adapters/torch/router.h"

namespace commpool::torch_adapter {

void Router::beginAllocateToPool(c10::DeviceIndex device, MempoolId_t id, StreamFilter filter) {
  TorchCaptures().EndFinished();
  if (TorchRoutings().Begin(device, id, filter)) return;
  try {
    Native()->beginAllocateToPool(device, id, std::move(filter));
  } catch (...) {
    TorchRoutings().End(device, id);
    throw;
  }
}

void Router::endAllocateToPool(c10::DeviceIndex device, MempoolId_t id) {
  if (!TorchRoutings().End(device, id)) Native()->endAllocateToPool(device, id);
  TorchCaptures().EndFinished();
}

void Router::releasePool(c10::DeviceIndex device, MempoolId_t id) {
  if (!TorchRoutings().Release(id)) Native()->releasePool(device, id);
}

int Router::getPoolUseCount(c10::DeviceIndex device, MempoolId_t id) {
  const std::optional<int> users = TorchRoutings().Users(id);
  return users ? *users : Native()->getPoolUseCount(device, id);
}

bool Router::checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t id,
                                      const std::unordered_set<void*>& expected) {
  if (!TorchRoutings().IsOurs(id)) {
    // A scope around PyTorch's graph may have put blocks into our pool. They are alive too.
    std::unordered_set<void*> theirs;
    std::copy_if(expected.begin(), expected.end(), std::inserter(theirs, theirs.end()),
                 [](void* address) { return !OurBlock(address); });
    return Native()->checkPoolLiveAllocations(device, id, theirs);
  }
  size_t live = 0;
  for (const KnownPool& known : Pools().Named(id)) {
    for (const commpool_block& block : BlocksOf(known.pool)) {
      if (block.state != COMMPOOL_BLOCK_LIVE) continue;
      if (expected.count(block.pointer) == 0) return false;
      ++live;
    }
  }
  return live == expected.size();
}

std::shared_ptr<torch_names::AllocatorState> Router::getCheckpointState(c10::DeviceIndex device, MempoolId_t id) {
  TORCH_CHECK(
      !TorchRoutings().IsOurs(id),
      "commpool: a MemPool of commpool's has no checkpoints; let torch.compile's CUDA graphs keep their own pool");
  return Native()->getCheckpointState(device, id);
}

void Router::createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id, AllocatorOfPool allocator) {
  if (!TorchRoutings().CreateOrIncrease(device, id)) Native()->createOrIncrefPool(device, id, std::move(allocator));
}

#if COMMPOOL_TORCH_AT_LEAST(11)
void Router::setUseOnOOM(c10::DeviceIndex device, MempoolId_t id, bool use_on_oom) {
  if (!TorchRoutings().IsOurs(id)) return Native()->setUseOnOOM(device, id, use_on_oom);
  TORCH_CHECK(!use_on_oom, "commpool: a MemPool of commpool's lends no memory to others (use_on_oom=True)");
}
#else
void Router::setUseOnOOM(c10::DeviceIndex device, MempoolId_t id) {
  TORCH_CHECK(!TorchRoutings().IsOurs(id),
              "commpool: a MemPool of commpool's lends no memory to others (use_on_oom=True)");
  Native()->setUseOnOOM(device, id);
}
#endif

#if COMMPOOL_TORCH_AT_LEAST(10)
void Router::setNoSplit(c10::DeviceIndex device, MempoolId_t id) {
  TORCH_CHECK(!TorchRoutings().IsOurs(id), "commpool: a MemPool of commpool's splits its segments (no_split=True)");
  Native()->setNoSplit(device, id);
}
#endif

#if COMMPOOL_TORCH_AT_LEAST(13)
void Router::markCaptureEnd(c10::DeviceIndex device) {
  Native()->markCaptureEnd(device);
  TorchCaptures().EndFinished();
}
#endif

}  // namespace commpool::torch_adapter
