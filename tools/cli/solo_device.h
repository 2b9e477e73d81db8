// Device 0 for one process alone: driver, context, streams, and a communicator of one rank where asked. One thread.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <memory>
#include <vector>

#include "commpool/status.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"

namespace commpool::cli {

enum class DriverTimes { kUnmeasured, kMeasured };

class SoloDevice {
 public:
  // Opens the driver (auto: GPUs where there are some) and commpool's runtime with the same driver. Makes device 0
  // current, and streams that do not wait for the legacy stream.
  static Result<std::unique_ptr<SoloDevice>> Open(size_t streams, DriverTimes times);
  ~SoloDevice();
  SoloDevice(const SoloDevice&) = delete;
  SoloDevice& operator=(const SoloDevice&) = delete;

  const internal::Driver& driver() const { return *driver_; }
  bool emulated() const { return driver_->kind == internal::DriverChoice::kEmulated; }
  const std::vector<CUstream>& streams() const { return streams_; }

  // On the calling thread, for its own driver calls.
  void MakeCurrent() const { driver_->cuda.cuCtxSetCurrent(context_.get()); }
  // Makes more streams, where there are fewer.
  Status NeedStreams(size_t count);
  // A communicator with this process as its only rank, made once.
  Result<ncclComm_t> Communicator();
  // How much of the device's memory is in use, by the driver's count.
  Result<uint64_t> MemoryInUse() const;

 private:
  explicit SoloDevice(std::shared_ptr<const internal::Driver> driver) : driver_(std::move(driver)) {}

  std::shared_ptr<const internal::Driver> driver_;
  internal::PrimaryContext context_;
  std::vector<CUstream> streams_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace commpool::cli
