// RuntimeParts: what the pools of one runtime share: owners of addresses, windows, the threads' caches, the observer,
// and what they may ask of each other and of other allocators of the process. Any thread.
#ifndef COMMPOOL_SRC_POOL_BASIS_RUNTIME_PARTS_H_
#define COMMPOOL_SRC_POOL_BASIS_RUNTIME_PARTS_H_

#include "src/pool/caches/thread_caches.h"
#include "src/pool/shared/address_table.h"
#include "src/pool/shared/memory_holders.h"
#include "src/pool/shared/memory_observer.h"
#include "src/pool/shared/other_pools.h"
#include "src/registration/home_links.h"
#include "src/registration/placed_windows.h"
#include "src/registration/unanswered_gathers.h"
#include "src/registration/window_index.h"

namespace commpool::internal {

// Runtime owns one, and every pool has a reference to it in its PoolBasis. It has no lock: each part has its own.
struct RuntimeParts {
  RuntimeParts(const Driver& driver, OtherPools& other_pools) : observer(driver), others(other_pools) {}

  const MemoryObserver observer;
  OtherPools& others;  // what one pool may ask of all others
  MemoryHolders holders;
  WindowIndex windows;
  PlacedWindows placed_windows;
  HomeLinks links;
  UnansweredGathers unanswered;
  const std::shared_ptr<ThreadCaches> shared_caches = std::make_shared<ThreadCaches>(observer);
  ThreadCaches& caches = *shared_caches;
  AddressTable addresses;  // destroyed first: its pools use the other members
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BASIS_RUNTIME_PARTS_H_
