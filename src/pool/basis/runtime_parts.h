// What the pools of one runtime share: who owns an address, where windows are, the threads' caches, what they may ask
// of each other and of other allocators of the process, and who watches. Any thread.
#ifndef COMMPOOL_SRC_POOL_BASIS_RUNTIME_PARTS_H_
#define COMMPOOL_SRC_POOL_BASIS_RUNTIME_PARTS_H_

#include "src/pool/caches/thread_caches.h"
#include "src/pool/shared/address_table.h"
#include "src/pool/shared/memory_holders.h"
#include "src/pool/shared/memory_observer.h"
#include "src/pool/shared/other_pools.h"
#include "src/registration/home_links.h"
#include "src/registration/unanswered_gathers.h"
#include "src/registration/window_index.h"

namespace commpool::internal {

struct RuntimeParts {
  RuntimeParts(const Driver& driver, OtherPools& other_pools) : observer(driver), others(other_pools) {}

  const MemoryObserver observer;
  OtherPools& others;  // as one of them sees them
  MemoryHolders holders;
  WindowIndex windows;
  HomeLinks links;
  UnansweredGathers unanswered;
  const std::shared_ptr<ThreadCaches> shared_caches = std::make_shared<ThreadCaches>(observer);
  ThreadCaches& caches = *shared_caches;
  AddressTable addresses;  // goes first: its pools use the rest
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BASIS_RUNTIME_PARTS_H_
