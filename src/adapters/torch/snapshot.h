// Our segments, blocks, stacks and traces in PyTorch's snapshots, as memory_viz reads them.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_SNAPSHOT_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_SNAPSHOT_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include "commpool/commpool.h"
#include "src/adapters/torch/known_pools.h"

namespace commpool::torch_adapter {

using c10::cuda::CUDACachingAllocator::SnapshotInfo;

// Behind PyTorch's own segments, and numbered on from theirs: a snapshot is in the order of registration_counter.
void AddPoolSegments(const KnownPool& known, SnapshotInfo* snapshot);

// Merged into the devices' traces, in the order of time.
void AddPoolTraces(SnapshotInfo* snapshot);

// Addresses of the live blocks of pools.
std::vector<void*> LiveAddresses(const std::vector<KnownPool>& pools);

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_SNAPSHOT_H_
