// In place of CUPTI: it knows some functions, keeps the subscriber, and makes callbacks where a test asks for them.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>

#include "src/interpose/audit/cupti_abi.h"

namespace cupti = commpool::audit::cupti;

namespace {

cupti::Callback callback = nullptr;
const char* const kNames[] = {nullptr,          "cuMemAlloc_v2",    "cuMemFree_v2", "cuArray3DCreate_v2",
                              "cuArrayDestroy", "cuGraphAddNode_v2"};
constexpr uint32_t kCount = sizeof(kNames) / sizeof(*kNames);
bool enabled[kCount] = {};

// `work` is the call itself, between its callbacks.
template <typename Work>
void Call(uint32_t number, const void* parameters, const Work& work) {
  if (callback == nullptr || !enabled[number]) return;
  CUresult result = CUDA_SUCCESS;
  uint64_t correlation = 0;
  cupti::CallbackData data = {};
  data.parameters = parameters;
  data.result = &result;
  data.correlation = &correlation;
  for (const cupti::Site site : {cupti::kEnter, cupti::kExit}) {
    data.site = site;
    if (site == cupti::kExit) result = work();
    callback(nullptr, cupti::kDriverDomain, number, &data);
  }
}
void Call(uint32_t number, const void* parameters, CUresult result) {
  Call(number, parameters, [result] { return result; });
}

// The preloaded one, which only passes the call on where CUPTI's callbacks keep the books.
template <typename Function>
Function* Preloaded(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

void MakeArray(CUarray* array, size_t depth) {
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = {2048, 32, depth, CU_AD_FORMAT_FLOAT, 1, 0};
  const struct {
    CUarray* array;
    const CUDA_ARRAY3D_DESCRIPTOR* wanted;
  } made = {array, &descriptor};
  Call(3, &made, [&] { return Preloaded(&cuArray3DCreate, kNames[3])(array, &descriptor); });
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED cupti::Result cuptiSubscribe(cupti::Subscriber*, cupti::Callback wanted, void*) {
  if (std::getenv("STAND_IN_CUPTI_IS_TAKEN") != nullptr) return cupti::kMultipleSubscribers;
  callback = wanted;
  return cupti::kSuccess;
}

EXPORTED cupti::Result cuptiGetCallbackName(int, uint32_t number, const char** name) {
  if (number == 0 || number >= kCount) return 1;
  *name = kNames[number];
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

// Arrays that take 10 and 20 MiB of a driver, of which the first goes, and a graph's node that allocates 4 MiB.
EXPORTED void standInArrays() {
  CUarray first = nullptr;
  CUarray second = nullptr;
  MakeArray(&first, 32);
  MakeArray(&second, 72);
  Call(4, &first, [&] { return Preloaded(&cuArrayDestroy, kNames[4])(first); });
  CUgraphNodeParams node = {};
  node.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  node.alloc.poolProps.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  node.alloc.bytesize = size_t{4} << 20;
  const struct {
    CUgraphNode* node;
    CUgraph graph;
    const CUgraphNode* dependencies;
    const CUgraphEdgeData* edges;
    size_t count;
    CUgraphNodeParams* wanted;
  } added = {nullptr, nullptr, nullptr, nullptr, 0, &node};
  Call(5, &added, [&] { return Preloaded(&cuGraphAddNode, kNames[5])(nullptr, nullptr, nullptr, nullptr, 0, &node); });
}
