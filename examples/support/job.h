// Everything that a program under mpirun has without commpool: MPI, a GPU for this rank, a stream, a communicator. One
// thread uses it.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <exception>
#include <optional>

#include "examples/support/device.h"
#include "examples/support/nccl_check.h"

namespace examples {

class Job {
 public:
  // If one rank cannot start none does: JobFailed gives the reason, once.
  Job(int argc, char** argv);
  // Close pools that are registered with `comm` before. During an exception it releases nothing: other ranks may wait
  // inside a collective for ever, and JobFailed ends them.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // True on every rank if it is true on all.
  bool AllRanks(bool here) const;

  int rank = 0;
  int ranks = 1;
  int device = 0;  // the rank's number on its host
  CUstream stream = nullptr;
  ncclComm_t comm = nullptr;

 private:
  const int exceptions_ = std::uncaught_exceptions();
  std::optional<Device> gpu_;
};

// Prints the error and the rank, and ends all ranks with the same status, which is not 0.
int JobFailed(const std::exception& error);

}  // namespace examples
