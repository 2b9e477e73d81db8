// The other process of sharing_test: imports the inherited descriptor, expects one byte value, writes another.
//
//   import_program DESCRIPTOR EXPECTED WRITTEN [hold]
// With `hold` it says "ready" on its standard output and keeps the memory until its standard input ends. Its exit code
// is the step that failed, 0 where none did.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"

namespace commpool::internal {
namespace {

constexpr size_t kBytes = size_t{2} << 20;

int Run(int descriptor, int expected, int written, bool hold) {
  const auto options = LoaderOptionsFromEnvironment(DriverChoice::kEmulated);
  const auto driver = options.ok() ? LoadDriver(*options) : options.status();
  if (!driver.ok()) return 2;
  const CudaDriver& cuda = (*driver)->cuda;
  PrimaryContext context = PrimaryContext::Retain(**driver, 0).value();
  ContextGuard guard(**driver, context);
  Result<PhysicalMemory> physical = PhysicalMemory::Import(**driver, FileDescriptor(descriptor), kBytes);
  if (!physical.ok()) return 3;
  const AddressRange range = AddressRange::Reserve(**driver, kBytes, 0).value();
  Mapping mapping = Mapping::Map(**driver, range.address(), *physical).value();
  const CUmemLocation device{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  if (!mapping.SetAccess(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok()) return 6;
  const CUdeviceptr address = range.address();
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
  return mapping.Release().ok() && physical->Release().ok() ? 0 : 10;
}

}  // namespace
}  // namespace commpool::internal

int main(int argc, char** argv) {
  if (argc < 4) return 1;
  return commpool::internal::Run(std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]),
                                 argc > 4 && std::strcmp(argv[4], "hold") == 0);
}
