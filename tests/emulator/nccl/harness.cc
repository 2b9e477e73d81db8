#include "tests/emulator/nccl/harness.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

namespace commpool::internal::testing {

namespace {

#define COMMPOOL_TEXT_OF(name) #name
#define COMMPOOL_TEXT(name) COMMPOOL_TEXT_OF(name)

constexpr size_t kGranularity = 2 << 20;

void* Open(const std::string& place) {
  const char* folder = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  const std::string root = folder != nullptr ? std::string(folder) + "/" + workspace + "/" : "./";
  void* library = dlopen((root + place).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  return library;
}

void* Find(void* library, const char* name) {
  void* symbol = dlsym(library, name);
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

}  // namespace

const Libraries& Api() {
  static const Libraries libraries = [] {
    void* driver = Open("src/emulator/cuda/libcuda.so.1");
    void* nccl = Open("src/emulator/nccl/libnccl.so.2");
    Libraries found;
#define COMMPOOL_FIND(name) found.name = reinterpret_cast<decltype(found.name)>(Find(driver, COMMPOOL_TEXT(name)));
    COMMPOOL_TEST_DRIVER_FUNCTIONS(COMMPOOL_FIND)
#undef COMMPOOL_FIND
#define COMMPOOL_FIND(name) found.name = reinterpret_cast<decltype(found.name)>(Find(nccl, COMMPOOL_TEXT(name)));
    COMMPOOL_TEST_NCCL_FUNCTIONS(COMMPOOL_FIND)
#undef COMMPOOL_FIND
    EXPECT_EQ(found.cuInit(0), CUDA_SUCCESS);
    return found;
  }();
  return libraries;
}

DeviceMemory::DeviceMemory(int device, size_t bytes, MemoryKind kind, CUmemLocationType location,
                           CUmemAllocationHandleType handles)
    : kind_(kind), bytes_((bytes + kGranularity - 1) / kGranularity * kGranularity) {
  const Libraries& api = Api();
  if (kind_ == MemoryKind::kPlain) {
    EXPECT_EQ(api.cuMemAlloc(&address_, bytes_), CUDA_SUCCESS);
    return;
  }
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = location, .id = location == CU_MEM_LOCATION_TYPE_DEVICE ? device : 0};
  properties.requestedHandleTypes = handles;
  const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(api.cuMemCreate(&handle, bytes_, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(api.cuMemAddressReserve(&address_, bytes_, kGranularity, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(api.cuMemMap(address_, bytes_, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(api.cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(api.cuMemSetAccess(address_, bytes_, &access, 1), CUDA_SUCCESS);
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

ncclWindow_t RegisterWindow(const Rank& rank, void* buffer, size_t bytes, int flags) {
  ncclWindow_t window = nullptr;
  EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, buffer, bytes, &window, flags), ncclSuccess);
  return window;
}

void InANewProcess(const std::function<void()>& body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    body();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

void RunRanks(int ranks, const std::function<void(Rank&)>& body) {
  ncclUniqueId id;
  ASSERT_EQ(Api().ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int number = 0; number < ranks; ++number) {
    threads.emplace_back([&, number] {
      const CurrentDevice current(number);
      Rank rank{.rank = number, .ranks = ranks};
      ASSERT_EQ(Api().ncclCommInitRank(&rank.comm, ranks, id, number), ncclSuccess);
      ASSERT_EQ(Api().cuStreamCreate(&rank.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      body(rank);
      if (rank.comm != nullptr) {
        EXPECT_EQ(Api().ncclCommDestroy(rank.comm), ncclSuccess);
      }
      EXPECT_EQ(Api().cuStreamDestroy(rank.stream), CUDA_SUCCESS);
    });
  }
  for (std::thread& thread : threads) thread.join();
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

}  // namespace commpool::internal::testing
