#include "src/driver/host_transfer.h"

namespace commpool::internal {

Result<PinnedMemory> PinnedMemory::Make(const Driver& driver, uint64_t bytes) {
  void* address = nullptr;
  Status status =
      CheckCuda(driver, driver.cuda.cuMemAllocHost(&address, bytes),
                {.call = "cuMemAllocHost", .bytes = bytes, .likely_cause = "the host has not so much to pin"});
  if (!status.ok()) return status;
  return PinnedMemory(driver, {address, bytes});
}

CUresult PinnedMemoryTraits::Release(const CudaDriver& cuda, const Value& memory) {
  return cuda.cuMemFreeHost(memory.address);
}

CallSite PinnedMemoryTraits::Site(const Value& memory) { return {.call = "cuMemFreeHost", .bytes = memory.bytes}; }

Result<CopyStream> CopyStream::Make(const Driver& driver) {
  CUstream stream = nullptr;
  Status status =
      CheckCuda(driver, driver.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), {.call = "cuStreamCreate"});
  if (!status.ok()) return status;
  return CopyStream(driver, stream);
}

Status CopyStream::Copy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  return CheckCuda(driver(), driver().cuda.cuMemcpyAsync(to, from, bytes, value()),
                   {.call = "cuMemcpyAsync", .bytes = bytes});
}

Status CopyStream::Await() {
  return CheckCuda(driver(), driver().cuda.cuStreamSynchronize(value()), {.call = "cuStreamSynchronize"});
}

CUresult CopyStreamTraits::Release(const CudaDriver& cuda, const Value& stream) { return cuda.cuStreamDestroy(stream); }

CallSite CopyStreamTraits::Site(const Value&) { return {.call = "cuStreamDestroy"}; }

}  // namespace commpool::internal
