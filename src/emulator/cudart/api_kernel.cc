// Modules, kernels and libraries of kernels. Modules register kernels by name, and the emulator runs those that it
// knows.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/emulator/cudart/concatenation.h"
#include "src/emulator/cudart/elementwise.h"
#include "src/emulator/cudart/kernels.h"
#include "src/emulator/cudart/reduction.h"
#include "src/emulator/cudart/runtime.h"
#include "src/emulator/cudart/tensor_lists.h"

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

void Run(void* context, const void* const* reads, void* const* writes) {
  static_cast<KernelWork*>(context)->run(reads, writes);
}

void End(void* context) { delete static_cast<KernelWork*>(context); }

std::unique_ptr<KernelWork> Understand(const std::string& name, const dim3& grid, void** arguments) {
  std::unique_ptr<KernelWork> work = UnderstandElementwise(name, arguments);
  if (work == nullptr) work = UnderstandReduction(name, arguments);
  if (work == nullptr) work = UnderstandConcatenation(name, arguments, grid.y);
  return work == nullptr ? UnderstandTensorLists(name, arguments, grid.x) : std::move(work);
}

cudaError_t Launch(const void* entry, const dim3& grid, void** arguments, cudaStream_t stream) {
  const Kernel* const kernel = FindKernel(entry);
  if (kernel == nullptr) return RefuseKernel(nullptr);
  std::unique_ptr<KernelWork> work = Understand(Demangled(kernel->name), grid, arguments);
  if (work == nullptr) return RefuseKernel(kernel);
  return InContext([&](const DriverFunctions& driver) {
    const commpoolEmulatorAccess access = {work->name.c_str(),  work->reads.data(),  work->reads.size(),
                                           work->writes.data(), work->writes.size(), work->duration_us};
    return driver.commpoolEmulatorLaunchKept(stream, &access, Run, work.release(), End);
  });
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

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3, void** arguments, size_t, cudaStream_t stream) {
  return Launch(kernel, grid, arguments, stream);
}

#pragma GCC visibility pop

}  // extern "C"

cudaError_t cudaLaunchKernel(const void* entry, dim3 grid, dim3, void** arguments, size_t, cudaStream_t stream) {
  return Launch(entry, grid, arguments, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* entry, dim3 grid, dim3, void** arguments, size_t,
                                        cudaStream_t stream) {
  return Launch(entry, grid, arguments, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* entry, void** arguments) {
  if (configuration == nullptr) return Keep(cudaErrorInvalidValue);
  return Launch(entry, configuration->gridDim, arguments, configuration->stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void* entry) { return RefuseKernel(FindKernel(entry)); }

cudaError_t cudaFuncSetAttribute(const void* entry, cudaFuncAttribute, int) { return RefuseKernel(FindKernel(entry)); }

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute, int, int) {
  return RefuseKernel(FindKernel(kernel));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int*, const void* entry, int, size_t, unsigned int) {
  return RefuseKernel(FindKernel(entry));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int*, const void* entry, int, size_t) {
  return RefuseKernel(FindKernel(entry));
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
