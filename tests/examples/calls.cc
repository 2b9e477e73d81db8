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

const internal::CudaDriver& Cuda() { return TheDriver().cuda; }
const internal::NcclLibrary& Nccl() { return TheDriver().nccl; }

}  // namespace

extern "C" {

CUresult cuInit(unsigned flags) { return Cuda().cuInit(flags); }

CUresult cuGetErrorName(CUresult result, const char** name) { return Cuda().cuGetErrorName(result, name); }

CUresult cuDeviceGetCount(int* count) { return Cuda().cuDeviceGetCount(count); }

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return Cuda().cuDevicePrimaryCtxRetain(context, device);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return Cuda().cuDevicePrimaryCtxRelease(device); }

CUresult cuCtxSetCurrent(CUcontext context) { return Cuda().cuCtxSetCurrent(context); }

CUresult cuStreamCreate(CUstream* stream, unsigned flags) { return Cuda().cuStreamCreate(stream, flags); }

CUresult cuStreamDestroy(CUstream stream) { return Cuda().cuStreamDestroy(stream); }

CUresult cuStreamSynchronize(CUstream stream) { return Cuda().cuStreamSynchronize(stream); }

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
  return Cuda().cuMemsetD32Async(address, value, count, stream);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return Cuda().cuMemcpyHtoDAsync(to, from, bytes, stream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Cuda().cuMemcpyDtoDAsync(to, from, bytes, stream);
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  return Cuda().cuStreamBeginCapture(stream, mode);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) { return Cuda().cuStreamEndCapture(stream, graph); }

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long flags) {
  return Cuda().cuGraphInstantiateWithFlags(executable, graph, flags);
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) { return Cuda().cuGraphLaunch(executable, stream); }

CUresult cuGraphExecDestroy(CUgraphExec executable) { return Cuda().cuGraphExecDestroy(executable); }

CUresult cuGraphDestroy(CUgraph graph) { return Cuda().cuGraphDestroy(graph); }

CUresult cuMemGetInfo(size_t* free, size_t* total) { return Cuda().cuMemGetInfo(free, total); }

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) { return Cuda().cuMemcpyDtoH(to, from, bytes); }

const char* ncclGetErrorString(ncclResult_t result) { return Nccl().ncclGetErrorString(result); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return Nccl().ncclGetUniqueId(id); }

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
  return Nccl().ncclCommInitRank(communicator, ranks, id, rank);
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) { return Nccl().ncclCommDestroy(communicator); }

ncclResult_t ncclCommAbort(ncclComm_t communicator) { return Nccl().ncclCommAbort(communicator); }

ncclResult_t ncclBroadcast(const void* sent, void* received, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return Nccl().ncclBroadcast(sent, received, count, type, root, communicator, stream);
}

ncclResult_t ncclAllReduce(const void* sent, void* received, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t communicator, cudaStream_t stream) {
  return Nccl().ncclAllReduce(sent, received, count, type, operation, communicator, stream);
}

}  // extern "C"
