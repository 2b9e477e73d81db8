// Modules, kernels and libraries of kernels. Modules register kernels by name. The emulator has no code for them: a
// muted launch does nothing, and any other is refused by name.
#include <vector>

#include "src/emulator/cudart/kernels.h"
#include "src/emulator/cudart/mute.h"
#include "src/emulator/cudart/runtime.h"

using namespace commpool::internal::emulated_cudart;  // NOLINT: this file is C on the outside

namespace {

struct CallConfiguration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  cudaStream_t stream;
};

// The configurations that <<<...>>> pushed and a launch has not yet popped.
std::vector<CallConfiguration>& Configurations() {
  thread_local std::vector<CallConfiguration> configurations;
  return configurations;
}

cudaError_t Launch(const void* entry) {
  if (!IsMuted()) return RefuseKernel(FindKernel(entry));
  NoteMuted();
  return cudaSuccess;
}

// What PyTorch asks about a kernel before it launches it: those of a small kernel on an H200.
constexpr int kThreadsPerBlock = 1024;
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kBlocksPerMultiprocessor = 32;
constexpr int kRegisters = 32;
constexpr int kArchitecture = 90;
constexpr int kSharedBytes = 48 << 10;

cudaError_t CountBlocks(int* blocks, int threads) {
  if (blocks == nullptr || threads <= 0) return Keep(cudaErrorInvalidValue);
  const int fit = kThreadsPerMultiprocessor / threads;
  *blocks = fit < kBlocksPerMultiprocessor ? fit : kBlocksPerMultiprocessor;
  return cudaSuccess;
}

// Refuses to load kernels as a library, even those that the emulator runs: it does not know how the library was built.
cudaError_t RefuseLibrary(const char* function) {
  return Refuse(function, "the emulator runs no code that is made for a GPU");
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

void** __cudaRegisterFatBinary(void* binary) { return new void*(binary); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void** handle) { delete handle; }

void __cudaRegisterFunction(void**, const char* host_function, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
  RegisterKernel(host_function, name);
}

void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  Configurations().push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  if (Configurations().empty()) return Keep(cudaErrorMissingConfiguration);
  const CallConfiguration last = Configurations().back();
  Configurations().pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}

// A kernel's handle is its entry in the registry.
cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* entry) {
  const Kernel* const kernel = FindKernel(entry);
  if (kernel == nullptr) return Keep(cudaErrorInvalidDeviceFunction);
  *handle = reinterpret_cast<cudaKernel_t>(const_cast<Kernel*>(kernel));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) { return Launch(kernel); }

#pragma GCC visibility pop

}  // extern "C"

cudaError_t cudaLaunchKernel(const void* entry, dim3, dim3, void**, size_t, cudaStream_t) { return Launch(entry); }

cudaError_t cudaLaunchCooperativeKernel(const void* entry, dim3, dim3, void**, size_t, cudaStream_t) {
  return Launch(entry);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* entry, void**) {
  return configuration == nullptr ? Keep(cudaErrorInvalidValue) : Launch(entry);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* entry) {
  if (!IsMuted()) return RefuseKernel(FindKernel(entry));
  *attributes = {};
  attributes->maxThreadsPerBlock = kThreadsPerBlock;
  attributes->numRegs = kRegisters;
  attributes->ptxVersion = kArchitecture;
  attributes->binaryVersion = kArchitecture;
  attributes->maxDynamicSharedSizeBytes = kSharedBytes;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* entry, cudaFuncAttribute, int) {
  return IsMuted() ? cudaSuccess : RefuseKernel(FindKernel(entry));
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute, int, int) {
  return IsMuted() ? cudaSuccess : RefuseKernel(FindKernel(kernel));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* entry, int threads, size_t,
                                                                   unsigned int) {
  return IsMuted() ? CountBlocks(blocks, threads) : RefuseKernel(FindKernel(entry));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* entry, int threads, size_t) {
  return IsMuted() ? CountBlocks(blocks, threads) : RefuseKernel(FindKernel(entry));
}

// Variables of modules have no memory in the emulator.
cudaError_t cudaGetSymbolAddress(void**, const void*) { return Keep(cudaErrorInvalidSymbol); }
cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return Keep(cudaErrorInvalidSymbol);
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t*, const void*, cudaJitOption*, void**, unsigned int, cudaLibraryOption*,
                                void**, unsigned int) {
  return RefuseLibrary("cudaLibraryLoadData");
}
cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t*, const char*, cudaJitOption*, void**, unsigned int,
                                    cudaLibraryOption*, void**, unsigned int) {
  return RefuseLibrary("cudaLibraryLoadFromFile");
}
cudaError_t cudaLibraryUnload(cudaLibrary_t) { return RefuseLibrary("cudaLibraryUnload"); }
cudaError_t cudaLibraryGetKernel(cudaKernel_t*, cudaLibrary_t, const char*) {
  return RefuseLibrary("cudaLibraryGetKernel");
}
cudaError_t cudaLibraryGetKernelCount(unsigned int*, cudaLibrary_t) {
  return RefuseLibrary("cudaLibraryGetKernelCount");
}
cudaError_t cudaLibraryGetGlobal(void**, size_t*, cudaLibrary_t, const char*) {
  return RefuseLibrary("cudaLibraryGetGlobal");
}
cudaError_t cudaLibraryGetManaged(void**, size_t*, cudaLibrary_t, const char*) {
  return RefuseLibrary("cudaLibraryGetManaged");
}
cudaError_t cudaLibraryGetUnifiedFunction(void**, cudaLibrary_t, const char*) {
  return RefuseLibrary("cudaLibraryGetUnifiedFunction");
}
