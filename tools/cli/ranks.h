// The ranks that run a subcommand together: those of mpirun, or this process alone. One rank a GPU.
#ifndef COMMPOOL_TOOLS_CLI_RANKS_H_
#define COMMPOOL_TOOLS_CLI_RANKS_H_

#include <memory>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/driver/handles.h"
#include "src/driver/loader.h"

namespace commpool::cli {

struct MpiLibrary;

class Ranks {
 public:
  // Joins mpirun's ranks where it started this process. Throws where there is no Open MPI for that.
  Ranks();
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int count() const { return count_; }
  int rank_on_host() const { return rank_on_host_; }
  bool first() const { return rank_ == 0; }

  // Of all ranks.
  double Max(double value) const;
  long Sum(long value) const;
  // Rank 0's bytes, on all.
  void Broadcast(void* data, int bytes) const;
  // Everybody's number, rank 0's first.
  std::vector<int> Gather(int value) const;
  void Wait() const;
  // OK where it is on all ranks. Else the failure of the first rank that has one: to that rank as it is, to the others
  // without a message, for one sentence says it.
  Status FirstFailure(const Status& mine) const;
  // A failure under this rank's name, unless another rank tells it: of a refusal the first has the message.
  Status Told(const Status& failure) const;

 private:
  std::unique_ptr<const MpiLibrary> mpi_;  // null where this process runs alone
  int rank_ = 0;
  int count_ = 1;
  int rank_on_host_ = 0;
};

// A driver that all ranks agree on, and what one rank needs of it.
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

// Decides `auto` once, on rank 0; opens the driver, and commpool's runtime with the same one; makes a stream and a
// communicator. Where a rank cannot, all ranks get an error before the first of them calls NCCL; one has the message.
Result<std::unique_ptr<RankDevice>> OpenRankDevice(const Ranks& ranks);

// A communicator of all ranks: collective. The caller destroys it. Without a configuration NCCL's own choice.
Result<ncclComm_t> MakeCommunicator(const Ranks& ranks, const internal::Driver& driver, int device,
                                    ncclConfig_t* configuration = nullptr);

// The driver alone, for subcommands without ranks.
Result<std::shared_ptr<const internal::Driver>> OpenDriver();

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_RANKS_H_
