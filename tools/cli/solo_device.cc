#include "tools/cli/solo_device.h"

#include <utility>

#include "commpool/commpool.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/ranks.h"

namespace commpool::cli {

Result<std::unique_ptr<SoloDevice>> SoloDevice::Open(size_t streams, DriverTimes times) {
  std::shared_ptr<const internal::Driver> driver = COMMPOOL_TRY(OpenDriver());
  std::unique_ptr<SoloDevice> device(new SoloDevice(driver));
  COMMPOOL_TRY(detail::FromC(
      commpool_initialize(device->emulated() ? COMMPOOL_DRIVER_EMULATED : COMMPOOL_DRIVER_CUDA,
                          times == DriverTimes::kMeasured ? COMMPOOL_MEASURE_CALLS : COMMPOOL_MEASURE_NOTHING)));
  device->context_ = COMMPOOL_TRY(internal::PrimaryContext::Retain(*driver, 0));
  Status status =
      internal::CheckCuda(*driver, driver->cuda.cuCtxSetCurrent(device->context_.get()), {.call = "cuCtxSetCurrent"});
  if (status.ok()) status = device->NeedStreams(streams);
  if (!status.ok()) return status;
  return device;
}

SoloDevice::~SoloDevice() {
  if (communicator_ != nullptr) driver_->nccl.ncclCommDestroy(communicator_);
  for (CUstream stream : streams_) {
    commpool_release_stream(stream);
    driver_->cuda.cuStreamDestroy(stream);
  }
}

Status SoloDevice::NeedStreams(size_t count) {
  while (streams_.size() < count) {
    CUstream stream = nullptr;
    COMMPOOL_TRY(internal::CheckCuda(*driver_, driver_->cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                                     {.call = "cuStreamCreate", .device = 0}));
    streams_.push_back(stream);
  }
  return Status();
}

Result<ncclComm_t> SoloDevice::Communicator() {
  if (communicator_ != nullptr) return communicator_;
  if (!driver_->nccl.available()) {
    return Status(StatusCode::kNotSupported, "there is no NCCL here: " + driver_->nccl.why_missing);
  }
  ncclUniqueId id = {};
  COMMPOOL_TRY(internal::CheckNccl(*driver_, driver_->nccl.ncclGetUniqueId(&id), {.call = "ncclGetUniqueId"}));
  COMMPOOL_TRY(internal::CheckNccl(*driver_, driver_->nccl.ncclCommInitRank(&communicator_, 1, id, 0),
                                   {.call = "ncclCommInitRank", .device = 0}));
  return communicator_;
}

Result<uint64_t> SoloDevice::MemoryInUse() const {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  COMMPOOL_TRY(internal::CheckCuda(*driver_, driver_->cuda.cuMemGetInfo(&free_bytes, &total_bytes),
                                   {.call = "cuMemGetInfo", .device = 0}));
  return uint64_t{total_bytes - free_bytes};
}

}  // namespace commpool::cli
