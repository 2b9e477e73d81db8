#include "src/library/driver/diagnosis.h"

#include "src/library/base/bytes.h"
#include "src/library/driver/handles.h"
#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal {
namespace {

using testing::PropertiesAt;

class Diagnosis : public testing::DeviceTest {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("faults are injected"); }

  Status Check(CUresult result, const CallSite& site) { return CheckCuda(driver(), result, site); }
  Status FailToCreate(CUresult result, const CUmemAllocationProp& properties) {
    const testing::InjectedFault fault({.call = "cuMemCreate", .result = result});
    return PhysicalMemory::Create(driver(), 2 * kMiB, properties).status();
  }
};

#define EXPECT_MESSAGE_HAS(status, fragment) \
  EXPECT_NE((status).message().find(fragment), std::string::npos) << (status).message()
#define EXPECT_MESSAGE_LACKS(status, fragment) \
  EXPECT_EQ((status).message().find(fragment), std::string::npos) << (status).message()

TEST_F(Diagnosis, OfSuccessIsOk) {
  EXPECT_TRUE(Check(CUDA_SUCCESS, {.call = "cuMemCreate"}).ok());
  EXPECT_TRUE(CheckNccl(driver(), ncclSuccess, {.call = "ncclMemAlloc"}).ok());
}

TEST_F(Diagnosis, NamesCallBytesDeviceErrorAndPurpose) {
  const Status status =
      Check(CUDA_ERROR_INVALID_DEVICE,
            {.call = "cuMemSetAccess", .device = 1, .bytes = 2 * kGiB, .purpose = "segment of pool gradients"});
  EXPECT_EQ(status.code(), StatusCode::kDriverError);
  EXPECT_EQ(status.message(),
            "cuMemSetAccess of 2 GiB on device 1 failed: CUDA_ERROR_INVALID_DEVICE (invalid device ordinal) for "
            "segment of pool gradients; likely cause: the device cannot reach the memory: no NVLink or PCIe peer "
            "access between the two");
}

TEST_F(Diagnosis, OfOutOfMemoryTellsFreeMemoryOfTheCurrentDevice) {
  const Status status = FailToCreate(CUDA_ERROR_OUT_OF_MEMORY, PropertiesAt(testing::DeviceLocation(0)));
  ExpectFailure(status, StatusCode::kOutOfMemory,
                "cuMemCreate of 2 MiB on device 0 failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  EXPECT_MESSAGE_HAS(status, " are free");
}

TEST_F(Diagnosis, OfOutOfMemoryOnAnotherDeviceTellsNoBytes) {
  EXPECT_MESSAGE_LACKS(Check(CUDA_ERROR_OUT_OF_MEMORY, {.call = "cuMemCreate", .device = 1, .bytes = kMiB}),
                       " are free");
}

TEST_F(Diagnosis, OfOutOfMemoryOnTheHostTellsNoBytesOfADevice) {
  EXPECT_MESSAGE_LACKS(Check(CUDA_ERROR_OUT_OF_MEMORY, {.call = "cuMemHostAlloc", .memory = Memory::kHost}),
                       " are free");
  EXPECT_MESSAGE_HAS(Check(CUDA_ERROR_OUT_OF_MEMORY, {.call = "cuLaunchHostFunc"}), " are free");
}

TEST_F(Diagnosis, OfOutOfMemoryOnTheHostNamesTheNode) {
  ExpectFailure(FailToCreate(CUDA_ERROR_OUT_OF_MEMORY, PropertiesAt(testing::NumaLocation(1))),
                StatusCode::kOutOfMemory, "cuMemCreate of 2 MiB on NUMA node 1 failed");
}

TEST_F(Diagnosis, OfAFabricHandleNamesTheMissingChannel) {
  CUmemAllocationProp properties = PropertiesAt(testing::DeviceLocation(0));
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  ExpectFailure(FailToCreate(CUDA_ERROR_NOT_PERMITTED, properties), StatusCode::kNotSupported, "IMEX");
}

TEST_F(Diagnosis, TakesTheCausesThatFitTheCall) {
  EXPECT_MESSAGE_HAS(Check(CUDA_ERROR_INVALID_VALUE, {.call = "cuMemUnmap"}), "whole mappings");
  EXPECT_MESSAGE_HAS(Check(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, {.call = "cuCtxEnablePeerAccess"}), "peer access");
  EXPECT_MESSAGE_HAS(Check(CUDA_ERROR_ILLEGAL_ADDRESS, {.call = "cuEventQuery"}), "an earlier kernel or copy");
  EXPECT_MESSAGE_HAS(Check(CUDA_ERROR_DEINITIALIZED, {.call = "cuMemRelease"}), "the process is exiting");
  EXPECT_MESSAGE_LACKS(Check(CUDA_ERROR_INVALID_VALUE, {.call = "cuStreamQuery"}), "likely cause");
}

TEST_F(Diagnosis, PrefersTheCauseThatTheCallerKnows) {
  EXPECT_MESSAGE_HAS(Check(CUDA_ERROR_INVALID_VALUE, {.call = "cuMemUnmap", .likely_cause = "the pool is closed"}),
                     "likely cause: the pool is closed");
}

TEST_F(Diagnosis, OfAnErrorWithoutANameTellsItsNumber) {
  EXPECT_MESSAGE_HAS(Check(static_cast<CUresult>(998), {.call = "cuMemMap"}), "cuMemMap failed: CUDA error 998");
}

TEST_F(Diagnosis, TellsKindsOfFailureApart) {
  EXPECT_EQ(Check(CUDA_ERROR_NO_DEVICE, {.call = "cuInit"}).code(), StatusCode::kNotFound);
  EXPECT_EQ(Check(CUDA_ERROR_NOT_SUPPORTED, {.call = "cuMemCreate"}).code(), StatusCode::kNotSupported);
  EXPECT_EQ(Check(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, {.call = "cuMemSetAccess"}).code(), StatusCode::kNotSupported);
  EXPECT_EQ(Check(CUDA_ERROR_LAUNCH_FAILED, {.call = "cuEventQuery"}).code(), StatusCode::kDriverError);
}

TEST_F(Diagnosis, OfNcclNamesTheRunningVersionAndTheCause) {
  COMMPOOL_REQUIRE_NCCL();
  const Status status = CheckNccl(driver(), ncclRemoteError, {.call = "ncclAllReduce", .bytes = kMiB});
  ExpectFailure(status, StatusCode::kCommunicatorError, "ncclAllReduce of 1 MiB failed: ");
  EXPECT_MESSAGE_HAS(status, "NCCL " + FormatNcclVersion(driver().nccl.version));
  EXPECT_MESSAGE_HAS(status, "another rank failed or left");
  EXPECT_MESSAGE_HAS(CheckNccl(driver(), ncclInvalidArgument, {.call = "ncclCommWindowRegister"}), "multiple of 4096");
  EXPECT_MESSAGE_HAS(CheckNccl(driver(), ncclInvalidUsage, {.call = "ncclCommRegister"}), "two threads");
}

TEST_F(Diagnosis, OfNcclWorksWithoutAnyNccl) {
  Driver none;
  none.cuda = driver().cuda;
  EXPECT_MESSAGE_HAS(CheckNccl(none, ncclSystemError, {.call = "ncclCommInitRank"}),
                     "ncclCommInitRank failed: NCCL error 2 (ncclSystemError)");
}

// NCCL keeps its last error for good.
class WithErrorText : public Diagnosis {
 protected:
  void SetUp() override {
    Diagnosis::SetUp();
    driver_.cuda = driver().cuda;
    driver_.nccl.ncclGetLastError = [](ncclComm_t) -> const char* { return words_; };
  }
  Status CheckCall(const char* call, ncclResult_t result) { return CheckNccl(driver_, result, {.call = call}); }

  static inline const char* words_ = "";
  Driver driver_;
};

TEST_F(WithErrorText, TellsItWithItsOwnFailure) {
  words_ = "no more handles";
  EXPECT_MESSAGE_HAS(CheckCall("ncclMemAlloc", ncclSystemError), "(no more handles)");
  EXPECT_MESSAGE_HAS(CheckCall("ncclMemAlloc", ncclSystemError), "(no more handles)");
}

TEST_F(WithErrorText, DoesNotTellItOfAnotherCall) {
  words_ = "no more handles";
  EXPECT_MESSAGE_HAS(CheckCall("ncclMemAlloc", ncclSystemError), "(no more handles)");
  EXPECT_MESSAGE_LACKS(CheckCall("ncclAllReduce", ncclInvalidUsage), "no more handles");
  words_ = "two threads";
  EXPECT_MESSAGE_HAS(CheckCall("ncclAllReduce", ncclInvalidUsage), "(two threads)");
}

TEST_F(WithErrorText, DoesNotTellOneFromBeforeASuccess) {
  words_ = "a socket was slow";
  EXPECT_TRUE(CheckCall("ncclCommInitRank", ncclSuccess).ok());
  EXPECT_MESSAGE_LACKS(CheckCall("ncclMemAlloc", ncclSystemError), "a socket was slow");
}

TEST_F(WithErrorText, DoesNotTellOneOfTheProgramsOwnCalls) {
  words_ = "the program passed a null buffer";
  NoteOldErrorText(driver_);
  EXPECT_MESSAGE_LACKS(CheckCall("ncclMemAlloc", ncclSystemError), "null buffer");
  NoteOldErrorText(driver_);
  words_ = "no more handles";
  EXPECT_MESSAGE_HAS(CheckCall("ncclMemAlloc", ncclSystemError), "(no more handles)");
}

TEST_F(Diagnosis, KnowsErrorsThatLoseTheContext) {
  for (const CUresult result : {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_DEINITIALIZED}) {
    EXPECT_TRUE(IsSticky(result)) << result;
  }
  for (const CUresult result : {CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_READY}) {
    EXPECT_FALSE(IsSticky(result)) << result;
  }
}

}  // namespace
}  // namespace commpool::internal
