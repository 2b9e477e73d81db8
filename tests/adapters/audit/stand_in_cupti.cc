// In place of CUPTI: it knows two functions, keeps the subscriber, and makes callbacks where a test asks for them.
#include <cuda.h>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>

#include "src/adapters/audit/cupti_abi.h"

namespace cupti = commpool::audit::cupti;

namespace {

cupti::Callback callback = nullptr;
bool enabled[3] = {};

void Call(uint32_t number, const void* parameters, CUresult result) {
  if (callback == nullptr || !enabled[number]) return;
  uint64_t correlation = 0;
  cupti::CallbackData data = {};
  data.parameters = parameters;
  data.result = &result;
  data.correlation = &correlation;
  for (const cupti::Site site : {cupti::kEnter, cupti::kExit}) {
    data.site = site;
    callback(nullptr, cupti::kDriverDomain, number, &data);
  }
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED cupti::Result cuptiSubscribe(cupti::Subscriber*, cupti::Callback wanted, void*) {
  if (std::getenv("STAND_IN_CUPTI_IS_TAKEN") != nullptr) return cupti::kMultipleSubscribers;
  callback = wanted;
  return cupti::kSuccess;
}

EXPORTED cupti::Result cuptiGetCallbackName(int, uint32_t number, const char** name) {
  const char* const names[] = {nullptr, "cuMemAlloc_v2", "cuMemFree_v2"};
  if (number == 0 || number > 2) return 1;
  *name = names[number];
  return cupti::kSuccess;
}

EXPORTED cupti::Result cuptiEnableCallback(uint32_t enable, cupti::Subscriber, int, uint32_t number) {
  enabled[number] = enable != 0;
  return cupti::kSuccess;
}

// What a driver would do for a program that allocates 24 MiB and 40 MiB, and frees the first.
EXPORTED void standInCalls() {
  CUdeviceptr first = 0x1000000;
  CUdeviceptr second = 0x9000000;
  const struct {
    CUdeviceptr* pointer;
    size_t bytes;
  } made[] = {{&first, size_t{24} << 20}, {&second, size_t{40} << 20}};
  for (const auto& one : made) Call(1, &one, CUDA_SUCCESS);
  Call(2, &first, CUDA_SUCCESS);
  Call(2, &second, CUDA_ERROR_INVALID_VALUE);
}
