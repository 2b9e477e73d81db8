#include "tools/cli/ranks.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "commpool/commpool.h"
#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/mpi_library.h"

namespace commpool::cli {

Ranks::Ranks() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return;
  const Result<MpiLibrary> opened = MpiLibrary::Open();
  if (!opened.ok()) {
    throw std::runtime_error("mpirun started this process, and Open MPI's library cannot be opened: " +
                             opened.status().message() + " (LD_LIBRARY_PATH names the folders to look in)");
  }
  mpi_ = std::make_unique<const MpiLibrary>(*opened);
  mpi_->Init(nullptr, nullptr);
  mpi_->CommRank(mpi_->world, &rank_);
  mpi_->CommSize(mpi_->world, &count_);
  MPI_Comm on_host = nullptr;
  mpi_->CommSplitType(mpi_->world, MPI_COMM_TYPE_SHARED, rank_, mpi_->no_info, &on_host);
  mpi_->CommRank(on_host, &rank_on_host_);
  host_ = rank_;
  mpi_->Allreduce(MPI_IN_PLACE, &host_, 1, mpi_->long_type, mpi_->max, on_host);
  mpi_->CommFree(&on_host);
}

Ranks::~Ranks() {
  if (mpi_) mpi_->Finalize();
}

double Ranks::Max(double value) const {
  if (mpi_) mpi_->Allreduce(MPI_IN_PLACE, &value, 1, mpi_->double_type, mpi_->max, mpi_->world);
  return value;
}

long Ranks::Sum(long value) const {
  if (mpi_) mpi_->Allreduce(MPI_IN_PLACE, &value, 1, mpi_->long_type, mpi_->sum, mpi_->world);
  return value;
}

void Ranks::Broadcast(void* data, int bytes) const {
  if (mpi_) mpi_->Bcast(data, bytes, mpi_->byte_type, 0, mpi_->world);
}

std::vector<long> Ranks::Gather(long value) const {
  std::vector<long> values(static_cast<size_t>(count_), value);
  if (mpi_) mpi_->Allgather(&value, 1, mpi_->long_type, values.data(), 1, mpi_->long_type, mpi_->world);
  return values;
}

void Ranks::Wait() const {
  if (mpi_) mpi_->Barrier(mpi_->world);
}

Status Ranks::FirstFailure(const Status& mine) const {
  const std::vector<long> codes = Gather(static_cast<long>(mine.code()));
  constexpr auto kOk = static_cast<long>(StatusCode::kOk);
  const auto first = std::find_if(codes.begin(), codes.end(), [](long code) { return code != kOk; });
  if (first == codes.end()) return Status();
  return first - codes.begin() == rank_ ? mine : Status(static_cast<StatusCode>(*first), "");
}

std::function<Result<int>()> WithRanks(std::function<Result<int>(const Ranks&)> action) {
  return [action = std::move(action), ranks = std::make_shared<std::optional<Ranks>>()] {
    return action(ranks->emplace());
  };
}

RankDevice::~RankDevice() {
  if (driver == nullptr) return;
  if (communicator != nullptr) driver->nccl.ncclCommDestroy(communicator);
  if (stream != nullptr) driver->cuda.cuStreamDestroy(stream);
}

Result<std::shared_ptr<const internal::Driver>> OpenDriver() {
  internal::LoaderOptions options = COMMPOOL_TRY(internal::LoaderOptionsFromEnvironment(internal::DriverChoice::kAuto));
  return internal::LoadDriver(options);
}

Status Ranks::Told(const Status& failure) const {
  const bool refused = failure.code() == StatusCode::kNotSupported;
  if (failure.message().empty() || (refused && !first())) return Status(failure.code(), "");
  return refused ? failure : failure.under("rank " + std::to_string(rank_));
}

namespace {

// Rank 0 chooses, and the others follow: a job half on the emulator would measure nothing.
Result<std::shared_ptr<const internal::Driver>> OpenSameDriver(const Ranks& ranks) {
  internal::LoaderOptions options = COMMPOOL_TRY(internal::LoaderOptionsFromEnvironment(internal::DriverChoice::kAuto));
  Result<std::shared_ptr<const internal::Driver>> driver = Status(StatusCode::kNotFound, "rank 0 found no driver");
  int kind = -1;
  if (ranks.first()) {
    driver = internal::LoadDriver(options);
    if (driver.ok()) kind = static_cast<int>((*driver)->kind);
  }
  ranks.Broadcast(&kind, sizeof(kind));
  if (ranks.first() || kind < 0) return driver;
  options.choice = static_cast<internal::DriverChoice>(kind);
  return internal::LoadDriver(options);
}

// By addresses: launchers hide devices from ranks, which then number the others as they like.
Status CheckDeviceForRank(const Ranks& ranks, const RankDevice& device) {
  std::string address = internal::PciBusIdOf(*device.driver, device.device);
  std::erase(address, ':');
  const long place = ranks.host() << 48 | std::strtol(address.c_str(), nullptr, 16);
  const std::vector<long> places = ranks.Gather(place);
  if (std::find(places.begin(), places.end(), place) - places.begin() == ranks.rank()) return Status();
  const int devices = COMMPOOL_TRY(internal::DeviceCount(*device.driver));
  return Status(StatusCode::kInvalidArgument, "rank " + std::to_string(ranks.rank()) +
                                                  " has no GPU of its own among the " + std::to_string(devices) +
                                                  " that it sees; start one rank a GPU");
}

// Everything that a rank needs, but its communicator.
Status OpenOwnDevice(const Ranks& ranks, Result<std::shared_ptr<const internal::Driver>> driver, RankDevice& device) {
  if (!driver.ok()) return driver.status();
  device.driver = *driver;
  const int devices = COMMPOOL_TRY(internal::DeviceCount(**driver));
  device.device = ranks.rank_on_host() % devices;
  if (!(*driver)->nccl.available()) {
    return Status(StatusCode::kNotSupported, "there is no NCCL here: " + (*driver)->nccl.why_missing);
  }
  const auto kind =
      (*driver)->kind == internal::DriverChoice::kEmulated ? COMMPOOL_DRIVER_EMULATED : COMMPOOL_DRIVER_CUDA;
  if (commpool_initialize(kind, COMMPOOL_MEASURE_NOTHING) != COMMPOOL_OK)
    return Status(StatusCode::kDriverError, commpool_last_error());

  Result<internal::PrimaryContext> context = internal::PrimaryContext::Retain(**driver, device.device);
  if (!context.ok()) return context.status();
  device.context = std::move(*context);
  (*driver)->cuda.cuCtxSetCurrent(device.context.get());
  return internal::CheckCuda(**driver, (*driver)->cuda.cuStreamCreate(&device.stream, CU_STREAM_NON_BLOCKING),
                             {.call = "cuStreamCreate", .device = device.device});
}

}  // namespace

Result<ncclComm_t> MakeCommunicator(const Ranks& ranks, const internal::Driver& driver, int device,
                                    ncclConfig_t* configuration) {
  ncclUniqueId id = {};
  Status status;
  if (ranks.first())
    status = internal::CheckNccl(driver, driver.nccl.ncclGetUniqueId(&id), {.call = "ncclGetUniqueId"});
  if (status = ranks.FirstFailure(status); !status.ok()) return status;
  ranks.Broadcast(&id, sizeof(id));
  ncclComm_t communicator = nullptr;
  const ncclResult_t made =
      configuration == nullptr
          ? driver.nccl.ncclCommInitRank(&communicator, ranks.count(), id, ranks.rank())
          : driver.nccl.ncclCommInitRankConfig(&communicator, ranks.count(), id, ranks.rank(), configuration);
  status = internal::CheckNccl(driver, made, {.call = "ncclCommInitRank", .device = device});
  if (!status.ok()) return status;
  return communicator;
}

Result<std::unique_ptr<RankDevice>> OpenRankDevice(const Ranks& ranks) {
  auto device = std::make_unique<RankDevice>();
  COMMPOOL_TRY(ranks.FirstFailure(OpenOwnDevice(ranks, OpenSameDriver(ranks), *device)));
  COMMPOOL_TRY(ranks.FirstFailure(CheckDeviceForRank(ranks, *device)));
  device->communicator = COMMPOOL_TRY(MakeCommunicator(ranks, *device->driver, device->device));
  return device;
}

}  // namespace commpool::cli
