// Captures, graphs, user objects.
#include "src/emulator/cudart/runtime.h"

using namespace commpool::internal::emulated_cudart;  // NOLINT: this file is C on the outside

namespace {

constexpr const char* kCapturedOnly = "graphs are captured only; no nodes are added by hand";

static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));

}  // namespace

// The two APIs number modes, states and flags alike.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return InContext([&](const DriverFunctions& driver) {
    return driver.cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode));
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuStreamEndCapture(stream, graph); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return InContext([&](const DriverFunctions& driver) {
    return driver.cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status));
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  return InContext([&](const DriverFunctions& driver) {
    cuuint64_t number = 0;
    const CUresult result =
        driver.cuStreamGetCaptureInfo(stream, reinterpret_cast<CUstreamCaptureStatus*>(status), &number, graph,
                                      dependencies, reinterpret_cast<const CUgraphEdgeData**>(edges), count);
    if (result == CUDA_SUCCESS && id != nullptr && *status == cudaStreamCaptureStatusActive) *id = number;
    return result;
  });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData* edges, size_t count, unsigned int flags) {
  return InContext([&](const DriverFunctions& driver) {
    return driver.cuStreamUpdateCaptureDependencies(stream, dependencies,
                                                    reinterpret_cast<const CUgraphEdgeData*>(edges), count, flags);
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return InDriver([&](const DriverFunctions& driver) {
    return driver.cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode));
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuGraphInstantiate(executable, graph, flags); });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuGraphLaunch(executable, stream); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuGraphDestroy(graph); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuGraphExecDestroy(executable); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuGraphGetNodes(graph, nodes, count); });
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* pointer, cudaHostFn_t destroy, unsigned int count,
                                 unsigned int flags) {
  return InContext(
      [&](const DriverFunctions& driver) { return driver.cuUserObjectCreate(object, pointer, destroy, count, flags); });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuUserObjectRelease(object, count); });
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned int count,
                                      unsigned int flags) {
  return InContext(
      [&](const DriverFunctions& driver) { return driver.cuGraphRetainUserObject(graph, object, count, flags); });
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, const cudaGraphEdgeData*, size_t,
                             cudaGraphNodeParams*) {
  return Refuse("cudaGraphAddNode", kCapturedOnly);
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle*, cudaGraph_t, unsigned int, unsigned int) {
  return Refuse("cudaGraphConditionalHandleCreate", kCapturedOnly);
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t*) {
  return Refuse("cudaGraphNodeGetDependencies", "the edges of a finished graph cannot be asked for");
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t, cudaGraph_t, const cudaGraphNode_t*, const cudaGraphEdgeData*,
                                          size_t, cudaStreamCaptureMode) {
  return Refuse("cudaStreamBeginCaptureToGraph", kCapturedOnly);
}

// PyTorch 2.11 imports it; later versions do not.
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned int) {
  return Refuse("cudaGraphDebugDotPrint", "graphs are not drawn");
}
