// The part of Open MPI that the program uses. It is opened only where mpirun started the process: elsewhere the program
// needs no MPI.
#pragma once

#include <mpi.h>

#include "commpool/status.h"

namespace commpool::cli {

struct MpiLibrary {
  // kNotFound with the system's words. The library is never closed.
  static Result<MpiLibrary> Open();

  decltype(&MPI_Init) Init = nullptr;
  decltype(&MPI_Finalize) Finalize = nullptr;
  decltype(&MPI_Comm_rank) CommRank = nullptr;
  decltype(&MPI_Comm_size) CommSize = nullptr;
  decltype(&MPI_Comm_split_type) CommSplitType = nullptr;
  decltype(&MPI_Comm_free) CommFree = nullptr;
  decltype(&MPI_Allreduce) Allreduce = nullptr;
  decltype(&MPI_Bcast) Bcast = nullptr;
  decltype(&MPI_Allgather) Allgather = nullptr;
  decltype(&MPI_Barrier) Barrier = nullptr;

  // The addresses of these objects are MPI_COMM_WORLD and so on in Open MPI's mpi.h.
  MPI_Comm world = nullptr;
  MPI_Info no_info = nullptr;
  MPI_Datatype byte_type = nullptr;
  MPI_Datatype long_type = nullptr;
  MPI_Datatype double_type = nullptr;
  MPI_Op max = nullptr;
  MPI_Op sum = nullptr;
};

}  // namespace commpool::cli
