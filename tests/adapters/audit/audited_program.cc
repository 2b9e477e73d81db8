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

namespace {

constexpr size_t kMiB = size_t{1} << 20;

void Check(int result, const char* call) {
  if (result == 0) return;
  std::fprintf(stderr, "%s failed: %d\n", call, result);
  std::exit(9);
}
#define CHECK(call) Check(static_cast<int>(call), #call)

void Begin() {
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
}

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
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
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

// What the driver does where CUDA_INJECTION64_PATH names a library; and calls that only its callbacks see.
void Inject() {
  void* const library = dlopen(std::getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
  CHECK(reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"))() == 1 ? 0 : 1);
  if (const char* const file = std::getenv("STAND_IN_CUPTI")) {
    reinterpret_cast<void (*)()>(dlsym(dlopen(file, RTLD_NOW), "standInCalls"))();
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int index = 1; index < argc; ++index) {
    const std::string word = argv[index];
    if (word == "begin") Begin();
    if (word == "linked") Linked();
    if (word == "looked-up") LookedUp(argv[++index]);
    if (word == "runtime") Runtime();
    if (word == "mapped") Mapped(false);
    if (word == "unmapped") Mapped(true);
    if (word == "pooled") Pooled();
    if (word == "registered") Registered();
    if (word == "out-of-memory") RunOut();
    if (word == "signal") Signal(argv[++index]);
    if (word == "ends-by") EndBy(std::atoi(argv[++index]));
    if (word == "ends-a-child") EndAChild();
    if (word == "fork") Fork();
    if (word == "report") Report();
    if (word == "inject") Inject();
    if (word == "parent") std::printf("%d\n", getppid());
    if (word == "seven") return 7;
  }
  return 0;
}
