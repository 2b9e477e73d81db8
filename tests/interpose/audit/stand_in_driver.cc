// A driver of two functions that only its table knows: their symbols are not exported, as nothing can be put in the
// place of a real driver's own references to its functions. (The emulator's can be.)
#include <cuda.h>

#include <cstring>

namespace {

CUresult Initialise(unsigned) { return CUDA_SUCCESS; }

CUresult Allocate(CUdeviceptr* pointer, size_t) {
  *pointer = 0x7000000;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char* name, void** function, int,
                                                                               cuuint64_t,
                                                                               CUdriverProcAddressQueryResult*) {
  const bool allocates = std::strcmp(name, "cuMemAlloc") == 0;
  *function = allocates ? reinterpret_cast<void*>(&Allocate) : reinterpret_cast<void*>(&Initialise);
  return CUDA_SUCCESS;
}
