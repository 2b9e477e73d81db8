#include "examples/support/job.h"

#include <mpi.h>

#include <cstdio>
#include <stdexcept>
#include <string>

namespace examples {

namespace {

int RankOnThisHost() {
  MPI_Comm host = MPI_COMM_NULL;
  int rank = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &rank);
  MPI_Comm_free(&host);
  return rank;
}

ncclComm_t MakeCommunicator(int rank, int ranks) {
  ncclUniqueId id = {};
  if (rank == 0) Check(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclComm_t communicator = nullptr;
  Check(ncclCommInitRank(&communicator, ranks, id, rank));
  return communicator;
}

}  // namespace

void Check(ncclResult_t result) {
  if (result != ncclSuccess)
    throw std::runtime_error(std::string("an NCCL call failed: ") + ncclGetErrorString(result));
}

Job::Job(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  device = RankOnThisHost();
  gpu_.emplace(device);
  stream = gpu_->stream;
  comm = MakeCommunicator(rank, ranks);
}

Job::~Job() {
  if (std::uncaught_exceptions() > exceptions_) return;
  ncclCommDestroy(comm);
  gpu_.reset();
  MPI_Finalize();
}

bool Job::AllRanks(bool here) const {
  int all = here ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all == 1;
}

int JobFailed(const std::exception& error) {
  int started = 0;
  int rank = 0;
  MPI_Initialized(&started);
  if (started) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  if (started) MPI_Abort(MPI_COMM_WORLD, 1);
  return 1;
}

}  // namespace examples
