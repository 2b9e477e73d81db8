#include "tools/cli/mpi_library.h"

#include <string>

#include "src/library/driver/shared_library.h"

namespace commpool::cli {

namespace {

// Finds symbols until one is missing.
class Symbols {
 public:
  explicit Symbols(const internal::SharedLibrary& library) : library_(library) {}

  template <typename Pointer>
  Symbols& Take(const char* name, Pointer& pointer) {
    void* const symbol = library_.Symbol(name);
    if (symbol == nullptr && missing_.empty()) missing_ = name;
    pointer = reinterpret_cast<Pointer>(symbol);
    return *this;
  }

  Status status() const {
    if (missing_.empty()) return Status();
    return Status(StatusCode::kNotFound, library_.file() + " has no " + missing_ + ": it is not Open MPI's");
  }

 private:
  const internal::SharedLibrary& library_;
  std::string missing_;
};

}  // namespace

Result<MpiLibrary> MpiLibrary::Open() {
  // Open MPI's plug-ins look for its symbols among those of the whole process.
  const auto library = internal::SharedLibrary::Open("libmpi.so.40", RTLD_GLOBAL);
  if (!library.ok()) return library.status();
  MpiLibrary mpi;
  Symbols symbols(*library);
  symbols.Take("MPI_Init", mpi.Init)
      .Take("MPI_Finalize", mpi.Finalize)
      .Take("MPI_Comm_rank", mpi.CommRank)
      .Take("MPI_Comm_size", mpi.CommSize)
      .Take("MPI_Comm_split_type", mpi.CommSplitType)
      .Take("MPI_Comm_free", mpi.CommFree)
      .Take("MPI_Allreduce", mpi.Allreduce)
      .Take("MPI_Bcast", mpi.Bcast)
      .Take("MPI_Allgather", mpi.Allgather)
      .Take("MPI_Barrier", mpi.Barrier)
      .Take("ompi_mpi_comm_world", mpi.world)
      .Take("ompi_mpi_info_null", mpi.no_info)
      .Take("ompi_mpi_byte", mpi.byte_type)
      .Take("ompi_mpi_long", mpi.long_type)
      .Take("ompi_mpi_double", mpi.double_type)
      .Take("ompi_mpi_op_max", mpi.max)
      .Take("ompi_mpi_op_sum", mpi.sum);
  if (Status status = symbols.status(); !status.ok()) return status;
  return mpi;
}

}  // namespace commpool::cli
