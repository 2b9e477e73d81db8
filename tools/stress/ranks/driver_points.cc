#include "tools/stress/ranks/driver_points.h"

#include "tools/stress/ranks/ambush.h"

namespace commpool::cli::stress_ranks {

namespace {

// Tables of functions carry no state.
std::shared_ptr<const internal::Driver> real_driver;
std::atomic<int> calls_inside_nccl{0};

class InsideNccl {
 public:
  InsideNccl() { ++calls_inside_nccl; }
  ~InsideNccl() { --calls_inside_nccl; }
  InsideNccl(const InsideNccl&) = delete;
  InsideNccl& operator=(const InsideNccl&) = delete;
};

void Reach(Point point) {
  if (Ambush* const ambush = Ambush::OfProcess()) ambush->Reach(point);
}

CUresult Create(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                unsigned long long flags) {
  Ambush* const ambush = Ambush::OfProcess();
  if (ambush != nullptr && ambush->Waits(Point::kMake)) {
    const bool refuses = ambush->refuses();
    ambush->Act(Point::kMake);
    if (refuses) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return real_driver->cuda.cuMemCreate(handle, bytes, properties, flags);
}

CUresult Unmap(CUdeviceptr address, size_t bytes) {
  Reach(Point::kUnmap);
  return real_driver->cuda.cuMemUnmap(address, bytes);
}

ncclResult_t AllGather(const void* sent, void* received, size_t count, ncclDataType_t type, ncclComm_t communicator,
                       cudaStream_t stream) {
  Reach(Point::kCreate);
  return real_driver->nccl.ncclAllGather(sent, received, count, type, communicator, stream);
}

ncclResult_t WindowRegister(ncclComm_t communicator, void* buffer, size_t bytes, ncclWindow_t* window, int flags) {
  Reach(Point::kRegister);
  ncclResult_t result = ncclSuccess;
  {
    const InsideNccl inside;
    result = real_driver->nccl.ncclCommWindowRegister(communicator, buffer, bytes, window, flags);
  }
  Reach(Point::kRegistered);
  return result;
}

ncclResult_t WindowDeregister(ncclComm_t communicator, ncclWindow_t window) {
  Reach(Point::kDeregister);
  const InsideNccl inside;
  return real_driver->nccl.ncclCommWindowDeregister(communicator, window);
}

}  // namespace

std::shared_ptr<const internal::Driver> MakeAmbushedDriver(const std::shared_ptr<const internal::Driver>& driver) {
  real_driver = driver;
  auto ambushed = std::make_shared<internal::Driver>(*driver);
  ambushed->cuda.cuMemCreate = Create;
  ambushed->cuda.cuMemUnmap = Unmap;
  ambushed->nccl.ncclAllGather = AllGather;
  ambushed->nccl.ncclCommWindowRegister = WindowRegister;
  ambushed->nccl.ncclCommWindowDeregister = WindowDeregister;
  return ambushed;
}

bool IsInsideNccl() { return calls_inside_nccl.load() > 0; }

}  // namespace commpool::cli::stress_ranks
