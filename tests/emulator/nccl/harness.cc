#include "tests/emulator/nccl/harness.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

namespace commpool::internal::testing {

namespace {

constexpr size_t kGranularity = 2 << 20;

// Bazel starts tests in the root of their files.
SharedLibrary Open(const char* file) {
  const Result<SharedLibrary> library = SharedLibrary::Open(file);
  if (!library.ok()) {
    std::fprintf(stderr, "%s\n", library.status().message().c_str());
    std::abort();
  }
  return *library;
}

void* Find(const SharedLibrary& library, const char* name) {
  void* symbol = library.Symbol(name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "%s is missing\n", name);
    std::abort();
  }
  return symbol;
}

std::string ReadLines(size_t (*read)(char*, size_t)) {
  std::vector<char> text(64 << 10);
  read(text.data(), text.size());
  return text.data();
}

std::shared_ptr<ncclComm> Owned(ncclComm_t comm) {
  return {comm, [](ncclComm_t own) { EXPECT_EQ(Api().ncclCommDestroy(own), ncclSuccess); }};
}

}  // namespace

const Libraries& Api() {
  static const Libraries libraries = [] {
    const SharedLibrary driver = Open("src/emulator/cuda/libcuda.so.1");
    const SharedLibrary nccl = Open("src/emulator/nccl/libnccl.so.2");
    Libraries found;
    static_cast<CudaDriver&>(found) = ResolveCuda(driver).value();
#define COMMPOOL_FIND(library, name) found.name = reinterpret_cast<decltype(found.name)>(Find(library, #name));
#define COMMPOOL_FIND_IN_DRIVER(name) COMMPOOL_FIND(driver, name)
#define COMMPOOL_FIND_IN_NCCL(name) COMMPOOL_FIND(nccl, name)
#define COMMPOOL_NCCL(name, version) COMMPOOL_FIND(nccl, name)
    COMMPOOL_TEST_DRIVER_FUNCTIONS(COMMPOOL_FIND_IN_DRIVER)
    COMMPOOL_TEST_NCCL_FUNCTIONS(COMMPOOL_FIND_IN_NCCL)
#include "src/library/driver/nccl_functions.inc"
    EXPECT_EQ(found.cuInit(0), CUDA_SUCCESS);
    return found;
  }();
  return libraries;
}

void MapNewMemory(int device, CUdeviceptr address, size_t bytes, CUmemLocationType location,
                  CUmemAllocationHandleType handles) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = location, .id = location == CU_MEM_LOCATION_TYPE_DEVICE ? device : 0};
  properties.requestedHandleTypes = handles;
  const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(Api().cuMemCreate(&handle, bytes, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(Api().cuMemMap(address, bytes, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(Api().cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(Api().cuMemSetAccess(address, bytes, &access, 1), CUDA_SUCCESS);
}

DeviceMemory::DeviceMemory(int device, size_t bytes, MemoryKind kind, CUmemLocationType location,
                           CUmemAllocationHandleType handles)
    : kind_(kind), bytes_((bytes + kGranularity - 1) / kGranularity * kGranularity) {
  const Libraries& api = Api();
  if (kind_ == MemoryKind::kPlain) {
    EXPECT_EQ(api.cuMemAlloc(&address_, bytes_), CUDA_SUCCESS);
    return;
  }
  EXPECT_EQ(api.cuMemAddressReserve(&address_, bytes_, kGranularity, 0, 0), CUDA_SUCCESS);
  MapNewMemory(device, address_, bytes_, location, handles);
}

DeviceMemory::~DeviceMemory() {
  const Libraries& api = Api();
  if (kind_ == MemoryKind::kPlain) {
    EXPECT_EQ(api.cuMemFree(address_), CUDA_SUCCESS);
    return;
  }
  EXPECT_EQ(api.cuMemUnmap(address_, bytes_), CUDA_SUCCESS);
  EXPECT_EQ(api.cuMemAddressFree(address_, bytes_), CUDA_SUCCESS);
}

CurrentDevice::CurrentDevice(int device) : device_(device) {
  CUcontext context = nullptr;
  EXPECT_EQ(Api().cuDevicePrimaryCtxRetain(&context, device_), CUDA_SUCCESS);
  EXPECT_EQ(Api().cuCtxSetCurrent(context), CUDA_SUCCESS);
}

CurrentDevice::~CurrentDevice() {
  Api().cuCtxSetCurrent(nullptr);
  EXPECT_EQ(Api().cuDevicePrimaryCtxRelease(device_), CUDA_SUCCESS);
}

void Rank::Abort() { EXPECT_EQ(Api().ncclCommAbort(std::exchange(comm, nullptr)), ncclSuccess); }

void Rank::Destroy() { EXPECT_EQ(Api().ncclCommDestroy(std::exchange(comm, nullptr)), ncclSuccess); }

ncclUniqueId NewId() {
  ncclUniqueId id = {};
  EXPECT_EQ(Api().ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

ncclWindow_t RegisterWindow(const Rank& rank, void* buffer, size_t bytes, int flags, const char* file, int line) {
  const ::testing::ScopedTrace caller(file, line, "RegisterWindow");
  ncclWindow_t window = nullptr;
  EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, buffer, bytes, &window, flags), ncclSuccess);
  return window;
}

ncclWindow_t RegisterWindow(const Rank& rank, const DeviceMemory& memory, int flags, const char* file, int line) {
  return RegisterWindow(rank, memory.data(), memory.bytes(), flags, file, line);
}

void EndWindow(const Rank& rank, ncclWindow_t window, const char* file, int line) {
  const ::testing::ScopedTrace caller(file, line, "EndWindow");
  EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
}

void ExpectNoWindow(const Rank& rank, void* buffer, size_t bytes, ncclResult_t expected, int flags, const char* file,
                    int line) {
  const ::testing::ScopedTrace caller(file, line, "ExpectNoWindow");
  ncclWindow_t window = nullptr;
  EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, buffer, bytes, &window, flags), expected);
  EXPECT_EQ(window, nullptr);
}

int RankIn(ncclComm_t comm) {
  int rank = -1;
  EXPECT_EQ(Api().ncclCommUserRank(comm, &rank), ncclSuccess);
  return rank;
}

int SizeOf(ncclComm_t comm) {
  int size = -1;
  EXPECT_EQ(Api().ncclCommCount(comm, &size), ncclSuccess);
  return size;
}

ncclResult_t AsyncError(ncclComm_t comm) {
  ncclResult_t error = ncclNumResults;  // the call must write another
  EXPECT_EQ(Api().ncclCommGetAsyncError(comm, &error), ncclSuccess);
  return error;
}

ncclResult_t WaitForAsyncError(ncclComm_t comm) {
  for (;;) {
    const ncclResult_t error = AsyncError(comm);
    if (error != ncclSuccess) return error;
    std::this_thread::yield();
  }
}

std::shared_ptr<CUgraphExec_st> Capture(const Rank& rank, const std::function<void()>& submit) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  // Other ranks of this process allocate meanwhile.
  EXPECT_EQ(Api().cuStreamBeginCapture(rank.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  submit();
  EXPECT_EQ(Api().cuStreamEndCapture(rank.stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(Api().cuGraphInstantiate(&executable, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(Api().cuGraphDestroy(graph), CUDA_SUCCESS);
  return {executable, [](CUgraphExec own) { EXPECT_EQ(Api().cuGraphExecDestroy(own), CUDA_SUCCESS); }};
}

std::shared_ptr<OfWindow> ScopedWindow(const Rank& rank, const DeviceMemory& memory, int flags) {
  return {RegisterWindow(rank, memory, flags), [&rank](ncclWindow_t window) { EndWindow(rank, window); }};
}

std::shared_ptr<void> ScopedHandle(const Rank& rank, void* buffer, size_t bytes) {
  void* handle = nullptr;
  EXPECT_EQ(Api().ncclCommRegister(rank.comm, buffer, bytes, &handle), ncclSuccess);
  return {handle, [&rank](void* own) { EXPECT_EQ(Api().ncclCommDeregister(rank.comm, own), ncclSuccess); }};
}

std::shared_ptr<void> ScopedHandle(const Rank& rank, const DeviceMemory& memory) {
  return ScopedHandle(rank, memory.data(), memory.bytes());
}

std::shared_ptr<ncclComm> ScopedChild(ncclComm_t parent, int color, int key, ncclConfig_t* config) {
  ncclComm_t child = nullptr;
  EXPECT_EQ(Api().ncclCommSplit(parent, color, key, &child, config), ncclSuccess);
  return Owned(child);
}

std::shared_ptr<ncclComm> ScopedShrunk(ncclComm_t parent, int excluded, int flags) {
  ncclComm_t child = nullptr;
  EXPECT_EQ(Api().ncclCommShrink(parent, &excluded, 1, &child, nullptr, flags), ncclSuccess);
  return Owned(child);
}

int SumOver(const Rank& rank, ncclComm_t comm, int value) {
  const DeviceMemory memory(rank.rank, std::vector<int>{value});
  EXPECT_EQ(Api().ncclAllReduce(memory.data(), memory.data(), 1, ncclInt, ncclSum, comm, rank.stream), ncclSuccess);
  return rank.Result<int>(memory.data(), 1)[0];
}

void InANewProcess(const std::function<void()>& body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    body();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

void InANewProcessWith(const char* variable, const char* value, const std::function<void()>& body) {
  setenv(variable, value, 1);
  InANewProcess(body);
  unsetenv(variable);
}

std::string Read(const char* file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void InitializeRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  ASSERT_EQ(Api().ncclCommInitRank(comm, ranks, id, rank), ncclSuccess);
}

void RunRank(int number, int ranks, const ncclUniqueId& id, const std::function<void(Rank&)>& body,
             const Initialize& initialize) {
  const CurrentDevice current(number);
  Rank rank{.rank = number, .ranks = ranks};
  ASSERT_NO_FATAL_FAILURE(initialize(&rank.comm, ranks, id, number));
  ASSERT_EQ(Api().cuStreamCreate(&rank.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  body(rank);
  if (rank.comm != nullptr) rank.Destroy();
  EXPECT_EQ(Api().cuStreamDestroy(rank.stream), CUDA_SUCCESS);
}

void RunRanks(int ranks, const std::function<void(Rank&)>& body, const Initialize& initialize) {
  const ncclUniqueId id = NewId();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { RunRank(rank, ranks, id, body, initialize); });
  }
  for (std::thread& thread : threads) thread.join();
}

void RunRanks(int ranks, const std::function<void(Rank&, const DeviceMemory&)>& body) {
  RunRanks(ranks, [&body](Rank& rank) {
    const DeviceMemory memory(rank.rank, kGranularity);
    body(rank, memory);
  });
}

void EmulatedNccl::TearDown() {
  EXPECT_EQ(ReadLines(Api().commpoolEmulatorReports), "");
  EXPECT_EQ(ReadLines(Api().commpoolEmulatorLeaks), "");
  Api().commpoolEmulatorClearReports();
  Api().commpoolEmulatorClearFaults();
}

std::string EmulatedNccl::TakeReports() {
  std::string reports = ReadLines(Api().commpoolEmulatorReports);
  Api().commpoolEmulatorClearReports();
  return reports;
}

void EmulatedNccl::ExpectReport(const std::string& words) { ExpectReports({words}); }

void EmulatedNccl::ExpectReports(const std::vector<std::string>& words) {
  const std::string reports = TakeReports();
  for (const std::string& each : words) EXPECT_NE(reports.find(each), std::string::npos) << each << " in " << reports;
}

}  // namespace commpool::internal::testing
