// The emulated CUDA runtime for tests, over the emulated driver. Opened by its file, because nothing links it.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "src/emulator/runtime_extension.h"

// Calls a function of the runtime, or of its driver, by name.
#define COMMPOOL_RUNTIME(name) \
  (reinterpret_cast<decltype(&::name)>(::commpool::internal::testing::RuntimeSymbol(#name)))
#define COMMPOOL_TEXT_OF(name) #name
#define COMMPOOL_TEXT(name) COMMPOOL_TEXT_OF(name)
#define COMMPOOL_DRIVER_CALL(name) \
  (reinterpret_cast<decltype(&::name)>(::commpool::internal::testing::DriverSymbol(COMMPOOL_TEXT(name))))

namespace commpool::internal::testing {

// A symbol of the emulated runtime, or of its driver; null where there is none.
void* RuntimeSymbol(const char* name);
void* DriverSymbol(const char* name);

// The emulator's reports since the last call, as one text.
std::string TakeReports();

// What a call that must succeed writes through its first argument. A failure tells the call by its types.
template <typename Value, typename... Parameters>
Value Get(cudaError_t (*call)(Value*, Parameters...), std::type_identity_t<Parameters>... arguments) {
  Value value = {};
  EXPECT_EQ(call(&value, arguments...), cudaSuccess) << __PRETTY_FUNCTION__;
  return value;
}

class RuntimeTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 4096;

  RuntimeTest();
  ~RuntimeTest() override;

  // kBytes of device memory; freed at the end.
  void* Allocate();
  // A stream that waits for no other; destroyed at the end.
  cudaStream_t MakeStream();
  static std::vector<char> Download(const void* device);
  static cudaPointerAttributes AttributesOf(const void* memory);
  static int CurrentDevice();

 private:
  std::vector<void*> memory_;
  std::vector<cudaStream_t> streams_;
};

}  // namespace commpool::internal::testing
