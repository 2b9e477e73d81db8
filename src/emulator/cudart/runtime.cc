#include "src/emulator/cudart/runtime.h"

#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "src/emulator/cudart/torch_operations.h"

namespace commpool::internal::emulated_cudart {

namespace {

struct ThreadState {
  int device = 0;  // the device of a thread that has no current context
  cudaError_t last = cudaSuccess;
};

ThreadState& OfThisThread() {
  thread_local ThreadState state;
  return state;
}

// Owns one reference to each device's primary context, and never releases it. EnterContext and UseDevice ask it.
class PrimaryContexts {
 public:
  // Nothing destroys it, because the process may exit in any order.
  static PrimaryContexts& Get() {
    static auto* const contexts = new PrimaryContexts;
    return *contexts;
  }

  CUresult Find(int device, CUcontext* context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = contexts_.find(device);
    if (found == contexts_.end()) {
      const CUresult result = Driver().cuDevicePrimaryCtxRetain(context, device);
      if (result == CUDA_SUCCESS) contexts_[device] = *context;
      return result;
    }
    *context = found->second;
    return CUDA_SUCCESS;
  }

 private:
  std::mutex mutex_;
  std::map<int, CUcontext> contexts_;
};

bool LosesContext(cudaError_t error) {
  return error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure || error == cudaErrorAssert ||
         error == cudaErrorContextIsDestroyed;
}

}  // namespace

cudaError_t Keep(cudaError_t error) {
  if (error != cudaSuccess) OfThisThread().last = error;
  return error;
}

cudaError_t LastError() { return OfThisThread().last; }

void ForgetLastError() {
  ThreadState& state = OfThisThread();
  if (!LosesContext(state.last)) state.last = cudaSuccess;
}

cudaError_t StartDriver() {
  TakeOverTorchsOperations();
  return ErrorOf(Driver().cuInit(0));
}

cudaError_t PrimaryContext(int device, CUcontext* context) {
  return ErrorOf(PrimaryContexts::Get().Find(device, context));
}

cudaError_t UseDevice(int device) {
  CUcontext context = nullptr;
  cudaError_t error = PrimaryContext(device, &context);
  if (error == cudaSuccess) error = ErrorOf(Driver().cuCtxSetCurrent(context));
  if (error == cudaSuccess) OfThisThread().device = device;
  return error;
}

cudaError_t EnterContext() {
  CUcontext context = nullptr;
  // This fails if the driver has not started.
  if (Driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr) return cudaSuccess;
  const cudaError_t started = StartDriver();
  return started != cudaSuccess ? started : UseDevice(OfThisThread().device);
}

cudaError_t CurrentDevice(int* device) {
  CUcontext context = nullptr;
  const bool current = Driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr;
  if (current) return ErrorOf(Driver().cuCtxGetDevice(device));
  *device = OfThisThread().device;
  return cudaSuccess;
}

cudaError_t Refuse(const char* function, const char* reason) {
  static std::mutex mutex;
  static auto* const told = new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  if (told->insert(function).second) {
    std::fprintf(stderr, "commpool emulator: %s is refused: %s\n", function, reason);
  }
  return Keep(cudaErrorNotSupported);
}

}  // namespace commpool::internal::emulated_cudart
