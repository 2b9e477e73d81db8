// RuntimeParts: what the pools of one runtime share: owners of addresses, windows, the threads' caches, the observer,
// and what they may ask of each other and of other allocators of the process. Any thread.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_BASIS_RUNTIME_PARTS_H_
#define COMMPOOL_SRC_LIBRARY_POOL_BASIS_RUNTIME_PARTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "src/library/nvtx/domain.h"
#include "src/library/nvtx/heaps.h"
#include "src/library/pool/caches/thread_caches.h"
#include "src/library/pool/shared/address_table.h"
#include "src/library/pool/shared/block_owner.h"
#include "src/library/pool/shared/device_state.h"
#include "src/library/pool/shared/memory_holders.h"
#include "src/library/pool/shared/memory_observer.h"
#include "src/library/recording/recorder.h"
#include "src/library/registration/home_links.h"
#include "src/library/registration/placed_windows.h"
#include "src/library/registration/small_all_gather.h"
#include "src/library/registration/window_index.h"
#include "src/library/sharing/share_server.h"

namespace commpool::internal {

// What a pool may ask of the other pools of its runtime: to release what they do not use, and who holds what. Pools
// know nothing else of each other, not even their table. MemorySearch implements it. Any thread, without a lock. Each
// call may release memory of pools that this thread knows nothing of, and takes their locks.
class OtherPools {
 public:
  virtual ~OtherPools() = default;

  // Makes the device's pools, except the asking one, release what they do not use; only those of a budget, unless its
  // name is empty. Returns the released bytes.
  virtual uint64_t ReleaseUnused(int device, const BlockOwner* asks, const std::string& budget) = 0;
  // Releases memory that destroyed pools still hold because of a capture or a graph: a program has no handle any more
  // to trim them. Also releases what failed collective calls could not release. Does nothing while a capture is open
  // anywhere, nor for pools without a capture or graph that has ended. It may wait for their devices, so call it where
  // a pool is made, trimmed, closed or destroyed.
  virtual void ReleaseDestroyed() = 0;
  // One line for each pool of the device: reserved, in use, cached, largest free block. The largest holder comes first;
  // the smallest of many share one line. Then one line for each other allocator of the process, with what it says it
  // holds.
  virtual std::string DescribeHolders(int device) = 0;
};

// Runtime owns one, and every pool has a reference to it in its PoolBasis. It has no lock: each part has its own. The
// order of the members is the order of their making: those that tell others of their end come later.
struct RuntimeParts {
  // What PoolRecorder::BeganHandle began.
  void EndHandle(recording::SpanKind kind, uint64_t handle) {
    ranges.End(recording::Recorder::SpanOfHandle(kind, handle));
    recorder.EndHandle(kind, handle);
  }

  const Driver& driver;
  DeviceTable& devices;               // of pools, and of the streams that use them
  OtherPools& others;                 // what one pool may ask of all others
  recording::Recorder recorder = {};  // destroyed last: all others tell it of their end
  nvtx::DomainNames domain_names = {};
  nvtx::Heaps heaps = {};
  nvtx::OpenRanges ranges = {};
  const MemoryObserver observer = MemoryObserver(driver, devices.places(), heaps);
  // The process's other allocators, which the search for memory asks last.
  MemoryHolders holders = {};
  // Where NCCL's windows lie: finds a pointer's window without a lock (rule 3).
  WindowIndex windows = {};
  PlacedWindows placed_windows = {};
  // The connections between the ranks of a home; its pools share them.
  HomeLinks links = {};
  // All-gathers that NCCL has not finished, with the memory that they still write.
  UnansweredGathers unanswered = {};
  ShareServer shares = ShareServer(driver);  // what other processes import
  const std::shared_ptr<ThreadCaches> shared_caches = std::make_shared<ThreadCaches>(observer);
  ThreadCaches& caches = *shared_caches;
  AddressTable addresses = {};  // destroyed first: its pools use the other members
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_BASIS_RUNTIME_PARTS_H_
