#include "tests/emulator/cudart/runtime_fixture.h"

#include <dlfcn.h>

#include <cstring>

#include "src/emulator/extension.h"

namespace commpool::internal::testing {

namespace {

// Bazel starts tests in the root of their files. The runtime finds the driver beside its own folder.
void* Open(const char* file) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library;
}

}  // namespace

void* RuntimeSymbol(const char* name) {
  static void* const runtime = Open("src/emulator/cudart/libcudart.so.13");
  void* const symbol = dlvsym(runtime, name, "libcudart.so.13");
  EXPECT_NE(symbol, nullptr) << name;
  return symbol;
}

void* DriverSymbol(const char* name) {
  static void* const driver = Open("src/emulator/cuda/libcuda.so.1");
  return dlsym(driver, name);
}

std::string TakeReports() {
  std::vector<char> text(1 << 16);
  COMMPOOL_DRIVER_CALL(commpoolEmulatorReports)(text.data(), text.size());
  COMMPOOL_DRIVER_CALL(commpoolEmulatorClearReports)();
  return text.data();
}

RuntimeTest::RuntimeTest() {
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaSetDevice)(0), cudaSuccess);
  COMMPOOL_RUNTIME(cudaGetLastError)();
  TakeReports();
}

RuntimeTest::~RuntimeTest() {
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaSetDevice)(0), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaDeviceSynchronize)(), cudaSuccess);
  for (cudaStream_t stream : streams_) EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamDestroy)(stream), cudaSuccess);
  for (void* memory : memory_) EXPECT_EQ(COMMPOOL_RUNTIME(cudaFree)(memory), cudaSuccess);
  EXPECT_EQ(TakeReports(), "");
}

void* RuntimeTest::Allocate() {
  void* memory = nullptr;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMalloc)(&memory, kBytes), cudaSuccess);
  memory_.push_back(memory);
  return memory;
}

cudaStream_t RuntimeTest::MakeStream() {
  const cudaStream_t stream = Get(COMMPOOL_RUNTIME(cudaStreamCreateWithFlags), cudaStreamNonBlocking);
  streams_.push_back(stream);
  return stream;
}

cudaPointerAttributes RuntimeTest::AttributesOf(const void* memory) {
  cudaPointerAttributes attributes;
  std::memset(&attributes, 0xff, sizeof attributes);  // the call must write what a test reads
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaPointerGetAttributes)(&attributes, memory), cudaSuccess);
  return attributes;
}

int RuntimeTest::CurrentDevice() {
  int device = -1;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGetDevice)(&device), cudaSuccess);
  return device;
}

std::vector<char> RuntimeTest::Download(const void* device) {
  std::vector<char> content(kBytes);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemcpy)(content.data(), device, kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
  return content;
}

}  // namespace commpool::internal::testing
