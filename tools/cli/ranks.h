// The ranks that run a subcommand together: those of mpirun, or this process alone. One rank for each GPU.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"

namespace commpool::cli {

struct MpiLibrary;

class Ranks {
 public:
  // Joins mpirun's ranks if mpirun started this process. Throws where Open MPI is missing then.
  Ranks();
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int count() const { return count_; }
  int rank_on_host() const { return rank_on_host_; }
  long host() const { return host_; }
  bool first() const { return rank_ == 0; }

  // The maximum over all ranks.
  double Max(double value) const;
  long Sum(long value) const;
  // Sends rank 0's bytes to all.
  void Broadcast(void* data, int bytes) const;
  // The values of all ranks, rank 0's first.
  std::vector<long> Gather(long value) const;
  void Wait() const;
  // OK where all ranks are OK. Else the failure of the first failed rank: with its message on that rank, without one on
  // the others, so that it is printed once.
  Status FirstFailure(const Status& mine) const;
  // Adds this rank's name to a failure, unless another rank reports it: for a refusal the first rank has the message.
  Status Told(const Status& failure) const;

 private:
  std::unique_ptr<const MpiLibrary> mpi_;  // null where this process runs alone
  int rank_ = 0;
  int count_ = 1;
  int rank_on_host_ = 0;
  long host_ = 0;  // its last rank: no other host has that
};

// For Command::Do: joins the ranks, and leaves them only when the program ends. As soon as one rank has ended with an
// error mpirun ends the others, so each must have printed before any may leave.
std::function<Result<int>()> WithRanks(std::function<Result<int>(const Ranks&)> action);

// A driver that all ranks agree on, and what one rank needs.
struct RankDevice {
  std::shared_ptr<const internal::Driver> driver;
  int device = 0;
  internal::PrimaryContext context;
  CUstream stream = nullptr;
  ncclComm_t communicator = nullptr;

  RankDevice() = default;
  RankDevice(RankDevice&&) = default;
  RankDevice(const RankDevice&) = delete;
  ~RankDevice();
};

// Decides `auto` once, on rank 0. Opens the driver, opens commpool's runtime with the same driver, and makes a stream
// and a communicator. Where one rank cannot, all ranks get an error before any calls NCCL; one has the message.
Result<std::unique_ptr<RankDevice>> OpenRankDevice(const Ranks& ranks);

// A communicator of all ranks; collective. The caller destroys it. Without a configuration NCCL chooses.
Result<ncclComm_t> MakeCommunicator(const Ranks& ranks, const internal::Driver& driver, int device,
                                    ncclConfig_t* configuration = nullptr);

// Opens the driver, for subcommands without ranks.
Result<std::shared_ptr<const internal::Driver>> OpenDriver();

}  // namespace commpool::cli
