// Places are devices by their primary contexts: the driver is asked once for each stream of a program, and a default
// stream's handle means the current device's stream. A device is broken from its first sticky error on; other errors
// leave it as it was.
#include "src/library/stream/stream_places.h"

#include <optional>
#include <thread>

#include "tests/stream/stream_fixture.h"

namespace commpool::internal::testing {
namespace {

class Places : public DriverTest {
 protected:
  const CudaDriver& cuda() const { return driver().cuda; }

  const CurrentContext context_;
  StreamPlaces places_{driver()};
};

TEST_F(Places, OfDefaultStreamsAreTheCurrentDevice) { EXPECT_EQ(places_.Current().value(), std::optional<int>(0)); }

TEST_F(Places, AreNoneWithoutAContext) {
  std::optional<int> current = 7;
  const uint64_t calls = CallCount("cuCtxGetDevice");
  std::thread([&] { current = places_.Current().value(); }).join();
  EXPECT_EQ(current, std::nullopt);
  EXPECT_EQ(CallCount("cuCtxGetDevice"), calls) << "it fails without a context, and sanitizers report what fails";
}

TEST_F(Places, AreKnownByTheirContextsAfterTheFirstQuestion) {
  ASSERT_TRUE(places_.Current().ok());
  const uint64_t calls = CallCount("cuCtxGetDevice");
  ASSERT_TRUE(places_.Current().ok());
  ExpectCalls("cuCtxGetDevice", calls, 0);
}

TEST_F(Places, OfAStreamOfAnotherDeviceIsFoundAndTheCurrentOneKept) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
  const TestStream stream(far);
  EXPECT_EQ(places_.OfStream(stream).value(), 1);
  EXPECT_EQ(places_.Current().value(), std::optional<int>(0));
  EXPECT_EQ(places_.At(1).device(), 1);
}

TEST_F(Places, AThreadWithoutAContextFindsAStreamsDeviceAndStaysWithout) {
  const TestStream stream(context_);
  int device = -1;
  CUcontext current = nullptr;
  std::thread([&] {
    device = places_.OfStream(stream).value();
    EXPECT_EQ(cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(device, 0);
  EXPECT_EQ(current, nullptr);
}

TEST_F(Places, ADriverThatAnswersOnlyWithAContextIsAskedWithOne) {
  Driver strict = driver();
  strict.cuda.cuStreamGetCtx = [](CUstream stream, CUcontext* context) {
    CUcontext current = nullptr;
    SharedDriver()->cuda.cuCtxGetCurrent(&current);
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return SharedDriver()->cuda.cuStreamGetCtx(stream, context);
  };
  StreamPlaces places(strict);
  const TestStream stream(context_);
  Result<int> device = Status(StatusCode::kInternal, "not asked");
  std::thread([&] { device = places.OfStream(stream); }).join();
  ExpectOk(device.status());
  EXPECT_EQ(device.value_or(-1), 0);
}

// A stream's context that is no device's primary one: the driver's answer is made up, for few programs make such.
TEST_F(Places, OfOtherContextsThanPrimaryOnesAreNotSupported) {
  static CUcontext other;
  Driver strange = driver();
  strange.cuda.cuStreamGetCtx = [](CUstream, CUcontext* context) { return *context = other, CUDA_SUCCESS; };
  strange.cuda.cuCtxSetCurrent = [](CUcontext context) {
    return context == other ? CUDA_SUCCESS : SharedDriver()->cuda.cuCtxSetCurrent(context);
  };
  strange.cuda.cuCtxGetDevice = [](CUdevice* device) { return *device = 0, CUDA_SUCCESS; };
  other = reinterpret_cast<CUcontext>(uintptr_t{0x1230});
  StreamPlaces places(strange);
  ExpectFailure(places.OfStream(reinterpret_cast<CUstream>(uintptr_t{0x1000})).status(), StatusCode::kNotSupported,
                "while the primary context is current");
}

TEST_F(Places, WhoseQuestionsFailNameTheCallAndAreAskedAgain) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  const TestStream stream(context_);
  for (const char* call : {"cuCtxGetCurrent", "cuStreamGetCtx", "cuCtxGetDevice", "cuDevicePrimaryCtxRetain"}) {
    // The guard that puts the context back asks for it first.
    const int skip = call == std::string("cuCtxGetCurrent") ? 1 : 0;
    const InjectedFault fault({.call = call, .result = CUDA_ERROR_UNKNOWN, .skip = skip});
    SCOPED_TRACE(call);
    ExpectMessage(places_.OfStream(stream).status(), call);
  }
  EXPECT_EQ(places_.OfStream(stream).value(), 0);
}

class Health : public DriverTest {
 protected:
  Status Check(CUresult result, const char* call) { return health_.Check(driver(), result, {.call = call}); }

  DeviceHealth health_;
};

TEST_F(Health, IsGoodAtFirstAndAfterSuccess) {
  EXPECT_TRUE(Check(CUDA_SUCCESS, "cuEventRecord").ok());
  EXPECT_FALSE(health_.broken());
  EXPECT_TRUE(health_.first_error().ok());
}

TEST_F(Health, SurvivesErrorsThatAreNotSticky) {
  for (const CUresult result : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED}) {
    EXPECT_FALSE(Check(result, "cuMemCreate").ok());
  }
  EXPECT_FALSE(health_.broken());
  EXPECT_TRUE(health_.first_error().ok());
}

TEST_F(Health, KeepsTheFirstStickyError) {
  Status first = Check(CUDA_ERROR_ILLEGAL_ADDRESS, "cuEventQuery");
  Status second = Check(CUDA_ERROR_LAUNCH_FAILED, "cuCtxSynchronize");
  EXPECT_TRUE(health_.broken());
  EXPECT_EQ(health_.first_error().message(), first.message());
  EXPECT_NE(first.message(), second.message());
  ExpectMessage(first, "cuEventQuery");
}

TEST_F(Health, DoesNotRecover) {
  EXPECT_FALSE(Check(CUDA_ERROR_DEINITIALIZED, "cuEventRecord").ok());
  EXPECT_TRUE(Check(CUDA_SUCCESS, "cuEventRecord").ok());
  EXPECT_TRUE(health_.broken());
}

}  // namespace
}  // namespace commpool::internal::testing
