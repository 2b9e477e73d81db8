// What calls mean for the books that make a graph allocate. The driver makes that memory at a launch, shares it between
// graphs, and keeps it: what it holds is a row of the driver's, and here stands who asked for how much.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "src/interpose/audit/accounts.h"

namespace commpool::audit {

// A graph's node allocates, or will: one that was added, or that a capture has made of an allocation.
void EnterInGraph(Event& event, uint64_t bytes, int device);

struct MadeNode : Account {
  static void After(Event& event, CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                    CUDA_MEM_ALLOC_NODE_PARAMS* parameters);
  // Only one that allocates counts.
  static void After(Event& event, CUgraphNode*, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, size_t,
                    CUgraphNodeParams* parameters);
};

}  // namespace commpool::audit
