// Two streams write one block, and nothing orders them; one is asked after its end. A program of somebody
// else, which links CUDA's driver.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>

#include "commpool/pool.h"

static void Check(CUresult result) {
  if (result != CUDA_SUCCESS) std::exit(1);
}

__attribute__((noinline)) static void WriteOnTheFirstStream(CUdeviceptr block, CUstream stream) {
  Check(cuMemsetD32Async(block, 1, 1024, stream));
}

__attribute__((noinline)) static void WriteOnTheSecondStream(CUdeviceptr block, CUstream stream) {
  Check(cuMemsetD32Async(block, 2, 1024, stream));
}

// Frees a block that another stream still uses, which it does not say: the next user of the memory meets it.
__attribute__((noinline)) static void ForgetToRecord(commpool::Pool& pool, CUstream own, CUstream other) {
  commpool::Buffer buffer = pool.allocate(4096, own).value();
  WriteOnTheFirstStream(reinterpret_cast<CUdeviceptr>(buffer.data()), other);
}

// Hardware ends the process.
__attribute__((noinline)) static CUresult AskTheDead(CUstream stream) { return cuStreamQuery(stream); }

int main() {
  Check(cuInit(0));
  CUcontext context;
  Check(cuDevicePrimaryCtxRetain(&context, 0));
  Check(cuCtxSetCurrent(context));
  CUstream first;
  CUstream second;
  Check(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  Check(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  commpool::Pool pool = commpool::Pool::create(commpool::PoolOptions()).value();
  ForgetToRecord(pool, first, second);
  commpool::Buffer buffer = pool.allocate(4096, first).value();
  WriteOnTheSecondStream(reinterpret_cast<CUdeviceptr>(buffer.data()), first);
  Check(cuCtxSynchronize());
  Check(cuStreamDestroy(first));
  if (AskTheDead(first) == CUDA_SUCCESS) return 1;
  std::puts("done");
  return 0;
}
