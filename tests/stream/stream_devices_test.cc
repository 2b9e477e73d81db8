// The device of a stream: asked of the driver once; of the default streams, the thread's current one.
#include "src/stream/stream_devices.h"

#include <string>
#include <thread>
#include <utility>

#include "src/driver/handles.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

class StreamDevicesFacts : public DriverTest {
 protected:
  const CudaDriver& cuda() const { return driver().cuda; }
  CUstream MakeStream(const PrimaryContext& context) {
    ContextGuard guard(driver(), context);
    CUstream stream = nullptr;
    EXPECT_EQ(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
  }

  PrimaryContext context_ = PrimaryContext::Retain(driver(), 0).value();
  StreamDevices devices_{driver()};
};

TEST_F(StreamDevicesFacts, DefaultStreamsBelongToTheCurrentDevice) {
  ContextGuard guard(driver(), context_);
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    EXPECT_EQ(devices_.DeviceOf(stream).value(), 0);
  }
}

TEST_F(StreamDevicesFacts, DefaultStreamsWithoutAContextBelongToNone) {
  Status status;
  const uint64_t calls = CallCount("cuCtxGetDevice");
  std::thread([&] { status = devices_.DeviceOf(nullptr).status(); }).join();
  EXPECT_EQ(CallCount("cuCtxGetDevice"), calls) << "it fails without a context, and sanitizers report what fails";
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("no CUDA context is current"), std::string::npos) << status.message();
}

TEST_F(StreamDevicesFacts, AStreamIsAskedAboutOnce) {
  const CUstream stream = MakeStream(context_);
  EXPECT_EQ(devices_.DeviceOf(stream).value(), 0);
  const uint64_t calls = CallCount("*");
  EXPECT_EQ(devices_.DeviceOf(stream).value(), 0);
  EXPECT_EQ(CallCount("*"), calls);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(StreamDevicesFacts, AForgottenStreamIsAskedAboutAgain) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  const CUstream stream = MakeStream(context_);
  EXPECT_EQ(devices_.DeviceOf(stream).value(), 0);
  devices_.Forget(stream);
  devices_.Forget(stream);
  const uint64_t calls = CallCount("cuStreamGetCtx");
  EXPECT_EQ(devices_.DeviceOf(stream).value(), 0);
  EXPECT_EQ(CallCount("cuStreamGetCtx"), calls + 1);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(StreamDevicesFacts, AStreamOfAnotherDeviceIsFoundAndTheCurrentOneKept) {
  COMMPOOL_REQUIRE_DEVICES(2);
  PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
  const CUstream stream = MakeStream(far);
  ContextGuard guard(driver(), context_);
  EXPECT_EQ(devices_.DeviceOf(stream).value(), 1);
  EXPECT_EQ(devices_.DeviceOf(nullptr).value(), 0);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(StreamDevicesFacts, AFailureNamesTheCallAndIsForgotten) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  const CUstream stream = MakeStream(context_);
  ContextGuard guard(driver(), context_);
  const auto failure = [&](CUstream asked, const char* call, int skip) {
    const InjectedFault fault({.call = call, .result = CUDA_ERROR_UNKNOWN, .skip = skip});
    const Result<int> device = devices_.DeviceOf(asked);
    return device.ok() ? std::string("none") : device.status().message();
  };
  for (const char* call : {"cuCtxGetCurrent", "cuCtxGetDevice"}) {
    EXPECT_NE(failure(nullptr, call, 0).find(call), std::string::npos) << call;
  }
  for (const auto& [call, skip] :
       {std::pair("cuDevicePrimaryCtxRetain", 0), std::pair("cuStreamGetCtx", 0), std::pair("cuCtxGetDevice", 1)}) {
    EXPECT_NE(failure(stream, call, skip).find(call), std::string::npos) << call;
  }
  EXPECT_EQ(devices_.DeviceOf(stream).value(), 0);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(StreamDevicesFacts, ADriverThatAnswersOnlyWithAContextIsAskedWithOne) {
  Driver strict = driver();
  strict.cuda.cuStreamGetCtx = [](CUstream stream, CUcontext* context) {
    CUcontext current = nullptr;
    SharedDriver()->cuda.cuCtxGetCurrent(&current);
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return SharedDriver()->cuda.cuStreamGetCtx(stream, context);
  };
  StreamDevices devices(strict);
  const CUstream stream = MakeStream(context_);
  Result<int> device = Status(StatusCode::kInternal, "not asked");
  std::thread([&] { device = devices.DeviceOf(stream); }).join();
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ(*device, 0);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(StreamDevicesFacts, AThreadWithoutAContextFindsAStreamsDeviceAndStaysWithout) {
  const CUstream stream = MakeStream(context_);
  int device = -1;
  CUcontext current = nullptr;
  std::thread([&] {
    device = devices_.DeviceOf(stream).value();
    EXPECT_EQ(cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(device, 0);
  EXPECT_EQ(current, nullptr);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal::testing
