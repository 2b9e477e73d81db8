// Stream capture.
#include <algorithm>
#include <memory>
#include <utility>

#include "src/emulator/cuda/api.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

namespace {

bool IsMode(CUstreamCaptureMode mode) {
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
         mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

// Finds the stream whose capture a program asks about. Asking about the legacy stream while a blocking stream captures
// is an error, but the capture stays valid.
CUresult FindForQuestion(Machine& machine, CUstream handle, CUstream_st** stream) {
  *stream = machine.scheduler.Resolve(handle, CurrentContext() == nullptr ? 0 : CurrentDevice());
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool implicit = IsLegacy(handle) && machine.captures.HasBlockingCapture((*stream)->device);
  return implicit ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUstreamCaptureStatus StatusOf(const StreamCapture* capture) {
  if (capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

template <typename Value, typename Found>
void Give(Value* to, Found found) {
  if (to != nullptr) *to = found;
}

}  // namespace

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return CallOnStream("cuStreamBeginCapture", handle, [&](Machine& machine, auto&, CUstream_st* stream) {
    if (!IsMode(mode)) return CUDA_ERROR_INVALID_VALUE;
    if (IsLegacy(handle)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return machine.captures.Begin(stream, mode, machine.user_objects);
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return CallOnStream("cuStreamEndCapture", handle, [&](Machine& machine, auto&, CUstream_st* stream) {
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *graph = nullptr;
    std::unique_ptr<CUgraph_st> captured;
    const CUresult result = machine.captures.End(stream, &captured);
    if (result == CUDA_SUCCESS) *graph = machine.graphs.Add(std::move(captured));
    return result;
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return CallOnStream<FindForQuestion>("cuStreamIsCapturing", handle,
                                       [&](Machine& machine, auto&, CUstream_st* stream) {
                                         if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
                                         *status = StatusOf(machine.captures.Of(stream));
                                         return CUDA_SUCCESS;
                                       });
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  return CallOnStream<FindForQuestion>("cuStreamGetCaptureInfo", handle,
                                       [&](Machine& machine, auto&, CUstream_st* stream) {
                                         if (status == nullptr || (edges != nullptr && dependencies == nullptr))
                                           return CUDA_ERROR_INVALID_VALUE;
                                         const StreamCapture* const capture = machine.captures.Of(stream);
                                         *status = StatusOf(capture);
                                         if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
                                         const StreamCapture::Tail& tail = capture->tails.at(stream);
                                         Give(id, capture->id);
                                         Give(graph, capture->graph.get());
                                         Give(dependencies, tail.nodes.data());
                                         Give(edges, tail.edges.data());
                                         Give(count, tail.nodes.size());
                                         return CUDA_SUCCESS;
                                       });
}

CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* dependencies, const CUgraphEdgeData*,
                                           size_t count, unsigned int flags) {
  return CallOnStream("cuStreamUpdateCaptureDependencies", handle, [&](Machine& machine, auto&, CUstream_st* stream) {
    const bool replaces = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES;
    if (!replaces && flags != CU_STREAM_ADD_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
    if (dependencies == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
    StreamCapture* const capture = machine.captures.Of(stream);
    if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    const std::vector<CUgraphNode> added(dependencies, dependencies + count);
    const Nodes& nodes = capture->graph->nodes;
    for (const CUgraphNode node : added) {
      const bool known = std::any_of(nodes.begin(), nodes.end(), [&](const auto& own) { return own.get() == node; });
      if (!known) return CUDA_ERROR_INVALID_VALUE;
    }
    StreamCapture::Tail& tail = capture->tails.at(stream);
    if (replaces) tail = {};
    tail.Add(added);
    return CUDA_SUCCESS;
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return Call("cuThreadExchangeStreamCaptureMode", Needs::kInitialised, [&](Machine&, auto&) {
    if (mode == nullptr || !IsMode(*mode)) return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, ThreadCaptureMode());
    return CUDA_SUCCESS;
  });
}
