// Calls that fail because a test asked for it.
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class Faults : public MachineTest {
 protected:
  CUresult Try() {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = Properties();
    const CUresult result = cuda().cuMemCreate(&handle, kUnit, &properties, 0);
    if (result == CUDA_SUCCESS) {
      EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
    } else {
      EXPECT_EQ(handle, 0u) << "a call that fails does nothing";
    }
    return result;
  }
};

TEST_F(Faults, StrikeTheNextCallOnce) {
  InjectedFault fault({.call = "cuMemCreate", .result = CUDA_ERROR_UNKNOWN});
  EXPECT_EQ(Try(), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(Try(), CUDA_SUCCESS);
}

TEST_F(Faults, SkipAndCount) {
  InjectedFault fault({.call = "cuMemCreate", .result = CUDA_ERROR_NOT_SUPPORTED, .skip = 2, .count = 2});
  for (const CUresult expected :
       {CUDA_SUCCESS, CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS}) {
    EXPECT_EQ(Try(), expected);
  }
}

TEST_F(Faults, FollowOneAnother) {
  InjectedFault first({.call = "cuMemCreate", .result = CUDA_ERROR_NOT_PERMITTED});
  InjectedFault second({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(Try(), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(Try(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Try(), CUDA_SUCCESS);
}

TEST_F(Faults, StrikeTheNamedCallAlone) {
  InjectedFault fault({.call = "cuMemRelease", .result = CUDA_ERROR_UNKNOWN});
  EXPECT_EQ(Get(cuda().cuDeviceGetCount), 4);
}

TEST_F(Faults, HaveNamesAndSentences) {
  const std::pair<CUresult, const char*> known[] = {
      {CUDA_SUCCESS, "CUDA_SUCCESS"},
      {CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE"},
      {CUDA_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT"},
      {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
      {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
  };
  for (const auto& [result, expected] : known) {
    const char* name = nullptr;
    const char* text = nullptr;
    EXPECT_EQ(cuda().cuGetErrorName(result, &name), CUDA_SUCCESS) << expected;
    EXPECT_EQ(cuda().cuGetErrorString(result, &text), CUDA_SUCCESS) << expected;
    EXPECT_STREQ(name, expected);
    EXPECT_NE(text, nullptr) << expected;
  }
  const char* none = "unchanged";
  EXPECT_EQ(cuda().cuGetErrorName(static_cast<CUresult>(998), &none), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(none, nullptr);
}

TEST_F(Faults, EndWhenTheyAreCleared) {
  COMMPOOL_EXTENSION(commpoolEmulatorInjectFault)("cuMemCreate", 0, 100, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(Try(), CUDA_ERROR_UNKNOWN);
  COMMPOOL_EXTENSION(commpoolEmulatorClearFaults)();
  EXPECT_EQ(Try(), CUDA_SUCCESS);
}

TEST_F(Faults, ACallThatFailsIsCountedAndLeavesNothing) {
  const std::vector<std::string> leaks = EmulatorLeaks();
  const uint64_t before = CallCount("cuMemCreate");
  const uint64_t all = CallCount("*");
  InjectedFault fault({.call = "cuMemCreate", .result = CUDA_ERROR_UNKNOWN});
  EXPECT_EQ(Try(), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(CallCount("cuMemCreate"), before + 1);
  EXPECT_EQ(CallCount("*"), all + 1);
  EXPECT_EQ(EmulatorLeaks(), leaks);
}

TEST_F(Faults, StrikeCallsOfTheOtherLibraryToo) {
  const auto enter = COMMPOOL_EXTENSION(commpoolEmulatorEnterCall);
  InjectedFault fault({.call = "ncclMemAlloc", .result = 5});
  const uint64_t before = CallCount("ncclMemAlloc");
  EXPECT_EQ(enter("ncclMemAlloc"), 5);
  EXPECT_EQ(enter("ncclMemAlloc"), -1);
  EXPECT_EQ(CallCount("ncclMemAlloc"), before + 2);
}

TEST_F(Faults, ACallThatWasNeverMadeCountsZero) { EXPECT_EQ(CallCount("cuNoSuchCall"), 0u); }

}  // namespace
}  // namespace commpool::internal::testing
