// The CUDA and NCCL functions that the examples call by their own names, handed to the libraries that were opened.
#include <cuda.h>
#include <nccl.h>

#include "examples/support/driver.h"

using examples::TheDriver;

extern "C" {

CUresult cuCtxSetCurrent(CUcontext context) { return TheDriver().cuda.cuCtxSetCurrent(context); }

CUresult cuStreamCreate(CUstream* stream, unsigned flags) { return TheDriver().cuda.cuStreamCreate(stream, flags); }

CUresult cuStreamDestroy(CUstream stream) { return TheDriver().cuda.cuStreamDestroy(stream); }

CUresult cuStreamSynchronize(CUstream stream) { return TheDriver().cuda.cuStreamSynchronize(stream); }

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
  return TheDriver().cuda.cuMemsetD32Async(address, value, count, stream);
}

CUresult cuMemcpyHtoD(CUdeviceptr destination, const void* source, size_t bytes) {
  return TheDriver().cuda.cuMemcpyHtoD(destination, source, bytes);
}

CUresult cuMemcpyDtoH(void* destination, CUdeviceptr source, size_t bytes) {
  return TheDriver().cuda.cuMemcpyDtoH(destination, source, bytes);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return TheDriver().nccl.ncclGetUniqueId(id); }

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
  return TheDriver().nccl.ncclCommInitRank(communicator, ranks, id, rank);
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) { return TheDriver().nccl.ncclCommDestroy(communicator); }

ncclResult_t ncclAllReduce(const void* sent, void* received, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t communicator, cudaStream_t stream) {
  return TheDriver().nccl.ncclAllReduce(sent, received, count, type, operation, communicator, stream);
}

}  // extern "C"
