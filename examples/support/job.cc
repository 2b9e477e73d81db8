#include "examples/support/job.h"

#include <mpi.h>

#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

// Tells every rank that the job cannot start. Only the rank with the reason has a message.
struct CannotStart : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Rank 0 opens the driver first, and the others open the same one: a job half on the emulator would be useless.
void TakeRankZerosDriver(int rank) {
  constexpr const char* kVariable = "COMMPOOL_DRIVER";
  std::array<char, 64> choice = {};
  if (rank == 0) {
    static_cast<void>(cuInit(0));  // asked and checked again with the device
    const char* chosen = std::getenv(kVariable);
    if (chosen != nullptr) std::strncpy(choice.data(), chosen, choice.size() - 1);
  }
  MPI_Bcast(choice.data(), choice.size(), MPI_CHAR, 0, MPI_COMM_WORLD);
  if (choice.front() != '\0') setenv(kVariable, choice.data(), 1);
}

// Comes before the first NCCL call, where ranks would wait for those that cannot come. Collective.
void StartAllOrNone(int rank, const std::string& why_not) {
  const int mine = why_not.empty() ? INT_MAX : rank;
  int first = INT_MAX;
  MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first != INT_MAX) throw CannotStart(first == rank ? why_not : "");
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

Job::Job(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  device = RankOnThisHost();
  TakeRankZerosDriver(rank);
  std::string why_not;
  try {
    gpu_.emplace(device);
  } catch (const std::exception& error) {
    why_not = error.what();
  }
  StartAllOrNone(rank, why_not);
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
  if (*error.what() != '\0') std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  if (dynamic_cast<const CannotStart*>(&error) != nullptr) {
    MPI_Finalize();
  } else if (started) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return 1;
}

}  // namespace examples
