#include "src/interpose/audit/graph_accounts.h"

#include "src/interpose/audit/audit.h"

namespace commpool::audit {

namespace {

void EnterNode(Event& event, const CUmemLocation& location, uint64_t bytes) {
  EnterInGraph(event, bytes, location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : kNoDevice);
}

}  // namespace

void EnterInGraph(Event& event, uint64_t bytes, int device) {
  if (!event.done()) return EnterMade(event, What::kInGraphs, 0, bytes, device);
  const RowKey row = RowOf(What::kInGraphs, device);
  Audit::Get().ledger.Count(row, static_cast<int64_t>(bytes), event.nanoseconds);
}

void MadeNode::After(Event& event, CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                     CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  if (parameters != nullptr) EnterNode(event, parameters->poolProps.location, parameters->bytesize);
}

void MadeNode::After(Event& event, CUgraphNode*, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, size_t,
                     CUgraphNodeParams* parameters) {
  if (parameters == nullptr || parameters->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) return;
  EnterNode(event, parameters->alloc.poolProps.location, parameters->alloc.bytesize);
}

}  // namespace commpool::audit
