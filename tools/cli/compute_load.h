// Keeps every multiprocessor of a device busy with tensor cores, in kernels as long as those of a large layer. So a
// collective beside it costs what it would cost a GEMM. One thread; the device's context is current.
//
// Our own PTX stands for a GEMM, because cuBLAS would have to be found and matched. Like a GEMM's, its blocks fill the
// multiprocessors' shared memory, so NCCL's blocks wait for one to end and then keep a multiprocessor. Unlike a GEMM it
// reads no memory, so the memory bandwidth that collectives take is not seen.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>

#include "commpool/status.h"
#include "src/library/driver/loader.h"

namespace commpool::cli {

// The text that the driver compiles.
const char* ComputeLoadPtx();

class ComputeLoad {
 public:
  virtual ~ComputeLoad() = default;

  // Launches one kernel.
  virtual Status Launch(CUstream stream) = 0;
  // Describes the load, for the head of a table.
  virtual std::string description() const = 0;
};

// The emulator runs no kernels: there, modelled device work.
Result<std::unique_ptr<ComputeLoad>> MakeComputeLoad(const internal::Driver& driver, int device);

}  // namespace commpool::cli
