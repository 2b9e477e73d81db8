// The other process of sharing_test: imports the inherited descriptor, expects one byte value, writes another.
//
//   import_program DESCRIPTOR EXPECTED WRITTEN [hold]
// With `hold` it says "ready" on its standard output and keeps the memory until its standard input ends. Its exit code
// is the step that failed, 0 where none did.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"

namespace {

constexpr size_t kBytes = size_t{2} << 20;

int Run(int descriptor, int expected, int written, bool hold) {
  using commpool::internal::DriverChoice;
  const auto options = commpool::internal::LoaderOptionsFromEnvironment(DriverChoice::kEmulated);
  const auto driver = options.ok() ? commpool::internal::LoadDriver(*options) : options.status();
  if (!driver.ok()) return 2;
  const commpool::internal::CudaDriver& cuda = (*driver)->cuda;
  commpool::internal::PrimaryContext context = commpool::internal::PrimaryContext::Retain(**driver, 0).value();
  commpool::internal::ContextGuard guard(**driver, context);
  CUmemGenericAllocationHandle handle = 0;
  void* const shareable = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
  if (cuda.cuMemImportFromShareableHandle(&handle, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS)
    return 3;
  close(descriptor);
  CUdeviceptr address = 0;
  const CUmemAccessDesc access{{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (cuda.cuMemAddressReserve(&address, kBytes, 0, 0, 0) != CUDA_SUCCESS) return 4;
  if (cuda.cuMemMap(address, kBytes, 0, handle, 0) != CUDA_SUCCESS) return 5;
  if (cuda.cuMemSetAccess(address, kBytes, &access, 1) != CUDA_SUCCESS) return 6;
  if (hold) {
    std::puts("ready");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
  }
  unsigned char ends[2] = {};
  if (cuda.cuMemcpyDtoH(&ends[0], address, 1) != CUDA_SUCCESS) return 7;
  if (cuda.cuMemcpyDtoH(&ends[1], address + kBytes - 1, 1) != CUDA_SUCCESS) return 7;
  if (ends[0] != expected || ends[1] != expected) return 8;
  if (cuda.cuMemsetD8Async(address, static_cast<unsigned char>(written), kBytes, nullptr) != CUDA_SUCCESS) return 9;
  if (cuda.cuCtxSynchronize() != CUDA_SUCCESS) return 9;
  if (cuda.cuMemUnmap(address, kBytes) != CUDA_SUCCESS || cuda.cuMemRelease(handle) != CUDA_SUCCESS) return 10;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 1;
  return Run(std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]), argc > 4 && std::strcmp(argv[4], "hold") == 0);
}
