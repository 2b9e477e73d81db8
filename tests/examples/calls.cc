// The CUDA and NCCL functions that the examples call, for builds in this repository, which link neither library. They
// call the driver that the loader opens: the real one, or without a GPU the emulator. commpool gets the same driver.
#include <cuda.h>
#include <nccl.h>

#include <cstdlib>
#include <memory>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/library/driver/loader.h"

namespace {

namespace internal = commpool::internal;

std::shared_ptr<const internal::Driver> Open() {
  const internal::LoaderOptions options = internal::LoaderOptionsFromEnvironment(internal::DriverChoice::kAuto).value();
  std::shared_ptr<const internal::Driver> driver = internal::LoadDriver(options).value();
  const bool emulated = driver->kind == internal::DriverChoice::kEmulated;
  // For ranks that this rank sends its choice to.
  setenv("COMMPOOL_DRIVER", emulated ? "emulated" : "cuda", 1);
  const commpool_status status =
      commpool_initialize(emulated ? COMMPOOL_DRIVER_EMULATED : COMMPOOL_DRIVER_CUDA, COMMPOOL_MEASURE_NOTHING);
  if (status != COMMPOOL_OK) throw commpool::Error(commpool::detail::FromC(status));
  return driver;
}

const internal::Driver& TheDriver() {
  static const std::shared_ptr<const internal::Driver> driver = Open();
  return *driver;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned flags) { return TheDriver().cuda.cuInit(flags); }

CUresult cuGetErrorName(CUresult result, const char** name) { return TheDriver().cuda.cuGetErrorName(result, name); }

CUresult cuDeviceGetCount(int* count) { return TheDriver().cuda.cuDeviceGetCount(count); }

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return TheDriver().cuda.cuDevicePrimaryCtxRetain(context, device);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return TheDriver().cuda.cuDevicePrimaryCtxRelease(device); }

CUresult cuCtxSetCurrent(CUcontext context) { return TheDriver().cuda.cuCtxSetCurrent(context); }

CUresult cuStreamCreate(CUstream* stream, unsigned flags) { return TheDriver().cuda.cuStreamCreate(stream, flags); }

CUresult cuStreamDestroy(CUstream stream) { return TheDriver().cuda.cuStreamDestroy(stream); }

CUresult cuStreamSynchronize(CUstream stream) { return TheDriver().cuda.cuStreamSynchronize(stream); }

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
  return TheDriver().cuda.cuMemsetD32Async(address, value, count, stream);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr destination, const void* source, size_t bytes, CUstream stream) {
  return TheDriver().cuda.cuMemcpyHtoDAsync(destination, source, bytes, stream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  return TheDriver().cuda.cuMemcpyDtoDAsync(destination, source, bytes, stream);
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  return TheDriver().cuda.cuStreamBeginCapture(stream, mode);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return TheDriver().cuda.cuStreamEndCapture(stream, graph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long flags) {
  return TheDriver().cuda.cuGraphInstantiateWithFlags(executable, graph, flags);
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return TheDriver().cuda.cuGraphLaunch(executable, stream);
}

CUresult cuGraphExecDestroy(CUgraphExec executable) { return TheDriver().cuda.cuGraphExecDestroy(executable); }

CUresult cuGraphDestroy(CUgraph graph) { return TheDriver().cuda.cuGraphDestroy(graph); }

CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return TheDriver().cuda.cuMemGetInfo(free_bytes, total_bytes);
}

CUresult cuMemcpyDtoH(void* destination, CUdeviceptr source, size_t bytes) {
  return TheDriver().cuda.cuMemcpyDtoH(destination, source, bytes);
}

const char* ncclGetErrorString(ncclResult_t result) { return TheDriver().nccl.ncclGetErrorString(result); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return TheDriver().nccl.ncclGetUniqueId(id); }

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
  return TheDriver().nccl.ncclCommInitRank(communicator, ranks, id, rank);
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) { return TheDriver().nccl.ncclCommDestroy(communicator); }

ncclResult_t ncclCommAbort(ncclComm_t communicator) { return TheDriver().nccl.ncclCommAbort(communicator); }

ncclResult_t ncclBroadcast(const void* sent, void* received, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return TheDriver().nccl.ncclBroadcast(sent, received, count, type, root, communicator, stream);
}

ncclResult_t ncclAllReduce(const void* sent, void* received, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t communicator, cudaStream_t stream) {
  return TheDriver().nccl.ncclAllReduce(sent, received, count, type, operation, communicator, stream);
}

}  // extern "C"
