// A program that is audited: each word of its command line is something that it does. It links the driver and NCCL, as
// programs in C do.
#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/interpose/checked.h"

namespace {

// 64 and 32 MiB, of which the first goes back.
void Linked() {
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  CHECK(cuMemAlloc(&first, 64 * kMiB));
  CHECK(cuMemAlloc(&second, 32 * kMiB));
  CHECK(cuMemFree(first));
}

// By a driver's own table, as the runtime does it.
void LookedUp(const char* file) {
  void* const library = dlopen(file, RTLD_NOW);
  const auto get = reinterpret_cast<decltype(&cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"));
  decltype(&cuInit) initialise = nullptr;
  decltype(&cuMemAlloc) allocate = nullptr;
  CHECK(get("cuInit", reinterpret_cast<void**>(&initialise), 12000, 0, nullptr));
  CHECK(initialise(0));
  CHECK(get("cuMemAlloc", reinterpret_cast<void**>(&allocate), 12000, 0, nullptr));
  CUdeviceptr pointer = 0;
  CHECK(allocate(&pointer, 48 * kMiB));
}

void Runtime() {
  void* const library = dlopen("libcudart.so.13", RTLD_NOW);
  const auto allocate = reinterpret_cast<int (*)(void**, size_t)>(dlsym(library, "cudaMalloc"));
  void* pointer = nullptr;
  CHECK(allocate(&pointer, 16 * kMiB));
}

// Physical memory whose handle goes before its mapping; `ends` takes the mapping away too.
void Mapped(bool ends) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  CHECK(cuMemCreate(&handle, 8 * kMiB, &properties, 0));
  CHECK(cuMemAddressReserve(&address, 8 * kMiB, 0, 0, 0));
  CHECK(cuMemMap(address, 8 * kMiB, 0, handle, 0));
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(cuMemSetAccess(address, 8 * kMiB, &access, 1));
  CHECK(cuMemRelease(handle));
  if (!ends) return;
  CHECK(cuMemUnmap(address, 8 * kMiB));
  CHECK(cuMemAddressFree(address, 8 * kMiB));
}

void Pooled() {
  CUdeviceptr pointer = 0;
  CHECK(cuMemAllocAsync(&pointer, 8 * kMiB, nullptr));
  CHECK(cuStreamSynchronize(nullptr));
}

// Each takes 10 MiB of its driver, of which the elements are 8 MiB. The third is gone at the end.
void Arrays() {
  const CUDA_ARRAY_DESCRIPTOR flat = {2048, 1024, CU_AD_FORMAT_FLOAT, 1};
  const CUDA_ARRAY3D_DESCRIPTOR deep = {2048, 32, 32, CU_AD_FORMAT_FLOAT, 1, 0};
  const CUDA_ARRAY3D_DESCRIPTOR levels = {2048, 768, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUarray first = nullptr;
  CUarray second = nullptr;
  CUmipmappedArray third = nullptr;
  CHECK(cuArrayCreate(&first, &flat));
  CHECK(cuArray3DCreate(&second, &deep));
  CHECK(cuMipmappedArrayCreate(&third, &levels, 11));
  CHECK(cuMipmappedArrayDestroy(third));
}

void RefusedArrays() {
  const CUDA_ARRAY_DESCRIPTOR wrong = {2048, 1024, CU_AD_FORMAT_FLOAT, 3};
  const CUDA_ARRAY3D_DESCRIPTOR large = {1024, 1024, size_t{1} << 30, CU_AD_FORMAT_HALF, 2, 0};
  CUarray array = nullptr;
  if (cuArrayCreate(&array, &wrong) != CUDA_ERROR_INVALID_VALUE) std::exit(8);
  if (cuArray3DCreate(&array, &large) != CUDA_ERROR_OUT_OF_MEMORY) std::exit(8);
}

// Nodes that allocate 6 and 4 MiB, one that does not, and one of 2 MiB that a capture makes.
void InGraphs() {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CHECK(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS allocates = {};
  allocates.poolProps.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  allocates.bytesize = 6 * kMiB;
  CHECK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &allocates));
  CUgraphNodeParams any = {};
  any.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  any.alloc.poolProps.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  any.alloc.bytesize = 4 * kMiB;
  CHECK(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &any));
  any.type = CU_GRAPH_NODE_TYPE_EMPTY;
  CHECK(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &any));
  CUstream stream = nullptr;
  CUdeviceptr pointer = 0;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuMemAllocAsync(&pointer, 2 * kMiB, stream));
  CHECK(cuStreamEndCapture(stream, &graph));
}

void Registered() {
  ncclUniqueId id;
  ncclComm_t communicator = nullptr;
  void* pointer = nullptr;
  void* registration = nullptr;
  CHECK(ncclGetUniqueId(&id));
  CHECK(ncclCommInitRank(&communicator, 1, id, 0));
  CHECK(ncclMemAlloc(&pointer, 4 * kMiB));
  CHECK(ncclCommRegister(communicator, pointer, 4 * kMiB, &registration));
  CHECK(ncclCommDeregister(communicator, registration));
  CHECK(ncclMemFree(pointer));
  CHECK(ncclCommDestroy(communicator));
}

void RunOut() {
  CUdeviceptr pointer = 0;
  for (int turn = 0; turn < 2; ++turn) {
    if (cuMemAlloc(&pointer, size_t{1} << 50) != CUDA_ERROR_OUT_OF_MEMORY) std::exit(8);
  }
}

// Until the record has a line more: the report is another thread's.
void Signal(const char* record) {
  const auto lines = [record] {
    std::ifstream file(record);
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  };
  const int before = lines();
  kill(getpid(), SIGUSR2);
  while (lines() == before) sched_yield();
}

// Ends as ranks do whose launcher gives up, or as an uncaught exception does.
void EndBy(int signal) {
  if (signal == SIGABRT) std::abort();
  kill(getpid(), signal);
  for (;;) pause();
}

// A child that the program forked has the handlers of its parent, and no thread that reports.
void EndAChild() {
  const pid_t child = fork();
  if (child == 0) EndBy(SIGTERM);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM) std::exit(9);
}

void Fork() {
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  waitpid(child, nullptr, 0);
}

void Report() {
  const auto report = reinterpret_cast<void (*)(const char*)>(dlsym(RTLD_DEFAULT, "commpool_audit_report"));
  report("step 1");
}

// What the driver does where CUDA_INJECTION64_PATH names a library; and calls of the stand-in that only its callbacks
// see.
void Inject(const char* calls) {
  void* const library = dlopen(std::getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
  CHECK(reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"))() == 1 ? 0 : 1);
  if (const char* const file = std::getenv("STAND_IN_CUPTI")) {
    reinterpret_cast<void (*)()>(dlsym(dlopen(file, RTLD_NOW), calls))();
  }
}

}  // namespace

int main(int argc, char** argv) {
  ForkWhereAsked(argc, argv);
  for (int index = 1; index < argc; ++index) {
    const std::string word = argv[index];
    if (word == "begin") Begin(0);
    if (word == "linked") Linked();
    if (word == "looked-up") LookedUp(argv[++index]);
    if (word == "runtime") Runtime();
    if (word == "mapped") Mapped(false);
    if (word == "unmapped") Mapped(true);
    if (word == "pooled") Pooled();
    if (word == "arrays") Arrays();
    if (word == "refused-arrays") RefusedArrays();
    if (word == "in-graphs") InGraphs();
    if (word == "registered") Registered();
    if (word == "out-of-memory") RunOut();
    if (word == "signal") Signal(argv[++index]);
    if (word == "ends-by") EndBy(std::atoi(argv[++index]));
    if (word == "ends-a-child") EndAChild();
    if (word == "fork") Fork();
    if (word == "report") Report();
    if (word == "inject") Inject("standInCalls");
    if (word == "inject-arrays") Inject("standInArrays");
    if (word == "parent") std::printf("%d\n", getppid());
    if (word == "seven") return 7;
  }
  return 0;
}
