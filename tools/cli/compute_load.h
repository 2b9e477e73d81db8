// Work that keeps every multiprocessor of a device busy with tensor cores, in kernels as long as a large layer's: what
// a collective beside it costs is what it would cost a GEMM. One thread; the device's context is current.
//
// A stand-in for a GEMM, of PTX of our own: cuBLAS would be a library to find and to match. As a GEMM's, its blocks
// fill the multiprocessors' shared memory, so that NCCL's wait for one to end and then keep a multiprocessor; unlike a
// GEMM's it reads no memory, so what collectives take of that is not seen.
#ifndef COMMPOOL_TOOLS_CLI_COMPUTE_LOAD_H_
#define COMMPOOL_TOOLS_CLI_COMPUTE_LOAD_H_

#include <cuda.h>

#include <memory>
#include <string>

#include "commpool/status.h"
#include "src/driver/loader.h"

namespace commpool::cli {

// As the driver compiles it.
const char* ComputeLoadPtx();

class ComputeLoad {
 public:
  virtual ~ComputeLoad() = default;

  // One kernel.
  virtual Status Launch(CUstream stream) = 0;
  // What it is, for the head of a table.
  virtual std::string description() const = 0;
};

// On the emulator, which runs no kernels, modelled device work in its place.
Result<std::unique_ptr<ComputeLoad>> MakeComputeLoad(const internal::Driver& driver, int device);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_COMPUTE_LOAD_H_
