// The device of a stream: the driver is asked once; for the default streams it is the thread's current device.
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

  static Result<int> DeviceOf(StreamDevices& devices, CUstream stream) {
    return devices.DeviceOf(stream, KeyOfStream(stream));
  }
  Result<int> DeviceOf(CUstream stream) { return DeviceOf(devices_, stream); }

  PrimaryContext context_ = PrimaryContext::Retain(driver(), 0).value();
  StreamDevices devices_{driver()};
};

TEST_F(StreamDevicesFacts, DefaultStreamsBelongToTheCurrentDevice) {
  ContextGuard guard(driver(), context_);
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    EXPECT_EQ(DeviceOf(stream).value(), 0);
  }
}

TEST_F(StreamDevicesFacts, DefaultStreamsWithoutAContextBelongToNone) {
  Status status;
  const uint64_t calls = CallCount("cuCtxGetDevice");
  std::thread([&] { status = DeviceOf(nullptr).status(); }).join();
  EXPECT_EQ(CallCount("cuCtxGetDevice"), calls) << "it fails without a context, and sanitizers report what fails";
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("no CUDA context is current"), std::string::npos) << status.message();
}

TEST_F(StreamDevicesFacts, AStreamIsAskedAboutOnce) {
  const CUstream stream = MakeStream(context_);
  EXPECT_EQ(DeviceOf(stream).value(), 0);
  const uint64_t calls = CallCount("cuStreamGetCtx");
  EXPECT_EQ(DeviceOf(stream).value(), 0);
  ExpectCalls("cuStreamGetCtx", calls, 0);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

// Like drivers: a new stream gets the handle of a destroyed one, on any device.
TEST_F(StreamDevicesFacts, AHandleThatComesBackIsAskedAboutAgain) {
  COMMPOOL_REQUIRE_DEVICES(2);
  static CUcontext owner;
  unsigned long long number = 0;
  Driver recycling = driver();
  recycling.cuda.cuStreamGetCtx = [](CUstream, CUcontext* context) { return *context = owner, CUDA_SUCCESS; };
  const PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
  StreamDevices devices(recycling);
  const auto handle = reinterpret_cast<CUstream>(uintptr_t{0x1000});
  for (const PrimaryContext* context : std::initializer_list<const PrimaryContext*>{&context_, &far, &context_}) {
    owner = context->get();
    ++number;
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(devices.DeviceOf(handle, KeyOfId(number)).value(), context->device());
    }
  }
}

// A promised stream is known by its handle until it is released.
TEST_F(StreamDevicesFacts, AStreamThatIsForgottenIsAskedAboutAgain) {
  static CUcontext owner;
  Driver recycling = driver();
  recycling.cuda.cuStreamGetCtx = [](CUstream, CUcontext* context) { return *context = owner, CUDA_SUCCESS; };
  StreamDevices devices(recycling);
  const auto handle = reinterpret_cast<CUstream>(uintptr_t{0x1000});
  for (const int device : {0, DeviceCountOfTests() - 1}) {
    const PrimaryContext context = PrimaryContext::Retain(driver(), device).value();
    owner = context.get();
    EXPECT_EQ(DeviceOf(devices, handle).value(), device);
    devices.Forget(handle);
  }
}

TEST_F(StreamDevicesFacts, AStreamOfAnotherDeviceIsFoundAndTheCurrentOneKept) {
  COMMPOOL_REQUIRE_DEVICES(2);
  PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
  const CUstream stream = MakeStream(far);
  ContextGuard guard(driver(), context_);
  EXPECT_EQ(DeviceOf(stream).value(), 1);
  EXPECT_EQ(DeviceOf(nullptr).value(), 0);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(StreamDevicesFacts, AFailureNamesTheCallAndIsForgotten) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  const CUstream stream = MakeStream(context_);
  ContextGuard guard(driver(), context_);
  const auto failure = [&](CUstream asked, const char* call, int skip) {
    const InjectedFault fault({.call = call, .result = CUDA_ERROR_UNKNOWN, .skip = skip});
    const Result<int> device = DeviceOf(asked);
    return device.ok() ? std::string("none") : device.status().message();
  };
  for (const char* call : {"cuCtxGetCurrent", "cuCtxGetDevice"}) {
    EXPECT_NE(failure(nullptr, call, 0).find(call), std::string::npos) << call;
  }
  for (const auto& [call, skip] :
       {std::pair("cuDevicePrimaryCtxRetain", 0), std::pair("cuStreamGetCtx", 0), std::pair("cuCtxGetDevice", 1)}) {
    EXPECT_NE(failure(stream, call, skip).find(call), std::string::npos) << call;
  }
  EXPECT_EQ(DeviceOf(stream).value(), 0);
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
  std::thread([&] { device = DeviceOf(devices, stream); }).join();
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ(*device, 0);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(StreamDevicesFacts, AThreadWithoutAContextFindsAStreamsDeviceAndStaysWithout) {
  const CUstream stream = MakeStream(context_);
  int device = -1;
  CUcontext current = nullptr;
  std::thread([&] {
    device = DeviceOf(stream).value();
    EXPECT_EQ(cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(device, 0);
  EXPECT_EQ(current, nullptr);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal::testing
