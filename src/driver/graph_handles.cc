#include "src/driver/graph_handles.h"

#include <vector>

#include "src/base/try.h"

namespace commpool::internal {

Result<UserObject> UserObject::Create(const Driver& driver, CUhostFn callback, void* context) {
  CUuserObject object = nullptr;
  const CUresult result =
      driver.cuda.cuUserObjectCreate(&object, context, callback, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  return Made(driver, result, object, {.call = "cuUserObjectCreate"});
}

Status UserObject::MoveTo(CUgraph graph) {
  if (!valid()) return Status(StatusCode::kInvalidArgument, "user object: it is empty");
  Status status = CheckCuda(driver(), driver().cuda.cuGraphRetainUserObject(graph, get(), 1, CU_GRAPH_USER_OBJECT_MOVE),
                            {.call = "cuGraphRetainUserObject"});
  if (status.ok()) Abandon();  // the graph will release it
  return status;
}

// The driver would take the handle of no stream for a pointer. Programs' streams are asked here before all else.
Result<CUstreamCaptureStatus> CaptureStatusOf(const Driver& driver, CUstream stream, const char* likely_cause) {
  if (stream == COMMPOOL_NO_STREAM) {
    return Status(StatusCode::kInvalidArgument,
                  "COMMPOOL_NO_STREAM is for commpool_pool_allocate alone, from a PINNED pool with deferred frees");
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuStreamIsCapturing(stream, &status),
                         {.call = "cuStreamIsCapturing", .likely_cause = likely_cause}));
  return status;
}

Result<CUgraph> GraphInCapture(const Driver& driver, CUstream stream, cuuint64_t* number) {
  CUstreamCaptureStatus capturing = COMMPOOL_TRY(CaptureStatusOf(driver, stream));
  CUgraph graph = nullptr;
  if (capturing == CU_STREAM_CAPTURE_STATUS_NONE) return graph;
  if (capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    const CUresult result =
        driver.cuda.cuStreamGetCaptureInfo(stream, &capturing, number, &graph, nullptr, nullptr, nullptr);
    COMMPOOL_TRY(CheckCuda(driver, result, {.call = "cuStreamGetCaptureInfo"}));
  }
  if (graph != nullptr) return graph;
  return CheckCuda(driver, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, {.call = "capture"});
}

namespace {

Result<std::vector<CUgraphNode>> NodesOf(const Driver& driver, CUgraph graph) {
  size_t count = 0;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuGraphGetNodes(graph, nullptr, &count), {.call = "cuGraphGetNodes"}));
  std::vector<CUgraphNode> nodes(count);
  if (count == 0) return nodes;
  COMMPOOL_TRY(
      CheckCuda(driver, driver.cuda.cuGraphGetNodes(graph, nodes.data(), &count), {.call = "cuGraphGetNodes"}));
  nodes.resize(count);
  return nodes;
}

Result<std::string> KernelOf(const Driver& driver, CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  COMMPOOL_TRY(
      CheckCuda(driver, driver.cuda.cuGraphKernelNodeGetParams(node, &kernel), {.call = "cuGraphKernelNodeGetParams"}));
  const char* name = nullptr;
  if (kernel.func != nullptr) {
    COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuFuncGetName(&name, kernel.func), {.call = "cuFuncGetName"}));
  } else {
    COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuKernelGetName(&name, kernel.kern), {.call = "cuKernelGetName"}));
  }
  return std::string(name);
}

}  // namespace

Result<std::string> FindKernel(const Driver& driver, CUgraph graph, FunctionRef<bool(const std::string&)> is_sought) {
  for (const CUgraphNode node : COMMPOOL_TRY(NodesOf(driver, graph))) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuGraphNodeGetType(node, &type), {.call = "cuGraphNodeGetType"}));
    std::string found;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      found = COMMPOOL_TRY(KernelOf(driver, node));
      if (!is_sought(found)) found.clear();
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuGraphChildGraphNodeGetGraph(node, &child),
                             {.call = "cuGraphChildGraphNodeGetGraph"}));
      found = COMMPOOL_TRY(FindKernel(driver, child, is_sought));
    } else if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      return Status(StatusCode::kNotSupported, "the driver does not show what a conditional node of a graph holds");
    }
    if (!found.empty()) return found;
  }
  return std::string();
}

RelaxedCapture::RelaxedCapture(const Driver& driver)
    : driver_(driver), exchanged_(driver.cuda.cuThreadExchangeStreamCaptureMode(&other_) == CUDA_SUCCESS) {}

RelaxedCapture::~RelaxedCapture() {
  if (exchanged_) driver_.cuda.cuThreadExchangeStreamCaptureMode(&other_);
}

}  // namespace commpool::internal
