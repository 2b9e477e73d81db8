#include "src/emulator/cuda/capture.h"

#include <algorithm>
#include <set>
#include <utility>

#include "src/emulator/cuda/machine.h"

namespace commpool::internal::emulator {

namespace {

CUresult Invalidate(StreamCapture& capture, CUresult why) {
  capture.invalidated = true;
  return why;
}

}  // namespace

void StreamCapture::Tail::Add(const std::vector<CUgraphNode>& more) {
  for (const CUgraphNode node : more) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  }
  edges.resize(nodes.size());
}

bool StreamCapture::IsJoined() const {
  std::vector<CUgraphNode> open = tails.at(origin).nodes;
  std::set<CUgraphNode> reached(open.begin(), open.end());
  while (!open.empty()) {
    const CUgraphNode node = open.back();
    open.pop_back();
    for (const CUgraphNode dependency : node->dependencies) {
      if (reached.insert(dependency).second) open.push_back(dependency);
    }
  }
  const auto is_reached = [&](const Tail& tail) {
    return std::all_of(tail.nodes.begin(), tail.nodes.end(), [&](CUgraphNode node) { return reached.contains(node); });
  };
  return is_reached(departed) &&
         std::all_of(tails.begin(), tails.end(), [&](const auto& entry) { return is_reached(entry.second); });
}

std::shared_ptr<StreamCapture> Captures::Shared(const CUstream_st* stream) const {
  for (const auto& capture : live_) {
    if (capture->tails.contains(const_cast<CUstream_st*>(stream))) return capture;
  }
  return nullptr;
}

StreamCapture* Captures::Of(const CUstream_st* stream) const { return Shared(stream).get(); }

CUresult Captures::Begin(CUstream_st* stream, CUstreamCaptureMode mode, UserObjects& objects) {
  if (Of(stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<StreamCapture>();
  capture->id = next_id_++;
  capture->origin = stream;
  capture->thread = std::this_thread::get_id();
  capture->mode = mode;
  capture->graph = std::make_unique<CUgraph_st>(objects);
  capture->tails[stream];
  live_.push_back(std::move(capture));
  return CUDA_SUCCESS;
}

void Captures::Close(StreamCapture& capture) {
  capture.ended = true;
  std::erase_if(live_, [&](const auto& live) { return live.get() == &capture; });
}

CUresult Captures::End(CUstream_st* stream, std::unique_ptr<CUgraph_st>* graph) {
  const std::shared_ptr<StreamCapture> capture = Shared(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  // Every other answer ends the capture, even an error that another thread gets.
  Close(*capture);
  std::unique_ptr<CUgraph_st> captured = std::move(capture->graph);  // an error path destroys it
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  if (!capture->IsJoined()) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = std::move(captured);
  return CUDA_SUCCESS;
}

CUresult Captures::Record(CUevent_st* event, CUstream_st* stream) {
  const std::shared_ptr<StreamCapture> capture = Shared(stream);
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  records_[event] = {capture, capture->tails.at(stream).nodes};
  return CUDA_SUCCESS;
}

CUresult Captures::Wait(CUstream_st* stream, CUevent_st* event, bool legacy) {
  StreamCapture* const own = Of(stream);
  if (own != nullptr && own->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const auto found = records_.find(event);
  if (found == records_.end()) {
    if (event->marker == nullptr) return CUDA_SUCCESS;  // never recorded
    return Invalidate(*own, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  const CapturedRecord& record = found->second;
  StreamCapture& theirs = *record.capture;
  if (theirs.ended) return CUDA_ERROR_INVALID_VALUE;
  if (legacy) return Invalidate(theirs, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (theirs.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (own != nullptr && own != &theirs) {
    Invalidate(*own, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    return Invalidate(theirs, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  theirs.tails[stream].Add(record.nodes);
  return CUDA_SUCCESS;
}

CUresult Captures::AddNode(CUstream_st* stream, Operation operation) {
  StreamCapture& capture = *Of(stream);
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  StreamCapture::Tail& tail = capture.tails.at(stream);
  auto node = std::make_shared<CUgraphNode_st>();
  node->operation = std::move(operation);
  node->device = stream->device;
  node->dependencies = tail.nodes;
  tail = {};
  tail.Add({node.get()});
  capture.graph->nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

void Captures::Forget(CUstream_st* stream) {
  announced_.erase(stream);
  const std::shared_ptr<StreamCapture> capture = Shared(stream);
  if (capture == nullptr) return;
  if (capture->origin == stream) return Close(*capture);
  capture->departed.Add(capture->tails.at(stream).nodes);
  capture->tails.erase(stream);
}

CUresult Captures::RefuseUnsafe() {
  const CUstreamCaptureMode mode = ThreadCaptureMode();
  CUresult result = CUDA_SUCCESS;
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return result;
  for (const auto& capture : live_) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool forbids = own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                             : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (forbids) result = Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

CUresult Captures::RefuseCaptured(const CUstream_st* stream) {
  StreamCapture* const capture = Of(stream);
  return capture == nullptr ? CUDA_SUCCESS : Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult Captures::RefuseCaptured(const CUevent_st* event) {
  const auto found = records_.find(event);
  if (found == records_.end()) return CUDA_SUCCESS;
  StreamCapture& capture = *found->second.capture;
  return capture.ended ? CUDA_ERROR_INVALID_VALUE : Invalidate(capture, CUDA_ERROR_CAPTURED_EVENT);
}

CUresult Captures::RefuseDevice(int device) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : live_) {
    const bool there = std::any_of(capture->tails.begin(), capture->tails.end(),
                                   [&](const auto& entry) { return entry.first->device == device; });
    if (there) result = Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

CUresult Captures::RefuseImplicit(int device) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : live_) {
    for (const auto& [stream, tail] : capture->tails) {
      if (stream->device == device && stream->blocking()) {
        result = Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
      }
    }
  }
  return result;
}

bool Captures::HasBlockingCapture(int device) const {
  return std::any_of(live_.begin(), live_.end(), [&](const auto& capture) {
    return std::any_of(capture->tails.begin(), capture->tails.end(),
                       [&](const auto& entry) { return entry.first->device == device && entry.first->blocking(); });
  });
}

bool Captures::IsMaking(CUgraph graph) const {
  return std::any_of(live_.begin(), live_.end(), [&](const auto& capture) { return capture->graph.get() == graph; });
}

void Captures::Announce(CUstream_st* stream, bool announced) {
  const int count = announced_[stream] += announced ? 1 : -1;
  if (count <= 0) announced_.erase(stream);
}

bool Captures::IsAnnounced(const CUstream_st* stream) const {
  const StreamCapture* const capture = Of(stream);
  return announced_.contains(stream) ||
         (capture != nullptr && std::any_of(capture->tails.begin(), capture->tails.end(),
                                            [&](const auto& entry) { return announced_.contains(entry.first); }));
}

const char* Captures::UserOf(CUdeviceptr address, uint64_t bytes) const {
  for (const auto& capture : live_) {
    if (const char* name = UserAmong(capture->graph->nodes, address, bytes)) return name;
  }
  return nullptr;
}

std::vector<std::string> Captures::Describe() const {
  std::vector<std::string> lines;
  for (const auto& capture : live_) {
    lines.push_back("capture of stream " + std::to_string(capture->origin->id) + ", begun and not ended");
  }
  return lines;
}

CUstreamCaptureMode& ThreadCaptureMode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

bool IsUnannouncedCapture(const Machine& machine, const CUstream_st* stream) {
  return machine.captures.Of(stream) != nullptr && !machine.captures.IsAnnounced(stream);
}

}  // namespace commpool::internal::emulator
