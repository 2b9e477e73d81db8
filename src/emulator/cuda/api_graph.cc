// Graphs, executable graphs, user objects.
#include <algorithm>
#include <climits>
#include <memory>

#include "src/emulator/cuda/api.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

namespace {

constexpr unsigned long long kInstantiateFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

bool IsCount(unsigned count) { return count != 0 && count <= INT_MAX; }

// Finds the graph of a handle, or the graph that a capture is still making; null if there is neither.
CUgraph_st* FindGraph(Machine& machine, CUgraph graph) {
  return machine.graphs.IsGraph(graph) || machine.captures.IsMaking(graph) ? graph : nullptr;
}

}  // namespace

CUresult cuGraphCreate(CUgraph* graph, unsigned int flags) {
  return Call("cuGraphCreate", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (graph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    *graph = machine.graphs.Add(std::make_unique<CUgraph_st>(machine.user_objects));
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return Call("cuGraphDestroy", Needs::kInitialised, [&](Machine& machine, auto&) {
    return machine.graphs.Destroy(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return Call("cuGraphGetNodes", Needs::kInitialised, [&](Machine& machine, auto&) {
    const CUgraph_st* const found = FindGraph(machine, graph);
    if (found == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (nodes == nullptr) {
      *count = found->nodes.size();
      return CUDA_SUCCESS;
    }
    for (size_t index = 0; index < *count; ++index) {
      nodes[index] = index < found->nodes.size() ? found->nodes[index].get() : nullptr;
    }
    *count = std::min(*count, found->nodes.size());
    return CUDA_SUCCESS;
  });
}

// Kernels are NCCL's, and so are copies; the emulator tells of nothing else what it is.
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  return Call("cuGraphNodeGetType", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (type == nullptr || !machine.graphs.HasNode(node)) return CUDA_ERROR_INVALID_VALUE;
    *type = node->operation.is_kernel ? CU_GRAPH_NODE_TYPE_KERNEL
            : node->operation.repeat  ? CU_GRAPH_NODE_TYPE_MEMCPY
                                      : CU_GRAPH_NODE_TYPE_EMPTY;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, unsigned long long flags) {
  return Call("cuGraphInstantiateWithFlags", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (executable == nullptr || !machine.graphs.IsGraph(graph)) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if ((flags & ~kInstantiateFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    *executable = machine.graphs.Instantiate(*graph);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle) {
  return CallOnStream("cuGraphLaunch", handle, [&](Machine& machine, auto&, CUstream_st* stream) {
    if (!machine.graphs.IsExecutable(executable)) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = machine.captures.RefuseCaptured(stream);
    if (result == CUDA_SUCCESS) Graphs::Launch(machine, *executable, stream);
    return result;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return Call("cuGraphExecDestroy", Needs::kInitialised, [&](Machine& machine, auto&) {
    return machine.graphs.Destroy(executable) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned int references,
                            unsigned int flags) {
  return Call("cuUserObjectCreate", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (object == nullptr || destroy == nullptr || !IsCount(references) || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *object = machine.user_objects.Create(pointer, destroy, references);
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  return Call("cuUserObjectRetain", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (!IsCount(count) || !machine.user_objects.IsObject(object)) return CUDA_ERROR_INVALID_VALUE;
    machine.user_objects.Retain(object, count);
    return CUDA_SUCCESS;
  });
}

// CUDA leaves it undefined when a program releases what it does not own. The emulator reports it.
CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  return Call("cuUserObjectRelease", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (!IsCount(count)) return CUDA_ERROR_INVALID_VALUE;
    if (machine.user_objects.IsObject(object) && machine.user_objects.Release(object, count)) return CUDA_SUCCESS;
    machine.logbook.Report("a user object is released too often", "cuUserObjectRelease");
    return CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
  return Call("cuGraphRetainUserObject", Needs::kInitialised, [&](Machine& machine, auto&) {
    CUgraph_st* const found = FindGraph(machine, graph);
    if (found == nullptr || !machine.user_objects.IsObject(object) || !IsCount(count)) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) machine.user_objects.Retain(object, count);
    found->objects.Adopt(object, count);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  return Call("cuGraphReleaseUserObject", Needs::kInitialised, [&](Machine& machine, auto&) {
    CUgraph_st* const found = FindGraph(machine, graph);
    if (found == nullptr || !machine.user_objects.IsObject(object) || !IsCount(count)) return CUDA_ERROR_INVALID_VALUE;
    if (!found->objects.Release(object, count)) {
      machine.logbook.Report("a user object is released too often", "cuGraphReleaseUserObject: the graph has fewer");
    }
    return CUDA_SUCCESS;  // hardware returns success even then
  });
}
