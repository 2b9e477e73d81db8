#include "tools/stress/host/host_driver.h"

#include <cstring>

#include "src/emulator/extension.h"
#include "tools/stress/host/host_faults.h"

namespace commpool::cli {

namespace {

// The driver's own functions, and those that the emulator exports for pools.
struct Original {
  internal::CudaDriver cuda;
  internal::NcclLibrary nccl;
  decltype(&commpoolEmulatorBlockAllocated) block_allocated = nullptr;
  decltype(&commpoolEmulatorBlockFreed) block_freed = nullptr;
  decltype(&commpoolEmulatorCaptureAnnounced) capture_announced = nullptr;
  decltype(&commpoolEmulatorSetting) setting = nullptr;
};

Original original;

// Calls the function `kMember` of the part `kPart` of the original.
template <auto kPart, auto kMember, typename Function>
struct Call;

template <auto kPart, auto kMember, typename Value, typename... Arguments>
struct Call<kPart, kMember, Value (*)(Arguments...)> {
  static Value Outside(Arguments... arguments) {
    const HostFaults::Outside outside;
    return ((original.*kPart).*kMember)(arguments...);
  }
};

template <auto kMember, typename Function>
struct Extension;

template <auto kMember, typename Value, typename... Arguments>
struct Extension<kMember, Value (*)(Arguments...)> {
  static Value Outside(Arguments... arguments) {
    const HostFaults::Outside outside;
    return (original.*kMember)(arguments...);
  }
};

template <auto kMember, typename Function>
void* Keep(void* found, Function* Original::*) {
  original.*kMember = reinterpret_cast<Function*>(found);
  return found == nullptr ? nullptr : reinterpret_cast<void*>(&Extension<kMember, Function*>::Outside);
}

// Null for functions that pools do not call.
void* ExtensionOutside(const char* name, void* found) {
#define COMMPOOL_EXTENSION(symbol, member) \
  if (std::strcmp(name, symbol) == 0) return Keep<&Original::member>(found, &Original::member)
  COMMPOOL_EXTENSION("commpoolEmulatorBlockAllocated", block_allocated);
  COMMPOOL_EXTENSION("commpoolEmulatorBlockFreed", block_freed);
  COMMPOOL_EXTENSION("commpoolEmulatorCaptureAnnounced", capture_announced);
  COMMPOOL_EXTENSION("commpoolEmulatorSetting", setting);
#undef COMMPOOL_EXTENSION
  return nullptr;
}

}  // namespace

std::shared_ptr<const internal::Driver> DriverOutside(const std::shared_ptr<const internal::Driver>& driver) {
  original.cuda = driver->cuda;
  original.nccl = driver->nccl;
  auto outside = std::make_shared<internal::Driver>(*driver);
#define COMMPOOL_CUDA(name, version)                                                                        \
  if (original.cuda.name != nullptr) {                                                                      \
    outside->cuda.name =                                                                                    \
        &Call<&Original::cuda, &internal::CudaDriver::name, decltype(internal::CudaDriver::name)>::Outside; \
  }
#include "src/library/driver/cuda_functions.inc"
#undef COMMPOOL_CUDA
#define COMMPOOL_NCCL(name, version)                                                                          \
  if (original.nccl.name != nullptr) {                                                                        \
    outside->nccl.name =                                                                                      \
        &Call<&Original::nccl, &internal::NcclLibrary::name, decltype(internal::NcclLibrary::name)>::Outside; \
  }
#include "src/library/driver/nccl_functions.inc"
#undef COMMPOOL_NCCL
  outside->extension = [driver](const char* name) { return ExtensionOutside(name, driver->extension(name)); };
  return outside;
}

}  // namespace commpool::cli
