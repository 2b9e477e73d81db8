#include "tools/stress/ranks/driver_points.h"

#include "tools/stress/ranks/armed_fault.h"

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
  if (ArmedFault* const armed = ArmedFault::OfProcess()) armed->Reach(point);
}

CUresult Create(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                unsigned long long flags) {
  ArmedFault* const armed = ArmedFault::OfProcess();
  if (armed != nullptr && armed->Waits(Point::kMake)) {
    const bool refuses = armed->refuses();
    armed->Act(Point::kMake);
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

std::shared_ptr<const internal::Driver> MakeFaultyDriver(const std::shared_ptr<const internal::Driver>& driver) {
  real_driver = driver;
  auto faulty_driver = std::make_shared<internal::Driver>(*driver);
  faulty_driver->cuda.cuMemCreate = Create;
  faulty_driver->cuda.cuMemUnmap = Unmap;
  faulty_driver->nccl.ncclAllGather = AllGather;
  faulty_driver->nccl.ncclCommWindowRegister = WindowRegister;
  faulty_driver->nccl.ncclCommWindowDeregister = WindowDeregister;
  return faulty_driver;
}

bool IsInsideNccl() { return calls_inside_nccl.load() > 0; }

}  // namespace commpool::cli::stress_ranks
